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

from ...base.lazy import pl
from ...base.schema import Table
from ...report.curves import BANDED
from ...report.intervals import Interval, variation_in
from ...results.measures import MEASURES
from ..theory import figures as theory_figures
from ..theory.verdicts import verdicts as judge_study
from .draw import caption, columns_of, draw
from .findings import Finding
from .judge import KINDS, Verdict, broken, judged, mark_of, said
from .panel_results import Results, together
from .plan import Plan
from .tuning_record import in_words

PAPERS = {"fedalign": "FedALIGN (Prioritized FL)", "maxfl": "MaxFL (Global Model Appeal)"}
CLAIMS = """\
# What the papers claim, and what came out

Every claim of the two papers, in our words, held against runs on matched seeds; where it says so,
a claim of our own. This page is made by `muster reproduce --pages` from the small files in
`experiments/results`; no verdict or number in it is written by hand. The figures are in
[the gallery](gallery.md); [reproduce.md](reproduce.md) says how to run an experiment again.

**In one cell** (one panel, one place of a sweep, one opponent) a claim that A is above B *holds*
where the 95 % interval of the paired difference (seed by seed, Student's t) lies above zero, or
above the margin that is claimed. Where it lies below zero it is the *opposite*; where it lies below
a margin that is claimed, *less than claimed*; where both sides come to the same number in every
seed, *equal*; else *undecided*. "As high" and "the same" are claims with a margin that is allowed:
they hold where the interval lies within it. A seed that diverged leaves its cell undecided. Where
both sides were one and the same run in every seed, because nobody was admitted or two settings let
the same clients in, a claim that one is above the other is not put to the test: *no test*, which
counts neither for it nor against it. A claim without any other cell is *not tested*.

**A claim of several cells** *holds* where it holds in every one of them. Where it holds in some,
*holds when ...* names those that stand up to Holm's correction over the claim's cells, and *mixed*
says that others speak against it; cells marked *by itself* are clear alone and not among so many.
So a claim that is not so seems to hold by chance in at most one case of forty, whatever its number
of cells, if differences are normal; from claim to claim nothing is corrected. Runs from which
everybody may leave are not normal: some end with nobody, and a few seeds of them say little. In how
many runs that was stands with each cell.

In the glance, *holds in* counts the cells that the verdict names, of those that test a claim; those
that are clear only by themselves are counted apart.

Numbers are mean ± half-width of the 95 % interval. What it covers stands with each panel
([more](report.md#what-an-interval-covers)). Where seeds draw new data, verdicts are about such
data. Where they deal the same rows to clients again, verdicts are about other deals and other runs
on that data set, and not about other rows. Where they split the same rows again, intervals are
corrected for it.

Verdicts are those of the kept files. Run again on another machine, runs on FMNIST come to the same
numbers to 1e-6. Runs on SYNTH at a learning rate of 0.1 do not: there rounding in the last bit,
which differs between processors, is amplified from round to round, and single runs end elsewhere.
"""
GALLERY = """\
# Gallery: every figure, drawn from the kept results

Made by `muster reproduce --pages`. Lines and points are means over the seeds. Bars are 95 %
intervals, and so are bands, left out where more than {banded} methods share a panel; those of
shares end at 0 and 1. Where an axis says a difference, it is paired, seed by seed. On a map it is
blue where the first method is better, red where it is worse, starred where its interval excludes 0.
What each figure says about the papers' claims is in [the claims ledger](claims.md).
"""
EARLIER = "of an earlier version of its file"


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
    """What must be so and is not. Checks of panels that were not run yet are left for later."""
    found = [v for v in verdicts(plan, results) if v.id in plan.sure and v.word != "holds"]
    later = {*plan.own} - {*results.made}
    due = [check for check in plan.checks if not check.panels or {*check.panels} - later]
    return [f"{v.says} ({v.numbers}: {v.word})" for v in found] + [
        fault for check in due for fault in broken(check, results.frame, results.keys)
    ]


