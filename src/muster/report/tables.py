"""Terminal tables of a run and of a comparison.

Labels, names and notes come from users: they are printed as they are, never as markup.
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
from ..results.privacy_statement import state_privacy
from ..results.run import Run
from ..results.run_warnings import strip_numbers
from ..tasks.scores import get_score
from .gains import describe_work, serves_own
from .intervals import (
    Runs,
    all_priority,
    all_runs,
    choose_measures,
    coverage_notes,
    describe_scope,
    summary,
)
from .table_layout import Column, TerminalTable

COSTS = find_measures("admitted_nonpriority, silent, bytes_up, bytes_down")
GUESS = {"train_accuracy": "majority_accuracy", "test_accuracy": "majority_test_accuracy"}


def comparison_tables(
    runs: Runs, rounds: Sequence[int], measures: str | Iterable[str] = ()
) -> list[RenderableType]:
    """Return the tables of a comparison, methods down and measures across, and the notes below.

    The tables are the means, the paired differences to the first method, and the costs. They show
    the first measure after every round of `rounds`, the others after the last.
    """
    chosen = choose_measures(runs, measures)
    frame = summary(runs, rounds, [m.name for m in chosen])
    first, *others = runs
    wanted = [(round, chosen[0]) for round in rounds] + [(rounds[-1], m) for m in chosen[1:]]
    means, differences = [], []
    for round, m in wanted:
        here = frame.filter(pl.col("round") == round, pl.col("measure") == m.name)
        rows = {row["method"]: row for row in here.iter_rows(named=True)}
        head = f"{m.head} @{round}"
        means.append(Column(head, [format_mean(row, m.scale) for row in rows.values()]))
        cells = [format_difference(rows[label], m.scale) for label in others]
        differences.append(Column(head, cells))
    average = [pl.col(m.name).mean() * m.scale for m in COSTS]
    spent = [
        pl.concat([run.rounds.select(m.name for m in COSTS) for run in mine]).select(average).row(0)
        for mine in runs.values()
    ]
    costs = [Column(m.head, [f"{row[i]:.1f}" for row in spent]) for i, m in enumerate(COSTS)]
    own = [serves_own(mine[0]) for mine in runs.values()]  # each trains alone: nobody is admitted
    admitted = zip(costs[0].cells, own, strict=True)
    costs[0] = Column(costs[0].head, ["-" if alone else cell for cell, alone in admitted])
    every_run = all_runs(runs)
    whose = "" if all(map(all_priority, every_run)) else "priority clients' "
    over = f"mean ± 95 %, {describe_scope(runs)}"
    title = over if measures else f"{whose}{_describe_measures(chosen)}: {over}"
    labels = [Column("method", list(runs))]
    tables: list[RenderableType] = [TerminalTable(title, labels, means)]
    if others:
        title = f"paired difference to {first} (* : the interval excludes 0)"
        tables.append(TerminalTable(title, [Column("method", others)], differences))
    tables.append(TerminalTable("average per round", labels, costs))
    notes = [*coverage_notes(runs), *baseline_notes(every_run), *epsilon_notes(runs)]
    notes += privacy_notes(runs)
    notes += describe_work(every_run)
    notes += data_notes(every_run)
    return [*tables, *map(Text, notes), *format_warnings(list_warnings(runs))]


def _describe_measures(measures: Sequence[Measure]) -> str:
    score = next((m.score for m in measures if m.score), "")
    held_out = get_score(score).title if score else "loss"
    tested = any(m.is_held_out for m in measures)
    return f"test {held_out} and training loss" if tested else "training loss"


def data_notes(runs: Iterable[Run]) -> list[str]:
    """Return the notes about the data of these runs, without repetition."""
    return [f"data: {note}" for note in dict.fromkeys(run.note for run in runs) if note]


def baseline_notes(runs: Sequence[Run]) -> list[str]:
    """Return a line with the accuracy of the most frequent class, to compare accuracies with."""
    known = [r.facts["majority_test_accuracy"] for r in runs if "majority_test_accuracy" in r.facts]
    if not known:
        return []
    low, high = min(known), max(known)
    span = f"{low:.3f}" if f"{low:.3f}" == f"{high:.3f}" else f"{low:.3f} to {high:.3f}"
    return [f"always answering the most frequent class: test accuracy {span}"]


def epsilon_notes(runs: Runs) -> list[str]:
    """Return a line for each method whose epsilon was chosen, with the choice of each seed."""
    chosen = {
        label: [f"{run.facts['epsilon']:.3g}" for run in mine if "epsilon" in run.facts]
        for label, mine in runs.items()
    }
    return [
        f"{label}: epsilon {', '.join(dict.fromkeys(values))}, chosen by 4-fold cross-validation"
        for label, values in chosen.items()
        if values
    ]


def privacy_notes(runs: Runs) -> list[str]:
    """Return a line for each method whose runs are private, or would be with secret noise."""
    stated = {
        label: dict.fromkeys(text for run in mine if (text := state_privacy(run.facts)))
        for label, mine in runs.items()
    }
    return [f"{label}: {text}" for label, texts in stated.items() for text in texts]


def format_warnings(warnings: Iterable[str]) -> list[Text]:
    """Format warnings for a terminal."""
    return [Text(f"warning: {warning}", style="bold red") for warning in warnings]


def list_warnings(runs: Runs) -> list[str]:
    """Return the warnings of these runs, each once with the methods and the number of seeds it is
    about, and with the numbers of the first of them."""
    found: dict[str, dict[str, list[tuple[int, str]]]] = {}
    for label, mine in runs.items():
        for run in mine:
            for warning in run.warnings:
                found.setdefault(strip_numbers(warning), {}).setdefault(label, []).append(
                    (run.seed, warning)
                )
    lines = []
    for methods in found.values():
        who = ", ".join(
            label + _seed_count(len(w), len(runs[label])) for label, w in methods.items()
        )
        first, (seed, warning) = next((label, w[0]) for label, w in methods.items())
        of = [first] if len(methods) > 1 else []
        of += [f"seed {seed}"] if len(runs[first]) > 1 else []
        numbers = f" (numbers of {', '.join(of)})" if of and re.search(r"\d", warning) else ""
        lines.append(f"{who}: {warning}{numbers}")
    return lines


def _seed_count(n: int, of: int) -> str:
    return "" if n == of else f" ({n} of {plural(of, 'seed')})"


def format_mean(row: Mapping[str, Any], scale: float) -> str:
    """Format the mean of a summary's row with its interval."""
    return _format_pair(row["mean"], row["half"], scale)


