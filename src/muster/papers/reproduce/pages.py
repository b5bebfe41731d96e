"""The pages docs/claims.md and docs/gallery.md, made from the results in `experiments/results`. No
row of either is written by hand.
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
from ...report.curves import MAX_BANDS
from ...report.intervals import Interval, read_variation
from ...results.measures import MEASURES
from ..theory import figures as theory_figures
from ..theory.verdicts import verdicts as judge_study
from .draw import draw_figure, list_columns, write_caption
from .findings import Finding
from .judge import KINDS, Verdict, describe_cell, describe_outcome, find_failures, judge
from .panel_results import Results, describe_tuning, load_results
from .paper_experiment import PaperExperiment

PAPERS = {"fedalign": "FedALIGN (Prioritized FL)", "maxfl": "MaxFL (Global Model Appeal)"}
CLAIMS = """\
# The papers' claims and our results

Every claim of the two papers, in our words, compared with runs on matched seeds; claims of our own
are marked. This page is made by `muster reproduce --pages` from the small files in
`experiments/results`; no verdict or number in it is written by hand. The figures are in
[the gallery](gallery.md); [reproduce.md](reproduce.md) explains how to run an experiment again.

**In one cell** (one panel, one place of a sweep, one opponent) a claim that A is above B *holds*
if the 95 % interval of the paired difference (seed by seed, Student's t) lies above zero, or above
the claimed margin. If it lies below zero it is the *opposite*; if it lies below a claimed margin,
*less than claimed*; if both sides have the same number in every seed, *equal*; else *undecided*.
"As high" and "the same" are claims with an allowed margin: they hold if the interval lies within
it. A seed that diverged leaves its cell undecided. If both sides were the same run in every seed,
or in all but one, because nobody was admitted or two settings admitted the same clients, a claim
that one is above the other is not tested: *no test*, which counts neither for it nor against it. A
claim without any other cell is *not tested*.

**A claim of several cells** *holds* if it holds in every one of them. If it holds in some, *holds
when ...* names those that pass Holm's correction over the claim's cells, and *mixed* means that
others contradict it; cells marked *by itself* are clear alone but do not pass the correction. So a
false claim appears to hold by chance in at most one case of forty, whatever its number of cells, if
differences are normal; there is no correction across claims. Runs that clients may leave are not
normal: some end with no clients, and a few seeds of them decide little. Each cell states in how
many runs that happened.

In the overview, *holds in* counts the cells that the verdict names, of those that test a claim;
those that are clear only by themselves are counted separately.

Numbers are mean ± half-width of the 95 % interval. Each panel states what the interval covers
([more](report.md#what-an-interval-covers)). Where seeds draw new data, verdicts are about such
data. Where they deal the same rows to clients again, verdicts are about other deals and other runs
on that data set, and not about other rows. Where they split the same rows again, intervals are
corrected for it.

Verdicts are those of the saved results. On another machine, runs on FMNIST give the same numbers to
1e-6. Runs on SYNTH at a learning rate of 0.1 do not: there rounding in the last bit, which differs
between processors, is amplified from round to round, and single runs end differently.
"""
GALLERY = """\
# Gallery: every figure, drawn from the saved results

Provenance by `muster reproduce --pages`. Lines and points are means over the seeds. Bars are 95 %
intervals, and so are bands, left out where more than {banded} methods share a panel; those of
shares end at 0 and 1. A difference on an axis is paired, seed by seed. On a map it is blue where
the first method is better, red where it is worse, starred where its interval excludes 0. The
verdicts on the papers' claims are in [the claims page](claims.md).
"""
EARLIER = "of an earlier version of its file"


def judge_claims(experiment: PaperExperiment, results: Results | None) -> list[Verdict]:
    """Return the verdict on every claim of an experiment."""
    frame, keys = (None, []) if results is None else (results.frame, results.keys)
    needs = f"`muster reproduce {experiment.id}`"
    found = [judge(claim, frame, keys, needs) for claim in experiment.claims]
    for study in [] if results is None else results.studies.values():
        for v in judge_study(study):
            found.append(
                Verdict(v["id"], v["says"], v["where"], v["verdict"], numbers=v["numbers"])
            )
    return found


def find_faults(experiment: PaperExperiment, results: Results) -> list[str]:
    """Return the checks that fail. Those of panels that were not run yet are left for later."""
    found = [
        v
        for v in judge_claims(experiment, results)
        if v.id in experiment.sure and v.word != "holds"
    ]
    later = {*experiment.panel_tables} - {*results.provenance}
    due = [check for check in experiment.checks if not check.panels or {*check.panels} - later]
    return [f"{v.says} ({v.numbers}: {v.word})" for v in found] + [
        fault for check in due for fault in find_failures(check, results.frame, results.keys)
    ]


def claims_page(experiments: Sequence[PaperExperiment], folder: Path) -> str:
    """Return docs/claims.md: all verdicts in an overview, then every experiment with its
    numbers."""
    found = {experiment.id: load_results(experiment, folder) for experiment in experiments}
    every = {
        experiment.id: judge_claims(experiment, found[experiment.id]) for experiment in experiments
    }
    glance, details = [], []
    for paper, title in PAPERS.items():
        mine = [experiment for experiment in experiments if experiment.paper == paper]
        glance.append(
            f"## {title} at a glance\n\n{overview_table({p.id: every[p.id] for p in mine})}"
        )
        details.append(f"## {title}\n")
        details += [
            section(experiment, found[experiment.id], every[experiment.id]) for experiment in mine
        ]
    return "\n".join(
        [CLAIMS, count_verdicts([v for some in every.values() for v in some]), *glance, *details]
    )


def count_verdicts(every: Sequence[Verdict]) -> str:
    """Count the verdicts: on claims of the papers by runs and by theory, and on our own."""
    groups = {
        "of the papers, by runs": [v for v in every if not is_ours(v) and not v.numbers],
        "of the papers, by theory": [v for v in every if not is_ours(v) and v.numbers],
        "our own": [v for v in every if is_ours(v)],
    }
    rows = [f"| {len(every)} claims | {' | '.join(KINDS)} |", "|---|" + "---|" * len(KINDS)]
    for name, mine in groups.items():
        number = Counter(v.kind for v in mine)
        rows.append(f"| {len(mine)} {name} | {' | '.join(str(number[kind]) for kind in KINDS)} |")
    return "\n".join(rows) + "\n"


def is_ours(verdict: Verdict) -> bool:
    """True if a claim is our own and not of a paper."""
    return verdict.where.startswith("our own")


def overview_table(every: dict[str, list[Verdict]]) -> str:
    """Return one line for each claim: the claim, its verdict, and in how many cells it holds."""
    rows = ["| experiment | verdict | holds in | claim |", "|---|---|---|---|"]
    for id, found in every.items():
        for v in found:
            whose = " *(ours)*" if is_ours(v) else ""
            rows.append(table_row(f"[{id}](#{id})", f"**{v.kind}**", v.tally, v.says + whose))
    return "\n".join(rows) + "\n"


def table_row(*cells: str) -> str:
    """Return a row of a table."""
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def section(experiment: PaperExperiment, results: Results | None, found: Sequence[Verdict]) -> str:
    """Return an experiment's section: its runs, each claim with its verdict, and every cell."""
    parts = [
        f'<a id="{experiment.id}"></a>\n\n### {experiment.id}: {experiment.title}\n',
        f"{experiment.where}. {experiment.notes}".strip() + "\n",
        describe_runs(experiment, results),
        claims_table(found),
        cell_table(found),
    ]
    return "\n".join(part for part in parts if part)


def claims_table(found: Sequence[Verdict]) -> str:
    """Return the numbered claims with their verdicts as a table; the paper's numbers where they are
    known, and the numbers of the theory, which has no cells."""
    printed, numbers = any(v.printed for v in found), any(v.numbers for v in found)
    heads = ["", "claim", "in the paper", *["printed"] * printed, *["numbers"] * numbers, "verdict"]
    rows = [table_row(*heads), "|" + "---|" * len(heads)]
    for n, v in enumerate(found, 1):
        verdict = f"**{v.word}**" + (f": {v.needs}" if v.needs else "")
        middle = [*[v.printed] * printed, *[v.numbers] * numbers]
        rows.append(table_row(str(n), v.says, v.where, *middle, verdict))
    return "\n".join(rows) + "\n"


def cell_table(found: Sequence[Verdict]) -> str:
    """Return both sides and their difference in every cell of every claim, as a table."""
    cells = [(n, f, v.findings) for n, v in enumerate(found, 1) for f in v.findings]
    if not cells:
        return ""
    part = any(f.participation for _, f, _ in cells)
    heads = [
        "claim",
        "cell",
        "measure",
        "left",
        "right",
        "difference",
        "seeds",
        "",
        *["who took part (left / right)"] * part,
    ]
    rows = [table_row(*heads), "|" + "---|" * len(heads)]
    for n, f, among in cells:
        scale = MEASURES[f.measure].scale
        left, right = (
            f"{name} {format_interval(side, scale)}".strip()
            for name, side in zip(f.names, (f.left, f.right), strict=True)
        )
        where = describe_cell({k: v for k, v in f.cell.items() if k != "against"}, among)
        gap, mark = format_interval(f.gap, scale, signed=True), describe_outcome(f, among)
        rows.append(
            table_row(
                str(n),
                where,
                MEASURES[f.measure].head,
                left,
                right,
                gap,
                str(f.seeds),
                mark,
                *[f.participation] * part,
            )
        )
    return "\n".join(rows) + "\n"


def format_finding(finding: Finding, among: Sequence[Finding], marked: bool = True) -> str:
    """Return one cell's numbers in a line, with their outcome."""
    where, scale = describe_cell(finding.cell, among), MEASURES[finding.measure].scale
    left, right = format_interval(finding.left, scale), format_interval(finding.right, scale)
    text = f"{left} against {right}: {format_interval(finding.gap, scale, signed=True)}"
    mark = f" ({describe_outcome(finding, among)})" if marked else ""
    return f"{where + ': ' if where else ''}{text}, {finding.seeds} seeds{mark}"


def format_interval(interval: Interval, scale: float = 1.0, signed: bool = False) -> str:
    """Format an interval in few digits.

    >>> format_interval(Interval(0.91234, 0.0123))
    '.912 ± .012'
    >>> format_interval(Interval(10.25, 0.1), signed=True)
    '+10.250 ± .100'
    """
    mean, half = interval.mean * scale, interval.half * scale
    text = drop_zero(f"{mean:+.3f}" if signed else f"{mean:.3f}")
    return text if math.isnan(half) else f"{text} ± {drop_zero(f'{half:.3f}')}"


def drop_zero(number: str) -> str:
    """Drop the zero before a number's point.

    >>> drop_zero("-0.5"), drop_zero("10.25")
    ('-.5', '10.25')
    """
    return re.sub(r"^([+-]?)0\.", r"\1.", number)


def describe_runs(experiment: PaperExperiment, results: Results | None) -> str:
    """Return a list of what was run."""
    if results is None:
        return "Not run here.\n"
    panels = [name for name in experiment.panel_tables if name in results.provenance]
    lines = describe_panels(experiment, results)
    old = set(results.outdated_parts(experiment))
    lines += [
        f"{name}: at full size" + (" (of an earlier version of its code)" if name in old else "")
        for name in results.studies
    ]
    lines += [
        f"the runs of {id}" + (f" ({EARLIER})" if id in results.earlier else "")
        for id in experiment.uses
    ]
    left = {
        name: f"muster reproduce {experiment.id}"
        for name in experiment.panel_tables
        if name not in panels
    }
    lines += [f"{name}: not run (`{how}`)" for name, how in (left | results.missing).items()]
    return "Run here:\n\n" + "\n".join(f"- {line}" for line in lines) + "\n"


def describe_panels(experiment: PaperExperiment, results: Results) -> list[str]:
    """Return a line for each panel of this experiment that was run."""
    return [
        describe_panel(experiment, name, results)
        for name in experiment.panel_tables
        if name in results.provenance
    ]


def describe_panel(experiment: PaperExperiment, name: str, results: Results) -> str:
    """Return a line on the runs of one panel."""
    frame, made = results.frame.filter(pl.col("panel") == name), results.provenance[name]
    rounds, seeds = int(frame["round"].to_numpy().max()), frame["seed"].n_unique()
    less = experiment.panel(name, made.size).less
    size = f"; smaller than the file's full size ({format_settings(less)})" if less else ""
    if name in results.outdated_parts(experiment):  # the file no longer describes this size
        size = f" ({EARLIER})"
    data = f"; {made.data}" if made.data else ""
    over = read_variation(frame).describe(seeds)
    return f"{name}: {rounds} rounds, {over}{size}{data}{describe_tuning(made.tuning)}"


def format_settings(table: Table) -> str:
    """Format a table of settings in one line, without those that every size sets.

    >>> format_settings({"rounds": 20, "seeds": 3, "data": {"clients": 12}})
    '`data.clients = 12`'
    """
    flat = [
        f"{key} = {value}"
        for key, value in flatten(table)
        if key not in ("rounds", "seeds", "evaluate_every")
    ]
    return f"`{', '.join(flat)}`" if flat else "fewer rounds or seeds"


def flatten(table: Table, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every setting of a table by its dotted key."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def gallery_page(experiments: Sequence[PaperExperiment], folder: Path, docs: Path) -> str:
    """Return docs/gallery.md, and draw its figures next to it."""
    parts = [GALLERY.format(banded=MAX_BANDS)]
    for experiment in experiments:
        results = load_results(experiment, folder)
        if results is None:
            continue
        runs = describe_runs(experiment, results)
        parts.append(f"## {experiment.id}: {experiment.title}\n\n{experiment.where}. {runs}")
        for path, words in draw_figures(experiment, results, docs / "gallery").items():
            parts.append(
                f"![{experiment.id}: {words}]({path.relative_to(docs).as_posix()})\n\n*{words}*\n"
            )
    return "\n".join(parts)


def draw_figures(experiment: PaperExperiment, results: Results, folder: Path) -> dict[Path, str]:
    """Draw every figure of an experiment; return each path with its caption."""
    drawn = {
        draw_figure(
            drawing, results.frame, folder / f"{experiment.id}-{i}.png", results.keys
        ): write_caption(drawing, results.frame)
        for i, drawing in enumerate(experiment.drawings, 1)
        if list_columns(drawing, results.frame)
    }
    return drawn | {
        theory_figures.draw(
            study, folder / f"{experiment.id}-{name}.png"
        ): f"{experiment.title}: {name}."
        for name, study in results.studies.items()
    }
