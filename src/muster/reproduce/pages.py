"""docs/claims.md and docs/gallery.md, made from the results that are kept with the files of the
experiments. No row of either is written by hand.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..lazy import pl
from ..report.curves import BANDED
from ..report.intervals import Interval
from ..run.measures import MEASURES
from ..schema import Table
from ..theory import figures as theory_figures
from ..theory.verdicts import verdicts as judge_study
from .claims import NOT_RUN, Finding, Verdict, broken, judged, said, seeds_lost
from .draw import columns_of, draw
from .plan import Plan
from .results import Results, together
from .tuned import in_words

PAPERS = {"fedalign": "FedALIGN (Prioritized FL)", "maxfl": "MaxFL (Global Model Appeal)"}
CLAIMS = """\
# What the papers claim, and what came out

Every claim of the two papers, in our words, held against runs on matched seeds; where the second
column says so, a claim of our own. This page is made by `muster reproduce --pages` from the small
files in `experiments/results`; no verdict or number in it is written by hand.

A claim that A is above B *holds* where the 95 % interval of the paired difference (seed by seed,
Student's t) lies above zero; *does not hold* where the opposite is as clear, or both runs are
identical; and is *undecided* otherwise. A claim of several cells *holds* where it holds in every
one of them. Where it holds in some only, *holds when ...* names those that stand up to Holm's
correction over the claim's cells; cells marked *by itself* are clear alone and not among so many.
So a claim that is not so seems to hold by chance in at most one case of forty, whatever its number
of cells; from claim to claim nothing is corrected. A seed that diverged leaves its cell undecided.

Numbers are mean ± half-width of the 95 % interval: left side, right side, then their paired
difference. `muster reproduce ID` runs an experiment again; `muster reproduce --list` says what it
needs. The figures are in [the gallery](gallery.md).

Verdicts are those of the kept files. Run again on another machine, runs on FMNIST come to the same
numbers to 1e-6. Runs on SYNTH at a learning rate of 0.1 do not: there rounding in the last bit,
which differs between processors, is amplified from round to round, and single runs end elsewhere.
"""
GALLERY = """\
# Gallery: every figure, drawn from the kept results

Made by `muster reproduce --pages`. Lines and points are means over the seeds. Bars are 95 %
intervals, and so are bands, left out where more than {banded} methods share a panel; those of
shares end at 0 and 1. Where an axis says a difference, it is paired, seed by seed. What each figure
says about the papers' claims is in [the claims ledger](claims.md).
"""
EARLIER = "of an earlier version of its file"
KINDS = ("holds", "holds in part", "does not hold", "undecided", NOT_RUN)


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
    ours = sum(v.where.startswith("our own") for v in every)
    summary = ", ".join(f"{count[kind]} {kind}" for kind in KINDS)
    return "\n".join([CLAIMS, f"{len(every)} claims, {ours} of them our own: {summary}.\n", *parts])


def kind_of(verdict: Verdict) -> str:
    """A verdict without its particulars."""
    if verdict.word.startswith("holds "):
        return "holds in part"
    return next(kind for kind in KINDS if verdict.word.startswith(kind))


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
    where, scale = said(finding.cell, among), MEASURES[finding.measure].scale
    left, right = fixed(finding.left, scale), fixed(finding.right, scale)
    text = f"{left} against {right}: {fixed(finding.gap, scale, signed=True)}"
    mark = mark_of(finding, among)
    return f"{where + ': ' if where else ''}{text}, {finding.seeds} seeds{mark and f' ({mark})'}"


def mark_of(finding: Finding, among: Sequence[Finding]) -> str:
    """What a cell came to, where it is not that the claim holds."""
    if finding.diverged:
        return f"undecided: {seeds_lost(finding)}"
    if finding.holds is None:
        return "identical" if finding.identical else "undecided"
    word = "" if finding.holds else "opposite"
    picked = any(other.holds is not finding.holds for other in among)
    alone = "by itself" if picked and not finding.sure else ""
    return ", ".join(filter(None, [word, alone]))


def fixed(interval: Interval, scale: float = 1.0, signed: bool = False) -> str:
    """An interval in few digits.

    >>> fixed(Interval(0.91234, 0.0123)), fixed(Interval(10.25, 0.1), signed=True)
    ('.912 ± .012', '+10.250 ± .100')
    """
    mean, half = interval.mean * scale, interval.half * scale
    text = without_zero(f"{mean:+.3f}" if signed else f"{mean:.3f}")
    return text if math.isnan(half) else f"{text} ± {without_zero(f'{half:.3f}')}"


def without_zero(number: str) -> str:
    """A number without the zero before its point.

    >>> without_zero("-0.5"), without_zero("10.25")
    ('-.5', '10.25')
    """
    return re.sub(r"^([+-]?)0\.", r"\1.", number)


def ran(plan: Plan, results: Results | None) -> str:
    """What was run, in a sentence."""
    if results is None:
        return "Not run here."
    panels = [name for name in plan.own if name in results.made]
    parts = [panel_ran(plan, name, results) for name in panels]
    if results.studies:
        parts.append("at full size")
    lacks = [name for name in plan.own if name not in panels and name not in results.missing]
    none = [f"{name} not run (`{command}`)" for name, command in results.missing.items()]
    none += [f"{name} not run (`muster reproduce {plan.id}`)" for name in lacks]
    also = [
        f"the runs of {id}" + (f" ({EARLIER})" if id in results.earlier else "") for id in plan.uses
    ]
    return "Run here: " + "; ".join([*parts, *also, *none]) + "."


def panel_ran(plan: Plan, name: str, results: Results) -> str:
    """What was run of one panel."""
    frame, made = results.frame.filter(pl.col("panel") == name), results.made[name]
    rounds, seeds = int(frame["round"].to_numpy().max()), frame["seed"].n_unique()
    less = plan.panel(name, made.size).less
    size = f", smaller ({compact(less)})" if less else ", in full"
    if name in results.outdated(plan):  # the file does not tell of its size any more
        size = f" ({EARLIER})"
    subset = ", on a subset of the data" if made.subset else ""
    return f"{name}, {rounds} rounds, {seeds} seeds{size}{subset}{in_words(made.tuning)}"


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
    parts = [GALLERY.format(banded=BANDED)]
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
        draw(drawing, results.frame, folder / f"{plan.id}-{i}.png", results.keys)
        for i, drawing in enumerate(plan.drawings, 1)
        if columns_of(drawing, results.frame)
    ]
    return drawn + [
        theory_figures.draw(studied, folder / f"{plan.id}-{name}.png")
        for name, studied in results.studies.items()
    ]
