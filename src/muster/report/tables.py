"""Reports: the table and the figure a person looks at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..run.result import Run
from .intervals import measures_of, summary

PANELS = {
    "loss": "priority training loss",
    "test_accuracy": "priority test accuracy",
    "gm_appeal": "share of clients the model appeals to",
    "admitted_nonpriority": "others admitted",
}

UNBOUNDED = ("loss", "admitted_nonpriority")  # the other panels are shares
MEASURES = (
    "loss",
    "train_accuracy",
    "test_accuracy",
    "mean_test_accuracy",
    "own_test_accuracy",
    "fairness",
    "gm_appeal",
    "gm_appeal_test",
    "gm_appeal_unseen",
    "preferred_accuracy",
)
COSTS = [
    pl.col("admitted_nonpriority", "silent"),
    pl.col("bytes_up", "bytes_down") / 1e3,
]
SHORT = {"test_accuracy": "test acc", "gm_appeal": "appeal", "gm_appeal_unseen": "unseen"}


def comparison_tables(
    runs: Mapping[str, Sequence[Run]], rounds: Sequence[int]
) -> list[RenderableType]:
    """Methods down, measures across: the means, the differences to the first method, and what it
    took. Three tables, so that each fits a narrow terminal; then what is to be said of the data."""
    frame = summary(runs, rounds)
    first = next(iter(runs))
    others = [m for m in measures_of(runs) if m != "loss"]
    wanted = [(round, "loss") for round in rounds] + [(rounds[-1], m) for m in others]
    heads = [f"{SHORT.get(m, m)} @{r}" for r, m in wanted]
    seeds = len(runs[first])
    means = _table(f"priority clients' loss and accuracy: mean ± 95 %, {seeds} seeds", heads)
    price = _table("a round, on average", ("others admitted", "silent", "upload kB", "download kB"))
    gaps = _table(f"paired difference to {first} (* : the interval excludes 0)", heads)
    for label, mine in runs.items():
        rows = [
            frame.row(
                by_predicate=(pl.col("method") == label)
                & (pl.col("round") == round)
                & (pl.col("measure") == measure),
                named=True,
            )
            for round, measure in wanted
        ]
        means.add_row(label, *(_pair(row["mean"], row["half"]) for row in rows))
        spent = pl.concat([r.rounds.select(COSTS) for r in mine]).mean().row(0)
        price.add_row(label, *(f"{value:.1f}" for value in spent))
        if label != first:
            marks = ["*" if row["clear"] else " " for row in rows]
            cells = [_pair(row["difference"], row["difference_half"], "+") for row in rows]
            gaps.add_row(label, *(c + m for c, m in zip(cells, marks, strict=True)))
    tables = [means, gaps, price] if len(runs) > 1 else [means, price]
    return [*tables, *_notes(run for mine in runs.values() for run in mine)]


def _notes(runs: Iterable[Run]) -> list[Text]:
    """What these results must say of their data, each thing once."""
    return [Text(f"data: {note}") for note in dict.fromkeys(run.note for run in runs) if note]


def _table(title: str, heads: Sequence[str]) -> Table:
    table = Table(
        title=title, box=SIMPLE_HEAD, title_justify="left", padding=(0, 1), pad_edge=False
    )
    table.add_column("method")
    for head in heads:
        table.add_column(head, justify="right")
    return table


def _pair(mean: float | None, half: float | None, sign: str = "") -> str:
    if mean is None:
        return "-"
    return f"{mean:{sign}.3f}" if half is None else f"{mean:{sign}.3f}±{half:.3f}"


def run_table(run: Run) -> RenderableType:
    """What one run came to, and what is to be said of its data."""
    last = run.rounds.row(-1, named=True)
    table = Table(
        title=f"{run.method}, seed {run.seed}, {run.engine} engine: round {last['round']}"
    )
    table.add_column("measure")
    table.add_column("value", justify="right")
    for name in MEASURES:
        if last.get(name) is not None:
            table.add_row(name.replace("_", " "), f"{last[name]:.4f}")
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
    return Group(table, *_notes([run]))
