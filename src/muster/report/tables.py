"""Tables: what a run or a comparison came to, as a person reads it in a terminal.

Labels, names and notes come from users: they are printed as they are, never read as markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..base.errors import plural
from ..base.lazy import pl
from ..results.measures import MEASURES, Measure, find_measures
from ..results.run import Run
from ..results.run_warnings import strip_numbers
from ..tasks.scores import get_score
from .intervals import Runs, compared, covered, every, for_everyone, summary
from .table_layout import Column, Fitted

COSTS = find_measures("admitted_nonpriority, silent, bytes_up, bytes_down")
GUESS = {"train_accuracy": "majority_accuracy", "test_accuracy": "majority_test_accuracy"}


def comparison_tables(
    runs: Runs, rounds: Sequence[int], measures: str | Iterable[str] = ()
) -> list[RenderableType]:
    """Methods down, measures across: the means, the differences to the first method, and what it
    took. The first measure after every round of `rounds`, the others after the last. Then what is
    to be said of the data."""
    shown = compared(runs, measures)
    frame = summary(runs, rounds, [m.name for m in shown])
    first, *others = runs
    wanted = [(round, shown[0]) for round in rounds] + [(rounds[-1], m) for m in shown[1:]]
    means, gaps = [], []
    for round, m in wanted:
        here = frame.filter(pl.col("round") == round, pl.col("measure") == m.name).with_columns(
            pl.col("mean", "half", "difference", "difference_half") * m.scale
        )
        rows = {row["method"]: row for row in here.iter_rows(named=True)}
        head = f"{m.head} @{round}"
        means.append(Column(head, [_pair(r["mean"], r["half"]) for r in rows.values()]))
        gaps.append(Column(head, [_gap(rows[label]) for label in others]))
    spent = [pl.col(m.name).mean() * m.scale for m in COSTS]
    took = [pl.concat([r.rounds.select(m.name for m in COSTS) for r in mine]).select(spent).row(0)
            for mine in runs.values()]  # fmt: skip
    price = [Column(m.head, [f"{row[i]:.1f}" for row in took]) for i, m in enumerate(COSTS)]
    runs_all = every(runs)
    whose = "" if all(map(for_everyone, runs_all)) else "priority clients' "
    over = f"mean ± 95 %, {plural(len(runs[first]), 'seed')}"
    labels = [Column("method", list(runs))]
    tables: list[RenderableType] = [
        Fitted(over if measures else f"{whose}{_said(shown)}: {over}", labels, means)
    ]
    if others:
        about = f"paired difference to {first} (* : the interval excludes 0)"
        tables.append(Fitted(about, [Column("method", others)], gaps))
    tables.append(Fitted("a round, on average", labels, price))
    said = [*covered(runs), *baseline(runs_all), *notes(runs_all)]
    return [*tables, *map(Text, said), *_warnings(runs)]


def _said(shown: Sequence[Measure]) -> str:
    """What a table is of: the loss, and the score."""
    score = next((m.score for m in shown if m.score), "")
    return f"loss and {get_score(score).title}" if score else "loss"


def notes(runs: Iterable[Run]) -> list[str]:
    """What these results must say of their data, each thing once."""
    return [f"data: {note}" for note in dict.fromkeys(run.note for run in runs) if note]


def baseline(runs: Sequence[Run]) -> list[str]:
    """What accuracies are to be held against, over all seeds of the first method."""
    known = [r.facts["majority_test_accuracy"] for r in runs if "majority_test_accuracy" in r.facts]
    if not known:
        return []
    low, high = min(known), max(known)
    span = f"{low:.3f}" if f"{low:.3f}" == f"{high:.3f}" else f"{low:.3f} to {high:.3f}"
    return [f"always answering the most frequent class: test accuracy {span}"]


def _warnings(runs: Runs) -> list[Text]:
    return [Text(line, style="bold red") for line in warnings_of(runs)]


def warnings_of(runs: Runs) -> list[str]:
    """What is wrong with these runs, each thing once, with the methods and the seeds it is wrong
    in, and whose numbers stand for all."""
    found: dict[str, dict[str, list[tuple[int, str]]]] = {}
    for label, mine in runs.items():
        for run in mine:
            for sentence in run.warnings:
                found.setdefault(strip_numbers(sentence), {}).setdefault(label, []).append(
                    (run.seed, sentence)
                )
    lines = []
    for whose in found.values():
        who = ", ".join(label + _some(len(said), len(runs[label])) for label, said in whose.items())
        first, (seed, sentence) = next((label, said[0]) for label, said in whose.items())
        of = [first] if len(whose) > 1 else []
        of += [f"seed {seed}"] if len(runs[first]) > 1 else []
        numbers = f" (numbers of {', '.join(of)})" if of and re.search(r"\d", sentence) else ""
        lines.append(f"attention: {who}: {sentence}{numbers}")
    return lines


def _some(n: int, of: int) -> str:
    return "" if n == of else f" ({n} of {plural(of, 'seed')})"


def _pair(mean: float | None, half: float | None, sign: str = "") -> str:
    if mean is None:
        return "-"
    return f"{mean:{sign}.3f}" if half is None else f"{mean:{sign}.3f}±{half:.3f}"


def _gap(row: Mapping[str, Any]) -> str:
    """A paired difference with its interval, and a star where that excludes 0."""
    return _pair(row["difference"], row["difference_half"], "+") + ("*" if row["clear"] else " ")


def _engine(run: Run) -> list[Text]:
    """Why this engine ran."""
    why = run.facts.get("engine_why")
    return [Text(f"{run.engine} engine: {why}")] if why else []


def run_table(run: Run, measures: str | Iterable[str] = ()) -> RenderableType:
    """What one run came to, by the measures named or by all it took, and what is to be said of its
    data."""
    last = run.rounds.row(-1, named=True)
    about = f"{run.method}, seed {run.seed}, {run.engine} engine: round {last['round']}"
    table = Table()
    table.add_column("measure", overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    taken = [m for m in MEASURES.values() if m.of is not None and last.get(m.name) is not None]
    for measure in find_measures(measures) if measures else taken:
        value = last.get(measure.name)
        name = measure.name if measure.scale == 1 else measure.head
        shown = "-" if value is None else f"{value * measure.scale:.4f}"
        table.add_row(Text(name.replace("_", " ")), shown)
        guess = run.facts.get(GUESS.get(measure.name, ""))
        if guess is not None:
            most = run.facts.get("majority_class")
            what = "the majority class" if most is None else f"'{most}'"
            table.add_row(Text(f"... always answering {what}"), f"{guess:.4f}")
    totals = run.rounds.select(
        pl.col("admitted_nonpriority", "silent").mean(),
        pl.col("bytes_up", "bytes_down").sum() / 1e6,
        pl.col("seconds").sum(),
    ).row(0)
    names = ("others admitted a round", "silent a round", "upload MB", "download MB", "seconds")
    for name, value in zip(names, totals, strict=True):
        table.add_row(name, f"{value:.2f}")
    if len(run.moves):
        table.add_row("times a client left", str(run.rounds["left"].sum()))
        table.add_row("times one returned", str(run.rounds["returned"].sum()))
    if len(run.attackers):
        got, honest = run.attackers.select(pl.col("weight", "honest_weight").mean()).row(0)
        table.add_row("an attacker's share of a step", f"{got:.4f}")
        table.add_row("... had it been honest", f"{honest:.4f}")
    return Group(
        Text(about, style="table.title"),
        table,
        *_engine(run),
        *map(Text, notes([run])),
        *_warnings({run.method: [run]}),
    )