def claims_page(plans: Sequence[Plan], folder: Path) -> str:
    """docs/claims.md: all verdicts at a glance, then every experiment with its numbers."""
    found = {plan.id: together(plan, folder) for plan in plans}
    every = {plan.id: verdicts(plan, found[plan.id]) for plan in plans}
    glance, details = [], []
    for paper, title in PAPERS.items():
        mine = [plan for plan in plans if plan.paper == paper]
        glance.append(f"## {title} at a glance\n\n{at_a_glance({p.id: every[p.id] for p in mine})}")
        details.append(f"## {title}\n")
        details += [section(plan, found[plan.id], every[plan.id]) for plan in mine]
    return "\n".join(
        [CLAIMS, counts([v for some in every.values() for v in some]), *glance, *details]
    )


def counts(every: Sequence[Verdict]) -> str:
    """How many claims came to what: those of the papers by runs and by theory, and our own."""
    groups = {
        "of the papers, by runs": [v for v in every if not ours(v) and not v.numbers],
        "of the papers, by theory": [v for v in every if not ours(v) and v.numbers],
        "our own": [v for v in every if ours(v)],
    }
    rows = [f"| {len(every)} claims | {' | '.join(KINDS)} |", "|---|" + "---|" * len(KINDS)]
    for name, mine in groups.items():
        number = Counter(v.kind for v in mine)
        rows.append(f"| {len(mine)} {name} | {' | '.join(str(number[kind]) for kind in KINDS)} |")
    return "\n".join(rows) + "\n"


def ours(verdict: Verdict) -> bool:
    """Whether a claim is none of the papers'."""
    return verdict.where.startswith("our own")


def at_a_glance(every: dict[str, list[Verdict]]) -> str:
    """One line for each claim: what it says, what came of it, and in how many of its cells."""
    rows = ["| experiment | verdict | holds in | claim |", "|---|---|---|---|"]
    for id, found in every.items():
        for v in found:
            whose = " *(ours)*" if ours(v) else ""
            rows.append(row(f"[{id}](#{id})", f"**{v.kind}**", v.tally, v.says + whose))
    return "\n".join(rows) + "\n"