def format_difference(row: Mapping[str, Any], scale: float) -> str:
    """Format a paired difference with its interval, and a star where the interval excludes 0."""
    difference = _format_pair(row["difference"], row["difference_half"], scale, "+")
    return difference + ("*" if row["clear"] else " ")


def _format_pair(mean: float | None, half: float | None, scale: float, sign: str = "") -> str:
    if mean is None:
        return "-"
    value = f"{mean * scale:{sign}.3f}"
    return value if half is None else f"{value}±{half * scale:.3f}"


def run_table(run: Run, measures: str | Iterable[str] = ()) -> RenderableType:
    """Return the table of one run after its last round, by the measures named or all it has, and
    the notes below."""
    last = run.rounds.row(-1, named=True)
    title = f"{run.method}, seed {run.seed}, {run.engine} engine: round {last['round']}"
    table = Table()
    table.add_column("measure", overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    measured = [m for m in MEASURES.values() if m.of is not None and last.get(m.name) is not None]
    for measure in find_measures(measures) if measures else measured:
        value = last.get(measure.name)
        name = measure.name if measure.scale == 1 else measure.head
        cell = "-" if value is None else f"{value * measure.scale:.4f}"
        table.add_row(Text(name.replace("_", " ")), cell)
        guess = run.facts.get(GUESS.get(measure.name, ""))
        if guess is not None:
            majority = run.facts.get("majority_class")
            answer = "the majority class" if majority is None else f"'{majority}'"
            table.add_row(Text(f"... always answering {answer}"), f"{guess:.4f}")
    totals = run.rounds.select(
        pl.col("admitted_nonpriority", "silent").mean(),
        pl.col("bytes_up", "bytes_down").sum() / 1e6,
        pl.col("seconds").sum(),
    ).row(0)
    names = ("others admitted per round", "silent per round", "upload MB", "download MB", "seconds")
    for name, value in zip(names, totals, strict=True):
        table.add_row(name, f"{value:.2f}")
    for name in (name for name in last if name.startswith("epsilon_")):
        table.add_row(name.replace("_", ", "), f"{last[name]:.4f}")
    if len(run.moves):
        table.add_row("times a client left", str(run.rounds["left"].sum()))
        table.add_row("times a client returned", str(run.rounds["returned"].sum()))
    if len(run.attackers):
        weight, honest = run.attackers.select(pl.col("weight", "honest_weight").mean()).row(0)
        table.add_row("an attacker's weight in a step", f"{weight:.4f}")
        table.add_row("... if it were honest", f"{honest:.4f}")
    reason = run.facts.get("engine_why")
    return Group(
        Text(title, style="table.title"),
        table,
        *([Text(f"{run.engine} engine: {reason}")] if reason else []),
        *map(Text, epsilon_notes({run.method: [run]})),
        *map(Text, privacy_notes({run.method: [run]})),
        *map(Text, [*describe_work([run]), *data_notes([run])]),
        *format_warnings(list_warnings({run.method: [run]})),
    )
