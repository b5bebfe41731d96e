"""Figures for a paper: as wide as a column, with type that can be read there.

Each measure has two panels, one below the other: the methods' mean curves, without bands, on an
axis as long as they need; and what separates the others from the first method, seed by seed, over
the rounds with its 95 % interval. Seeds differ more than methods do: bands around the curves would
overlap and hide them, and say less than the interval of the difference does. Few curves have their
names at their ends; more, a legend.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..base.arrays import Float64
from ..base.errors import plural
from ..base.lazy import pl
from ..results.measures import Measure
from ..results.run import Run
from .curves import Axis, Curve, curve_of, draw_curves, limits
from .figure import as_figure_path, panels_of, title_of
from .intervals import (
    Runs,
    column_of,
    compared,
    every,
    for_everyone,
    mean_and_half,
    ratio_of,
    variation_of,
)
from .style import Look, as_written, folded, keep_figure

COLUMN, PAGE = 3.4, 7.0  # inches: a column of two, and both
CURVES, GAPS = 1.5, 1.0  # inches of height
LABELLED = 4  # curves that have their names at their ends
NAMES = 16  # letters of a name in one line
TIGHT = Axis(cut=1.5, beyond=0.6)  # an axis that shows the differences
SIZE = 0.75  # of lines and marks
RC: dict[Any, Any] = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "xtick.labelsize": 7,
    "ytick.labelsize": 7, "legend.fontsize": 7.5, "axes.linewidth": 0.6, "lines.linewidth": 1.2,
    # Text stays text: it can be searched, and a publisher's checks let it through.
    "pdf.fonttype": 42, "svg.fonttype": "none",
}  # fmt: skip


def paper(
    runs: Runs, path: str | Path, panels: str | Iterable[str] = (), wide: bool = False
) -> Path:
    """Draw runs for a paper to a file, whose ending says the format: .pdf, .svg or .png.

    Args:
        runs: the runs of each method by its label, all in the same order of seeds
        panels: the measures to draw; by default those of the table
        wide: across both columns, the measures next to each other; otherwise one below the other
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    path = as_figure_path(path)
    shown = panels_of(runs, panels or [m.name for m in compared(runs)])
    many = len(runs) > 1
    heights = [CURVES, GAPS] if many else [CURVES]
    across = len(shown) if wide else 1
    down = 1 if wide else len(shown)
    looks = {label: Look.of(i) for i, label in enumerate(runs)}
    everyone = all(map(for_everyone, every(runs)))
    legend = 0.18 * -(-len(runs) // 2) if len(runs) > LABELLED else 0.0
    size = (PAGE if wide else COLUMN, (sum(heights) + 0.35) * down + legend)
    with matplotlib.rc_context(RC):
        fig = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(fig)
        grid = fig.add_gridspec(len(heights) * down, across, height_ratios=heights * down)
        for i, measure in enumerate(shown):
            row, column = (0, i) if wide else (len(heights) * i, 0)
            ax = fig.add_subplot(grid[row, column])
            draw_measure(ax, runs, looks, measure)
            ax.set_title(as_written(title_of(measure, everyone)), loc="left", fontweight="bold")
            if many:
                ax.set_xlabel("")
                ax.tick_params(labelbottom=False)
                below = fig.add_subplot(grid[row + 1, column], sharex=ax)
                draw_differences(below, runs, looks, measure)
        if len(runs) > LABELLED:
            add_legend(fig, looks)
        # The same runs give the same file.
        undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(path.suffix.lower())
        keep_figure(fig, path, dpi=300, metadata=undated)
    return path


def draw_measure(ax: Any, runs: Runs, looks: Mapping[str, Look], measure: Measure) -> None:
    """Every method's curve, with its name at its end where there are few."""
    found = {label: curve_of(mine, measure) for label, mine in runs.items()}
    curves = {
        label: replace(curve, half=np.full_like(curve.mean, np.nan))
        for label, curve in found.items()
        if curve is not None
    }
    draw_curves(ax, curves, looks, measure, TIGHT, SIZE)
    if 1 < len(runs) <= LABELLED:
        name_ends(ax, curves, looks)


def name_ends(ax: Any, curves: Mapping[str, Curve], looks: Mapping[str, Look]) -> None:
    """Write each method's name at the end of its curve, none over another."""
    low, high = ax.get_ylim()
    logarithmic = ax.get_yscale() == "log"

    def height(value: float) -> float:
        if logarithmic:
            low_, high_, value = np.log(low), np.log(high), np.log(max(value, 1e-300))
        else:
            low_, high_ = low, high
        return float((value - low_) / (high_ - low_))

    ends = {label: height(float(curve.mean[-1])) for label, curve in curves.items()}
    lines = {label: folded(label, NAMES, 2).count("\n") + 1 for label in curves}
    for label, at in apart(ends, {n: 0.105 * k for n, k in lines.items()}).items():
        ax.annotate(
            folded(label, NAMES, 2), (1.0, at), xycoords="axes fraction", xytext=(4, 0),
            textcoords="offset points", va="center", ha="left", color=looks[label].colour,
            fontsize=7, linespacing=0.95, annotation_clip=False,
        )  # fmt: skip


def apart(heights: Mapping[str, float], room: Mapping[str, float]) -> dict[str, float]:
    """Heights in [0, 1] moved apart so that each has its room, in the same order.

    >>> apart({"a": 0.5, "b": 0.5}, {"a": 0.2, "b": 0.2})
    {'a': 0.4, 'b': 0.6}
    """
    order = sorted(heights, key=lambda label: heights[label])
    # Those that are in each other's way stand around the middle of where they would be.
    groups = [[label] for label in order]
    middle = [heights[label] for label in order]

    def size(group: Sequence[str]) -> float:
        return sum(room[label] for label in group)

    i = 0
    while i < len(groups) - 1:
        if middle[i] + size(groups[i]) / 2 > middle[i + 1] - size(groups[i + 1]) / 2:
            both = groups[i] + groups[i + 1]
            weight = len(groups[i]) / len(both)
            middle[i : i + 2] = [weight * middle[i] + (1 - weight) * middle[i + 1]]
            groups[i : i + 2] = [both]
            i = max(0, i - 1)
        else:
            i += 1
    placed = {}
    for group, centre in zip(groups, middle, strict=True):
        half = size(group) / 2
        at = min(max(centre, half), max(half, 1 - half)) - half
        for label in group:
            placed[label] = round(at + room[label] / 2, 9)
            at += room[label]
    return {label: placed[label] for label in heights}


def gap_curve(mine: Sequence[Run], first: Sequence[Run], measure: Measure) -> Curve | None:
    """The paired difference to the first method after each round that all of them measured."""
    gaps: list[Float64] = []
    rounds: Float64 | None = None
    for run, other in zip(mine, first, strict=True):
        names = column_of(run, measure.name), column_of(other, measure.name)
        if None in names:
            return None
        a = run.rounds.select("round", a=pl.col(str(names[0])).cast(pl.Float64)).drop_nulls()
        b = other.rounds.select("round", b=pl.col(str(names[1])).cast(pl.Float64)).drop_nulls()
        both = a.join(b, on="round").sort("round")
        gaps.append((both["a"] - both["b"]).to_numpy() * measure.scale)
        rounds = both["round"].to_numpy().astype(np.float64)
    n = min((len(gap) for gap in gaps), default=0)
    if n == 0 or rounds is None:
        return None
    ratio = ratio_of(variation_of([*mine, *first]), measure)
    return Curve(rounds[:n], *mean_and_half(np.stack([gap[:n] for gap in gaps]), ratio=ratio))


def draw_differences(ax: Any, runs: Runs, looks: Mapping[str, Look], measure: Measure) -> None:
    """What separates the others from the first method, around zero."""
    first, *others = runs
    found = {label: gap_curve(runs[label], runs[first], measure) for label in others}
    curves = {label: curve for label, curve in found.items() if curve is not None}
    gap = measure.difference
    draw_curves(ax, curves, looks, gap, TIGHT, SIZE)
    if curves:
        low, high = limits(list(curves.values()), gap, TIGHT)
        room = 0.05 * (max(high, 0.0) - min(low, 0.0))
        ax.set_ylim(min(low, -room), max(high, room))
    ax.axhline(0, color="0.35", linewidth=0.8, zorder=2)
    ax.set_ylabel(f"minus\n{folded(first, NAMES, 2)}", fontsize=7)
    seeds = len(runs[first])
    what = variation_of(every(runs)).unit
    ax.set_xlabel(f"round ({plural(seeds, what)}, 95 %)" if seeds > 1 else "round")


def add_legend(fig: Any, looks: Mapping[str, Look]) -> None:
    """Who is who, above the panels."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=look.colour, linestyle=look.dashes, marker=look.marker, markersize=3.5)
        for look in looks.values()
    ]
    legend = fig.legend(
        handles, [" "] * len(handles), loc="outside upper left", frameon=False,
        ncols=2, handlelength=2.4, columnspacing=1.0,
    )  # fmt: skip
    for text, label in zip(legend.get_texts(), looks, strict=True):
        text.set_text(folded(label, NAMES, 2))
