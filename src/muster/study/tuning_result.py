"""A tuning: the scores of every candidate of every method, and the chosen ones.

On disk it is a folder with one comparison for each candidate, `tuning.parquet` with every score,
and `chosen.toml`, a configuration with the chosen settings of each method.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from ..base import rng
from ..base.checks import is_number
from ..base.errors import MusterError, plural
from ..base.lazy import pl
from ..federation import Variation
from ..report.intervals import Interval, correction_ratio
from ..report.table_layout import Column, TerminalTable
from ..report.tables import format_warnings
from ..results.measures import MEASURES
from .grid import Over, as_column, format_value, grid

Direction = Literal["max", "min"]
Candidate = Mapping[str, Any]  # values by key, as within the method's own table


@dataclass(frozen=True, eq=False)
class Tuning:
    """The scores of a tuning.

    Attributes:
        frame: one row for each method, candidate and seed: the candidate's number and settings, its
            `score`, `tied` (it shares the best mean score) and `chosen` (the best, and of several
            that are tied the first of the grid)
        chosen: the chosen settings, by method
        table: the configuration with them, ready to be compared on the reported seeds
        measure: measure of the score, on rows that candidates were not trained on
        direction: "max" if a higher score is better, "min" if a lower one is
        grids: number of candidates in each method's grid; if more than were tried, those were drawn
        warnings: warnings about runs, with the number of runs
        folder: folder of the tuning
        variation: variation between the validation seeds
    """

    frame: pl.DataFrame
    chosen: Mapping[str, Candidate]
    table: dict[str, Any]
    measure: str
    direction: Direction
    grids: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    folder: Path | None = None
    variation: Variation = Variation()

    def summary(self) -> pl.DataFrame:
        """Return one row for each method and candidate: its settings, and the mean of its score
        with the 95 % interval."""
        rows = []
        keys = [name for name in self.frame.columns if name not in OWN]
        ratio = correction_ratio(self.variation, MEASURES[self.measure])
        for _, mine in self.frame.group_by("method", "candidate", maintain_order=True):
            first = mine.row(0, named=True)
            scores = mine["score"].cast(pl.Float64).fill_null(np.nan).to_numpy()
            found = Interval.of(scores, ratio=ratio)
            head = {name: first[name] for name in ("method", "candidate", *keys, "tied", "chosen")}
            rows.append({**head, "seeds": len(mine), "mean": found.mean, "half": found.half})
        return pl.DataFrame(rows, infer_schema_length=None).fill_nan(None)

    def __rich__(self) -> RenderableType:
        better = "the highest" if self.direction == "max" else "the lowest"
        head = MEASURES[self.measure].head
        tables: list[RenderableType] = []
        summary = self.summary()
        keys = [name for name in self.frame.columns if name not in OWN]
        for (label,), mine in summary.group_by("method", maintain_order=True):
            own = [key for key in keys if mine[key].null_count() < len(mine)]
            settings = [
                ", ".join(f"{k} = {format_value(row[k])}" for k in own) or "as it is"
                for row in mine.iter_rows(named=True)
            ]
            scores = [
                "-" if m is None else f"{m:.4f}" if h is None else f"{m:.4f}±{h:.4f}"
                for m, h in mine.select("mean", "half").iter_rows()
            ]
            ties = int(mine["tied"].sum())
            stars = [
                ("chosen" + (f", the first of {ties} tied" if tied else ""))
                if chosen
                else ("as good" if tied else "")
                for chosen, tied in mine.select("chosen", "tied").iter_rows()
            ]
            seeds = plural(int(mine["seeds"][0]), "validation seed")
            every = self.grids.get(str(label), len(mine))
            tried = f"{len(mine)} drawn of {every} candidates, " if every > len(mine) else ""
            rows = f"{head} on rows held out for tuning"
            title = f"{label}: {tried}{rows}, {seeds}; {better} is chosen"
            columns = [Column(head, scores), Column("", stars, left=True)]
            tables.append(TerminalTable(title, [Column("candidate", settings)], columns))
        edges = describe_edges(summary.iter_rows(named=True), keys)
        tables += [Text(f"at the edge: {text}; the best value may lie beyond") for text in edges]
        several = summary["half"].is_not_null().any()
        seeds = plural(int(summary["seeds"].to_numpy().max()), "validation seed")
        covers = [Text(self.variation.interval_note(seeds))] if several else []
        return Group(*tables, *covers, *format_warnings(self.warnings))

    def __repr__(self) -> str:
        text = "; ".join(
            f"{label}: {', '.join(f'{k}={format_value(v)}' for k, v in values.items())}"
            for label, values in self.chosen.items()
        )
        return f"Tuning({text})"


# Columns of the frame that are no keys.
OWN = ("method", "candidate", "seed", "score", "tied", "chosen")


def draw_candidates(over: Over, budget: int, seed: int) -> list[dict[str, Any]]:
    """Return the candidates of a grid, in order; if they are more than the budget, a sample of
    them without replacement.

    >>> [c["lr"] for c in draw_candidates({"lr": [1, 2, 3, 4]}, 4, 0)]
    [1, 2, 3, 4]
    >>> len(draw_candidates({"lr": [1, 2, 3, 4], "mu": [0, 1]}, 3, 0))
    3
    """
    every = [dict(cell.values) for cell in grid(over)]
    if len(every) <= budget:
        return every
    drawn = rng.generator(seed, "tuning").choice(len(every), budget, replace=False)
    return [every[i] for i in sorted(drawn)]


def find_best(scores: Sequence[Sequence[float]], direction: Direction) -> list[int]:
    """Return the candidates of the best mean score, in the order of the grid; the first is chosen.
    One without a score in some seed (nan: its training diverged) is not among them.

    >>> find_best([[0.1, 0.3], [0.2, 0.4], [float("nan"), 1.0], [0.3, 0.3]], "max")
    [1, 3]
    """
    means = np.array([np.mean(mine) for mine in scores], np.float64)
    means = means if direction == "max" else -means
    if np.isnan(means).all():
        raise MusterError(
            "tune: no candidate has a score in every seed; look at tuning.parquet, and give "
            "smaller learning rates"
        )
    # The same scores in another order may differ in the last digits of their mean.
    found: list[int] = np.flatnonzero(np.isclose(means, np.nanmax(means), rtol=1e-12)).tolist()
    return found


def find_edge(mine: Sequence[Candidate], key: str) -> str:
    """Return the edge of a method's grid that its choice is at, "smallest" or "largest": a better
    value may lie beyond. Empty if the choice is inside, or there is only one value.

    >>> find_edge([{"lr": lr, "chosen": lr == 0.4} for lr in (0.1, 0.2, 0.4)], "lr")
    'largest'
    """
    values: list[Any] = [row.get(key) for row in mine]
    if not all(map(is_number, values)) or len(set(values)) < 2:
        return ""
    chosen = next(row[key] for row in mine if row["chosen"])
    return {min(values): "smallest", max(values): "largest"}.get(chosen, "")


def describe_edges(rows: Iterable[Candidate], keys: Sequence[str]) -> list[str]:
    """Return a sentence for each value that methods chose at an edge of their grid.

    Args:
        rows: the candidates of every method, one of each chosen

    >>> lr = [{"method": m, "lr": lr, "chosen": lr == 0.4} for m in "AB" for lr in (0.2, 0.4)]
    >>> describe_edges(lr, ["lr"])
    ['lr = 0.4 is the largest tried (A, B)']
    """
    tried: dict[str, list[Candidate]] = {}
    for row in rows:
        tried.setdefault(row["method"], []).append(row)
    who: dict[str, list[str]] = {}
    for (method, mine), key in product(tried.items(), keys):
        if side := find_edge(mine, key):
            value = next(format_value(row[key]) for row in mine if row["chosen"])
            who.setdefault(f"{key} = {value} is the {side} tried", []).append(method)
    return [f"{text} ({', '.join(methods)})" for text, methods in who.items()]


def build_frame(
    tried: Mapping[str, Sequence[Candidate]],
    scores: Mapping[str, Sequence[Sequence[float]]],
    seeds: Sequence[int],
    at_best: Mapping[str, Sequence[int]],
) -> pl.DataFrame:
    """Return every score as a frame. A key that a method does not have is null for it.

    Args:
        at_best: candidates of the best score of each method; the first is chosen
    """
    keys = list(dict.fromkeys(k for mine in tried.values() for c in mine for k in c))
    typed: dict[str, dict[str, Any]] = {}
    for key in keys:
        values = [c[key] for mine in tried.values() for c in mine if key in c]
        typed[key] = dict(zip(map(format_value, values), as_column(values), strict=True))
    rows = [
        {
            "method": label,
            "candidate": i,
            **{key: typed[key][format_value(c[key])] if key in c else None for key in keys},
            "seed": seed,
            "score": scores[label][i][j],
            "tied": len(at_best[label]) > 1 and i in at_best[label],
            "chosen": i == at_best[label][0],
        }
        for label, mine in tried.items()
        for i, c in enumerate(mine)
        for j, seed in enumerate(seeds)
    ]
    return pl.DataFrame(rows, infer_schema_length=None).fill_nan(None)
