"""docs/claims.md and docs/gallery.md, made from the results that are kept with the files of the
experiments. No row of either is written by hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..report.intervals import Interval
from ..schema import Table
from ..theory import figures as theory_figures
from ..theory.verdicts import verdicts as judge_study
from .claims import Finding, Verdict, broken, judged, said
from .draw import draw
from .plan import Panel, Plan
from .results import Results, together
from .tuned import in_words

PAPERS = {"fedalign": "FedALIGN (Prioritized FL)", "maxfl": "MaxFL (Global Model Appeal)"}
CLAIMS = """\
# What the papers claim, and what came out

Every claim of the two papers, in our words, held against runs on matched seeds. This page is made
by `muster reproduce --pages` from the small files in `experiments/results`; no verdict or number in
it is written by hand. A claim that A is above B *holds* where the 95 % interval of the paired
difference (seed by seed, Student's t) lies above zero; *holds when ...* names the cells in which it
does; *does not hold* says whether the opposite is clear or nothing is. Intervals are not corrected
for the number of claims: of twenty that are not so, one may seem to hold.

Numbers are mean ± half-width of the 95 % interval: left side, right side, then their paired
difference. `muster reproduce ID` runs an experiment again; `muster reproduce --list` says what it
needs. The figures are in [the gallery](gallery.md).
"""
GALLERY = """\
# Gallery: every figure, drawn from the kept results

Made by `muster reproduce --pages`. Lines and points are means over the seeds, bands and bars 95 %
intervals; where an axis says a difference, it is paired, seed by seed. What each figure says about
the papers' claims is in [the claims ledger](claims.md).
"""


def verdicts(plan: Plan, results: Results | None) -> list[Verdict]:
    """The verdict on every claim of an experiment."""
    frame, keys = (None, []) if results is None else (results.frame, results.keys)
    needs = f"`muster reproduce {plan.id}`"
    found = [judged(claim, frame, keys, needs) for claim in plan.claims]
    for studied in {} if results is None else results.studies.values():
        for v in judge_study(studied):
            found.append(
                Verdict(v["id"], v["says"], v["where"], v["verdict"], numbers=v["numbers"])
            )
    return found


def faults(plan: Plan, results: Results) -> list[str]:
    """What must be so and is not."""
    found = [v for v in verdicts(plan, results) if v.id in plan.sure and v.word != "holds"]
    return [f"{v.says} ({v.numbers}: {v.word})" for v in found] + [
        fault for check in plan.checks for fault in broken(check, results.frame, results.keys)
    ]


def claims_page(plans: Sequence[Plan], folder: Path) -> str:
    """docs/claims.md."""
    parts, every = [], []
    for paper, title in PAPERS.items():
        parts.append(f"## {title}\n")
        for plan in (p for p in plans if p.paper == paper):
            results = together(plan, folder)
            found = verdicts(plan, results)
            every += found
            parts.append(f"### {plan.id}: {plan.title}\n\n{plan.where}. {ran(plan, results)}\n")
            parts.append(ledger(found))
    count = Counter(kind_of(v) for v in every)
    kinds = ("holds", "holds when", "does not hold", "not run here")
    summary = ", ".join(
        f"{count[kind]} {kind}{' ...' if kind == 'holds when' else ''}" for kind in kinds
    )
    return "\n".join([CLAIMS, f"{len(every)} claims: {summary}.\n", *parts])


def kind_of(verdict: Verdict) -> str:
    """A verdict without its particulars."""
    kinds = ("holds when", "holds", "does not hold", "not run here")
    return next(kind for kind in kinds if verdict.word.startswith(kind))


def ledger(found: Sequence[Verdict]) -> str:
    """Claims as a table."""
    lines = ["| claim | in the paper | numbers | verdict |", "|---|---|---|---|"]
    for v in found:
        cells = (
            v.says,
            v.where,
            v.numbers or numbers(v),
            f"**{v.word}**" + (f": {v.needs}" if v.needs else ""),
        )
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def numbers(verdict: Verdict) -> str:
    """Both sides and their difference, cell by cell."""
    lines = [line_of(finding, verdict.findings) for finding in verdict.findings]
    return "<br>".join(lines)


def line_of(finding: Finding, among: Sequence[Finding]) -> str:
    """One cell's numbers."""
    where = said(finding.cell, among)
    mark = {True: "", False: " (opposite)", None: " (unclear)"}[finding.holds]
    text = f"{fixed(finding.left)} against {fixed(finding.right)}: {fixed(finding.gap, True)}"
    return f"{where + ': ' if where else ''}{text}, {finding.seeds} seeds{mark}"


def fixed(interval: Interval, signed: bool = False) -> str:
    """An interval in few digits.

    >>> fixed(Interval(0.91234, 0.0123)), fixed(Interval(0.5, 0.1), signed=True)
    ('.912 ± .012', '+.500 ± .100')
    """
    text = f"{interval.mean:+.3f}" if signed else f"{interval.mean:.3f}"
    half = "" if interval.half != interval.half else f" ± {interval.half:.3f}"
    return (text + half).replace("0.", ".") if abs(interval.mean) < 1 else text + half


def ran(plan: Plan, results: Results | None) -> str:
    """What was run, in a sentence."""
    if results is None:
        return "Not run here."
    facts = results.facts
    there = set(results.frame["panel"]) if results.frame.width else set()
    parts = [
        panel_ran(plan.panel(name, facts["size"]), facts) for name in plan.own if name in there
    ]
    if results.studies:
        parts.append("at full size")
    left = [f"{name} not run (`{command}`)" for name, command in facts.get("missing", {}).items()]
    also = [f"the runs of {id}" for id in plan.uses]
    return "Run here: " + "; ".join([*parts, *also, *left]) + "."


def panel_ran(panel: Panel, facts: Table) -> str:
    """What was run of one panel."""
    config = panel.config
    size = "in full"
    if panel.less:
        size = f"smaller ({compact(panel.less)})"
    elif panel.name in facts.get("subsets", []):
        size = "in full, on a subset of the data"
    tuned = in_words(facts.get("tuning", {}).get(panel.name, []))
    return f"{panel.name}, {config['rounds']} rounds, {config['seeds']} seeds, {size}{tuned}"


def compact(table: Table) -> str:
    """A table of settings in one line, without what every size of a panel says anyway.

    >>> compact({"rounds": 20, "seeds": 3, "data": {"clients": 12}})
    '`data.clients = 12`'
    """
    flat = [
        f"{key} = {value}"
        for key, value in flattened(table)
        if key not in ("rounds", "seeds", "evaluate_every")
    ]
    return f"`{', '.join(flat)}`" if flat else "fewer rounds or seeds"


def flattened(table: Table, above: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a table by its dotted key."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flattened(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def gallery_page(plans: Sequence[Plan], folder: Path, docs: Path) -> str:
    """docs/gallery.md, with its figures drawn next to it."""
    parts = [GALLERY]
    for plan in plans:
        results = together(plan, folder)
        if results is None:
            continue
        parts.append(f"## {plan.id}: {plan.title}\n\n{plan.where}. {ran(plan, results)}\n")
        for path in figures(plan, results, docs / "gallery"):
            parts.append(f"![{plan.id}: {plan.title}]({path.relative_to(docs).as_posix()})\n")
    return "\n".join(parts)


def figures(plan: Plan, results: Results, folder: Path) -> list[Path]:
    """Every figure of an experiment."""
    drawn = [
        draw(drawing, results.frame, folder / f"{plan.id}-{i}.png")
        for i, drawing in enumerate(plan.drawings, 1)
    ]
    return drawn + [
        theory_figures.draw(studied, folder / f"{plan.id}-{name}.png")
        for name, studied in results.studies.items()
    ]
