"""The report of a sweep: tables of means and paired differences in each cell, and a figure.

The figure has every method's mean after the last round, against a swept key. Numbers are at their
place on a linear axis, or a logarithmic one if they span orders of magnitude; words are side by
side, wrapped or rotated so that none overlaps the next.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from ..base.arrays import Float64
from ..base.errors import MusterError
from ..base.lazy import pl
from ..results.measures import MEASURES, Measure, find_measures
from .curves import Curve
from .figure import HEIGHT, WIDTH, check_figure_path
from .intervals import (
    cell_coverage_notes,
    default_measures,
    format_seeds,
    read_variation,
    require_measures,
    summary_row,
)
from .paper_figure import COLUMN, CURVES, PAGE, RC
from .style import LEGEND_WIDTH, LineStyle, add_legend, drop_date, new_figure, save_figure, tidy
from .table_layout import Column, TerminalTable
from .tables import format_difference, format_mean, format_warnings
from .text_format import escape_mathtext, format_value, name_keys, split_value


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


ROWS = 6  # most rows of panels in one figure
LOG_RATIO = 30.0  # of the largest value to the smallest: above it the axis is logarithmic
TICKS = 8  # most values of a key that are all written below the axis
NUMBER_OFFSET, WORD_OFFSET = 0.012, 0.04  # share of the axis between two methods
FONT_SIZE = 8  # points, of the text below the axis
LETTER, LINE = 0.07, 0.14  # inches of a letter's width, and of a line's height, in this size
SLANTED, UPRIGHT = 35, 90  # degrees, of words too long to be horizontal
LINES, LONG = 3, 24  # most lines of a horizontal word, and characters in a line of a rotated one


def draw_sweep_figure(
    summary: pl.DataFrame,
    keys: Sequence[str],
    along: str,
    path: str | Path,
    paper: bool = False,
    wide: bool = False,
) -> Path:
    """Draw a sweep to a file: measures across, the values of the other keys down; each panel has
    every method's mean against the swept key `along`, with its 95 % interval. `paper` draws it for
    a paper: the panels one below the other at a column's width, or (`wide`) across both."""
    import matplotlib

    path = check_figure_path(path)
    measures = [MEASURES[name] for name in summary["measure"].unique(maintain_order=True)]
    labels = summary["method"].unique(maintain_order=True).to_list()
    others = [key for key in keys if key != along]
    rows = summary.select(others).unique(maintain_order=True).rows() if others else [()]
    if len(rows) > ROWS:
        raise MusterError(
            f"figure: {len(rows)} cells besides '{along}', at most {ROWS} fit; draw fewer of them "
            "from sweep.summary()"
        )
    names = name_keys(keys, labels)
    styles = {label: LineStyle.of(i) for i, label in enumerate(labels)}
    aside = 0.08 * min(max(map(len, labels)), LEGEND_WIDTH) + 0.3
    across = len(measures) if wide or not paper else 1
    down = len(rows) * len(measures) // across
    size = (WIDTH * across + 2 * aside, HEIGHT * down + 0.6)
    if paper:
        size = (PAGE if wide else COLUMN, CURVES * down + 0.3 + 0.18 * -(-len(labels) // 2))
    with matplotlib.rc_context(RC if paper else {}):
        fig = new_figure(*size)
        panels = iter(fig.subplots(down, across, squeeze=False).flat)
        draw_panels(panels, summary, rows, others, along, measures, styles, names, paper)
        if len(labels) > 1:
            how: dict[str, Any] = {"ncols": 2, "columnspacing": 1.0} if paper else {}
            add_legend(fig, styles, "upper left" if paper else "right upper", **how)
        note = textwrap.fill(sweep_note(summary), 60) if paper else sweep_note(summary)
        fig.supxlabel(note, fontsize=6.5 if paper else 8, x=0.01, ha="left", color="0.3")
        save_figure(fig, path, dpi=300 if paper else 130, metadata=drop_date(path))
    return path


def draw_panels(
    panels: Iterator[Any],
    summary: pl.DataFrame,
    rows: Sequence[tuple[Any, ...]],
    others: Sequence[str],
    along: str,
    measures: Sequence[Measure],
    styles: Mapping[str, LineStyle],
    names: Mapping[str, str],
    small: bool,
) -> None:
    """Draw every measure of every row, cell by cell, with titles."""
    for values in rows:
        here = summary
        for key, value in zip(others, values, strict=True):
            here = here.filter(pl.col(key) == value)
        cell = ", ".join(
            f"{names[key]} = {format_value(v)}" for key, v in zip(others, values, strict=True)
        )
        for m in measures:
            ax = next(panels)
            mine = here.filter(pl.col("measure") == m.name)
            draw_sweep_panel(ax, mine, along, styles, m, names[along])
            title = f"{m.title}\n{cell}" if cell else m.title
            ax.set_title(escape_mathtext(title), fontsize=8 if small else 10)


def sweep_note(summary: pl.DataFrame) -> str:
    """Return the note below the figure: what its points are."""
    rounds = summary["round"].unique()
    when = f"after round {rounds[0]}" if len(rounds) == 1 else "after the last round"
    seeds = summary["seeds"].unique().to_list()
    if seeds == [1]:
        return f"One seed, {when}: no intervals."
    where = " where there are several" if 1 in seeds else ""
    return f"Mean over {format_seeds(summary)} {when}, with its 95 % interval{where}."


def draw_sweep_panel(
    ax: Any,
    rows: pl.DataFrame,
    along: str,
    styles: Mapping[str, LineStyle],
    measure: Measure,
    label: str,
) -> None:
    """Draw every method's mean against a key, with its interval.

    Methods are slightly offset, so that equal ones can all be seen.
    """
    values = rows[along].unique(maintain_order=True)
    numeric = values.dtype.is_numeric()
    at = [float(v) for v in values] if numeric else [float(i) for i in range(len(values))]
    if numeric:
        set_scale(ax, at)
    # Positions on the axis as it is displayed, and the offsets of methods there.
    scale = ax.xaxis.get_transform()
    positions = dict(zip(values, scale.transform(at).tolist(), strict=True))
    offset = NUMBER_OFFSET if numeric else WORD_OFFSET
    steps = dodge_offsets(sorted(positions.values()), len(styles), offset)
    if len(values) == 1:  # as wide as if there were more: methods are next to its one position
        ax.set_xlim(at[0] - 0.5, at[0] + 0.5)
    if numeric:
        label_numbers(ax, positions)
    else:
        label_words(ax, [format_value(v) for v in values])
    for i, (name, style) in enumerate(styles.items()):
        mine = rows.filter(pl.col("method") == name, pl.col("mean").is_not_null())
        x = np.array([positions[value] for value in mine[along]]) + steps[i]
        order = np.argsort(x)
        mean = mine["mean"].to_numpy()[order] * measure.scale
        half = mine["half"].cast(pl.Float64).to_numpy()[order] * measure.scale
        bars = {**style.error_bar, "yerr": error_bars(mean, half, measure), "zorder": 3 + i / 100}
        line = style.dashes if numeric else "none"
        ax.errorbar(scale.inverted().transform(x[order]), mean, linestyle=line, **bars)
    ax.tick_params(labelsize=FONT_SIZE)
    ax.set_xlabel(escape_mathtext(label), fontsize=FONT_SIZE)
    tidy(ax)


def set_scale(ax: Any, values: Sequence[float]) -> None:
    """Set a logarithmic axis for numbers that span orders of magnitude.

    With a 0 among them the axis is linear up to the smallest of the others, so that 0 is about as
    far from that one as ten times it would be.
    """
    positive = [x for x in values if x > 0]
    if min(values) < 0 or not positive or max(positive) < LOG_RATIO * min(positive):
        return
    if len(positive) == len(values):
        ax.set_xscale("log")
    else:
        ax.set_xscale("symlog", linthresh=min(positive))
    ax.minorticks_off()


def label_numbers(ax: Any, positions: Mapping[float, float]) -> None:
    """Write the numbers that have room below an axis; of many, the axis writes round ones."""
    if len(positions) > TICKS:
        return
    ordered = sorted(positions)
    written = choose_ticks([positions[v] for v in ordered])
    texts = [format_value(v) if w else "" for v, w in zip(ordered, written, strict=True)]
    ax.set_xticks(ordered, texts)


def label_words(ax: Any, words: Sequence[str]) -> None:
    """Write words below an axis: in a few lines if they fit side by side, else slanted, or upright.

    The width of the axis is only approximately known before all is drawn.
    """
    room = ax.get_window_extent().width / ax.figure.dpi / len(words)
    letters = int(room / LETTER) - 1
    lines = [split_value(word, letters) for word in words]
    turn: dict[str, Any] = {}
    if max(map(len, lines)) > LINES or max(len(line) for each in lines for line in each) > letters:
        wrapped = [[textwrap.wrap(line, LONG) for line in split_value(w, LONG)] for w in words]
        lines = [list(chain.from_iterable(each)) for each in wrapped]
        slanted = max(map(len, lines)) * LINE / math.sin(math.radians(SLANTED)) <= room
        turn = {
            "rotation": SLANTED if slanted else UPRIGHT,
            "rotation_mode": "anchor",
            "horizontalalignment": "right",
            "verticalalignment": "top" if slanted else "center",
        }
    ax.set_xticks(range(len(words)), [escape_mathtext("\n".join(each)) for each in lines], **turn)


def error_bars(mean: Float64, half: Float64, measure: Measure) -> Float64:
    """Return the lengths of an interval below and above its mean, as it is drawn.

    The interval of a share ends at 0 and 1; that of a single seed is NaN, which is not drawn.
    """
    low, high = Curve(np.zeros_like(mean), mean, half).band(measure)
    return np.where(np.isnan(half), np.nan, np.stack([mean - low, high - mean]))


def dodge_offsets(positions: Sequence[float], methods: int, share: float) -> list[float]:
    """Return the offset of each method, `share` of the axis apart, or less if positions are close.

    >>> dodge_offsets([0.0, 1.0], 2, 0.02)
    [-0.01, 0.01]
    """
    gaps = np.diff(positions)
    width = (positions[-1] - positions[0]) or 1.0
    nearest = float(gaps.min()) if len(gaps) else width
    step = min(share * width, 0.5 * nearest / methods)
    return [step * (i - (methods - 1) / 2) for i in range(methods)]


def choose_ticks(positions: Sequence[float]) -> list[bool]:
    """Return which ticks are written so that none overlap: the first, and each that is a tenth of
    the axis from the last one written.

    >>> choose_ticks([10, 25, 50, 250])
    [True, False, True, True]
    """
    room, written = 0.1 * (positions[-1] - positions[0]), [True]
    last = positions[0]
    for position in positions[1:]:
        written.append(position - last >= room)
        last = position if written[-1] else last
    return written
