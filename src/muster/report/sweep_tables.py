"""What a sweep came to: paired intervals within each cell, as a table and against a swept key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from ..base.errors import MusterError
from ..base.lazy import pl
from ..results.measures import MEASURES, Measure, find_measures
from .figure import HEIGHT, NAMES, WIDTH, add_legend, as_figure_path
from .intervals import Interval, covered_cells, known_to, ratio_of, seeds_of, variation_in
from .key_names import key_names, value_text
from .style import Look, as_written, keep_figure
from .sweep_panel import draw_against
from .table_layout import Column, Fitted

ROWS = 6  # of panels in one figure


def measures_of(frame: pl.DataFrame, names: str | Iterable[str] = ()) -> tuple[Measure, ...]:
    """The measures of a sweep: those named, or the usual ones that were taken."""
    if names:
        return known_to([set(frame.columns)], find_measures(names))
    return tuple(m for m in MEASURES.values() if m.compared and m.name in frame.columns)


def swept_summary(
    frame: pl.DataFrame,
    keys: Sequence[str],
    labels: Sequence[str],
    measures: str | Iterable[str] = (),
    round: int | None = None,
) -> pl.DataFrame:
    """One row for each cell, method and measure: mean, interval, and the paired difference `this -
    first method` with its interval, over the seeds that every method finished; and what they vary.
    """
    rows: list[dict[str, Any]] = []
    if round is not None:
        frame = frame.filter(pl.col("round") <= round)
    taken = measures_of(frame, measures)
    for cell, here in frame.group_by(keys, maintain_order=True):
        ends = here.group_by("method", "seed", maintain_order=True).agg(
            pl.col("round").max(), *(_last(m, frame.columns) for m in taken)
        )
        variation = variation_in(here)
        mine = {label: ends.filter(pl.col("method") == label) for label in labels}
        both = set.intersection(*(set(e["seed"]) for e in mine.values()))
        for label, end in mine.items():
            end = end.filter(pl.col("seed").is_in(both)).sort("seed")
            first = mine[labels[0]].filter(pl.col("seed").is_in(both)).sort("seed")
            for m in taken if both else ():
                a, b = (e[m.name].to_numpy().astype(np.float64) for e in (end, first))
                ratio = ratio_of(variation, m)
                mean, gap = Interval.of(a, ratio=ratio), Interval.of(a - b, ratio=ratio)
                rows.append(
                    {
                        **dict(zip(keys, cell, strict=True)),
                        "method": label,
                        "round": end["round"].max(),
                        "measure": m.name,
                        "seeds": len(a),
                        "mean": mean.mean,
                        "half": mean.half,
                        "difference": gap.mean,
                        "difference_half": gap.half,
                        "clear": label != labels[0] and gap.excludes_zero,
                        **variation.table,
                    }
                )
    if not rows:
        raise MusterError("sweep: no seed of any cell was finished by every method; go on with it")
    return pl.DataFrame(rows).fill_nan(None)


def _last(measure: Measure, columns: Sequence[str]) -> pl.Expr:
    """A measure when it was last taken, or else what stands in for it."""
    names = [name for name in (measure.name, measure.otherwise) if name in columns]
    ends = [pl.col(name).cast(pl.Float64).drop_nulls().last() for name in names]
    return pl.coalesce(ends).alias(measure.name)


def swept_tables(
    summary: pl.DataFrame, keys: Sequence[str], concerns: Iterable[str] = ()
) -> list[RenderableType]:
    """Cells and methods down, measures across: the means, then the paired differences to the first
    method of the same cell."""
    measures = [MEASURES[name] for name in summary["measure"].unique(maintain_order=True)]
    methods = summary["method"].unique(maintain_order=True).to_list()
    names = key_names(keys, methods)

    def table(title: str, kept: pl.DataFrame, mean: str, half: str, sign: str) -> Fitted:
        each = kept.filter(pl.col("measure") == measures[0].name)
        labels = [Column(names[key], [value_text(v) for v in each[key]]) for key in keys]
        labels.append(Column("method", each["method"].to_list()))
        columns = []
        for m in measures:
            rows = kept.filter(pl.col("measure") == m.name).iter_rows(named=True)
            columns.append(Column(m.head, [_pair(row, mean, half, m.scale, sign) for row in rows]))
        return Fitted(title, labels, columns)

    title = f"mean ± 95 %, {seeds_of(summary)}"
    tables: list[RenderableType] = [table(title, summary, "mean", "half", "")]
    others = summary.filter(pl.col("method") != methods[0])
    if len(others):
        about = f"paired difference to {methods[0]} in the same cell (* : the interval excludes 0)"
        tables.append(table(about, others, "difference", "difference_half", "+"))
    return [*tables, *map(Text, covered_cells(summary)), *attention(concerns)]


def attention(concerns: Iterable[str]) -> list[Text]:
    """What a person must be told of results, so that it is seen."""
    return [Text(f"attention: {said}", style="bold red") for said in concerns]


def _pair(row: Mapping[str, Any], mean: str, half: str, scale: float, sign: str) -> str:
    if row[mean] is None:
        return "-"
    star = ("*" if row["clear"] else " ") if sign else ""
    said = f"{row[mean] * scale:{sign}.3f}"
    return said + (star if row[half] is None else f"±{row[half] * scale:.3f}{star}")


def swept_figure(summary: pl.DataFrame, keys: Sequence[str], along: str, path: str | Path) -> Path:
    """Measures across, the values of the other keys down; in each panel every method's mean against
    the swept key, with its 95 % interval."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    path = as_figure_path(path)
    measures = [MEASURES[name] for name in summary["measure"].unique(maintain_order=True)]
    labels = summary["method"].unique(maintain_order=True).to_list()
    others = [key for key in keys if key != along]
    rows = summary.select(others).unique(maintain_order=True).rows() if others else [()]
    if len(rows) > ROWS:
        raise MusterError(
            f"figure: {len(rows)} cells next to '{along}', and there is room for {ROWS}; draw "
            "fewer of them from sweep.summary()"
        )
    names = key_names(keys, labels)
    looks = {label: Look.of(i) for i, label in enumerate(labels)}
    aside = 0.08 * min(max(map(len, labels)), NAMES) + 0.3
    size = (WIDTH * len(measures) + 2 * aside, HEIGHT * len(rows) + 0.6)
    fig = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(fig)
    axes = fig.subplots(len(rows), len(measures), squeeze=False)
    for down, values in enumerate(rows):
        here = summary
        for key, value in zip(others, values, strict=True):
            here = here.filter(pl.col(key) == value)
        title = ", ".join(
            f"{names[key]} = {value_text(v)}" for key, v in zip(others, values, strict=True)
        )
        for across, m in enumerate(measures):
            ax = axes[down, across]
            mine = here.filter(pl.col("measure") == m.name)
            draw_against(ax, mine, along, looks, m, names[along])
            said = f"{m.title}\n{title}" if title else m.title
            ax.set_title(as_written(said), fontsize=10)
    if len(labels) > 1:
        add_legend(fig, looks)
    fig.supxlabel(note_on(summary), fontsize=8, x=0.01, ha="left", color="0.3")
    keep_figure(fig, path, dpi=130)
    return path


def note_on(summary: pl.DataFrame) -> str:
    """What the points of the figure are; the interval of a single seed is none."""
    rounds = summary["round"].unique()
    when = f"after round {rounds[0]}" if len(rounds) == 1 else "after the last round"
    seeds = summary["seeds"].unique().to_list()
    if seeds == [1]:
        return f"One seed, {when}: no intervals."
    where = " where there are several" if 1 in seeds else ""
    return f"Mean over {seeds_of(summary)} {when}, with its 95 % interval{where}."
