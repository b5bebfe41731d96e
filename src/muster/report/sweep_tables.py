"""Tables of a sweep: means and paired differences within each cell, with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from ..base.errors import MusterError
from ..base.lazy import pl
from ..results.measures import MEASURES, Measure, find_measures
from .intervals import (
    cell_coverage_notes,
    default_measures,
    format_seeds,
    read_variation,
    require_measures,
    summary_row,
)
from .table_layout import Column, TerminalTable
from .tables import format_difference, format_mean, format_warnings
from .text_format import format_value, name_keys


def choose_sweep_measures(
    frame: pl.DataFrame, names: str | Iterable[str] = ()
) -> tuple[Measure, ...]:
    """Return the measures of a sweep: those named, or the default ones that it has."""
    if names:
        return require_measures([set(frame.columns)], find_measures(names))
    return default_measures(m for m in MEASURES.values() if m.name in frame.columns)


def summarize_sweep(
    frame: pl.DataFrame,
    keys: Sequence[str],
    labels: Sequence[str],
    measures: str | Iterable[str] = (),
    round: int | None = None,
) -> pl.DataFrame:
    """Return one row per cell, method and measure (`summary_row`), over the seeds that every method
    finished; differences are to the first method of the same cell."""
    rows: list[dict[str, Any]] = []
    if round is not None:
        frame = frame.filter(pl.col("round") <= round)
    chosen = choose_sweep_measures(frame, measures)
    for cell, here in frame.group_by(keys, maintain_order=True):
        ends = here.group_by("method", "seed", maintain_order=True).agg(
            pl.col("round").max(), *(_last(m, frame.columns) for m in chosen)
        )
        variation = read_variation(here)
        mine = {label: ends.filter(pl.col("method") == label) for label in labels}
        shared = set.intersection(*(set(e["seed"]) for e in mine.values()))
        for label, end in mine.items():
            end = end.filter(pl.col("seed").is_in(shared)).sort("seed")
            first = mine[labels[0]].filter(pl.col("seed").is_in(shared)).sort("seed")
            for m in chosen if shared else ():
                a, b = (e[m.name].to_numpy().astype(np.float64) for e in (end, first))
                at: Any = end["round"].max()
                row = summary_row(label, at, m, a, b, variation, label == labels[0])
                rows.append(dict(zip(keys, cell, strict=True)) | row)
    if not rows:
        raise MusterError(
            "sweep: no seed of any cell has been finished by every method; resume the sweep"
        )
    return pl.DataFrame(rows).fill_nan(None)


def _last(measure: Measure, columns: Sequence[str]) -> pl.Expr:
    """Return the last value of a measure, or else of its substitute."""
    names = [name for name in (measure.name, measure.otherwise) if name in columns]
    ends = [pl.col(name).cast(pl.Float64).drop_nulls().last() for name in names]
    return pl.coalesce(ends).alias(measure.name)


def sweep_tables(
    summary: pl.DataFrame, keys: Sequence[str], warnings: Iterable[str] = ()
) -> list[RenderableType]:
    """Return the tables of a sweep: cells and methods down, measures across; first the means, then
    the paired differences to the first method of the same cell."""
    measures = [MEASURES[name] for name in summary["measure"].unique(maintain_order=True)]
    methods = summary["method"].unique(maintain_order=True).to_list()
    names = name_keys(keys, methods)

    def table(title: str, rows: pl.DataFrame, format_cell: Callable[..., str]) -> TerminalTable:
        each = rows.filter(pl.col("measure") == measures[0].name)
        labels = [Column(names[key], [format_value(v) for v in each[key]]) for key in keys]
        labels.append(Column("method", each["method"].to_list()))
        columns = []
        for m in measures:
            mine = rows.filter(pl.col("measure") == m.name).iter_rows(named=True)
            columns.append(Column(m.head, [format_cell(row, m.scale) for row in mine]))
        return TerminalTable(title, labels, columns)

    title = f"mean ± 95 %, {read_variation(summary).scope(format_seeds(summary))}"
    tables: list[RenderableType] = [table(title, summary, format_mean)]
    others = summary.filter(pl.col("method") != methods[0])
    if len(others):
        title = f"paired difference to {methods[0]} in the same cell (* : the interval excludes 0)"
        tables.append(table(title, others, format_difference))
    return [*tables, *map(Text, cell_coverage_notes(summary)), *format_warnings(warnings)]