def row(*cells: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def section(plan: Plan, results: Results | None, found: Sequence[Verdict]) -> str:
    """An experiment: what was run, each claim with its verdict, and the numbers of every cell."""
    parts = [
        f'<a id="{plan.id}"></a>\n\n### {plan.id}: {plan.title}\n',
        f"{plan.where}. {plan.notes}".strip() + "\n",
        ran(plan, results),
        ledger(found),
        cell_table(found),
    ]
    return "\n".join(part for part in parts if part)


def ledger(found: Sequence[Verdict]) -> str:
    """Claims with their verdicts as a table, numbered; what the paper prints where that is known,
    and the numbers of the theory, which has no cells."""
    printed, told = any(v.printed for v in found), any(v.numbers for v in found)
    heads = ["", "claim", "in the paper", *["printed"] * printed, *["numbers"] * told, "verdict"]
    rows = [row(*heads), "|" + "---|" * len(heads)]
    for n, v in enumerate(found, 1):
        verdict = f"**{v.word}**" + (f": {v.needs}" if v.needs else "")
        middle = [*[v.printed] * printed, *[v.numbers] * told]
        rows.append(row(str(n), v.says, v.where, *middle, verdict))
    return "\n".join(rows) + "\n"


def cell_table(found: Sequence[Verdict]) -> str:
    """Both sides and their difference in every cell of every claim."""
    cells = [(n, f, v.findings) for n, v in enumerate(found, 1) for f in v.findings]
    if not cells:
        return ""
    part = any(f.took_part for _, f, _ in cells)
    heads = ["claim", "cell", "measure", "left", "right", "difference", "seeds", "",
             *["who took part (left / right)"] * part]  # fmt: skip
    rows = [row(*heads), "|" + "---|" * len(heads)]
    for n, f, among in cells:
        scale = MEASURES[f.measure].scale
        left, right = (
            f"{name} {fixed(side, scale)}".strip()
            for name, side in zip(f.names, (f.left, f.right), strict=True)
        )
        where = said({k: v for k, v in f.cell.items() if k != "against"}, among)
        gap, mark = fixed(f.gap, scale, signed=True), mark_of(f, among)
        rows.append(
            row(str(n), where, MEASURES[f.measure].head, left, right, gap, str(f.seeds), mark,
                *[f.took_part] * part)
        )  # fmt: skip
    return "\n".join(rows) + "\n"


def line_of(finding: Finding, among: Sequence[Finding], marked: bool = True) -> str:
    """One cell's numbers in a line, with what they came to."""
    where, scale = said(finding.cell, among), MEASURES[finding.measure].scale
    left, right = fixed(finding.left, scale), fixed(finding.right, scale)
    text = f"{left} against {right}: {fixed(finding.gap, scale, signed=True)}"
    mark = f" ({mark_of(finding, among)})" if marked else ""
    return f"{where + ': ' if where else ''}{text}, {finding.seeds} seeds{mark}"


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
    """What was run, as a list."""
    if results is None:
        return "Not run here.\n"
    panels = [name for name in plan.own if name in results.made]
    lines = panels_ran(plan, results)
    old = set(results.outdated(plan))
    lines += [
        f"{name}: at full size" + (" (of an earlier version of its code)" if name in old else "")
        for name in results.studies
    ]
    lines += [
        f"the runs of {id}" + (f" ({EARLIER})" if id in results.earlier else "") for id in plan.uses
    ]
    left = {name: f"muster reproduce {plan.id}" for name in plan.own if name not in panels}
    lines += [f"{name}: not run (`{how}`)" for name, how in (left | results.missing).items()]
    return "Run here:\n\n" + "\n".join(f"- {line}" for line in lines) + "\n"


def panels_ran(plan: Plan, results: Results) -> list[str]:
    """A line for each panel of this experiment that was run."""
    return [panel_ran(plan, name, results) for name in plan.own if name in results.made]


def panel_ran(plan: Plan, name: str, results: Results) -> str:
    """What was run of one panel."""
    frame, made = results.frame.filter(pl.col("panel") == name), results.made[name]
    rounds, seeds = int(frame["round"].to_numpy().max()), frame["seed"].n_unique()
    less = plan.panel(name, made.size).less
    size = f"; smaller than the file's full size ({compact(less)})" if less else ""
    if name in results.outdated(plan):  # the file does not tell of its size any more
        size = f" ({EARLIER})"
    data = f"; {made.data}" if made.data else ""
    over = variation_in(frame).describe(seeds)
    return f"{name}: {rounds} rounds, {over}{size}{data}{in_words(made.tuning)}"


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
        parts.append(f"## {plan.id}: {plan.title}\n\n{plan.where}. {ran(plan, results)}")
        for path, words in figures(plan, results, docs / "gallery").items():
            parts.append(
                f"![{plan.id}: {words}]({path.relative_to(docs).as_posix()})\n\n*{words}*\n"
            )
    return "\n".join(parts)


def figures(plan: Plan, results: Results, folder: Path) -> dict[Path, str]:
    """Every figure of an experiment, drawn, each with its caption."""
    drawn = {
        draw(drawing, results.frame, folder / f"{plan.id}-{i}.png", results.keys): caption(
            drawing, results.frame
        )
        for i, drawing in enumerate(plan.drawings, 1)
        if columns_of(drawing, results.frame)
    }
    return drawn | {
        theory_figures.draw(studied, folder / f"{plan.id}-{name}.png"): f"{plan.title}: {name}."
        for name, studied in results.studies.items()
    }
