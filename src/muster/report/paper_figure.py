"""Figures for a paper: as wide as a column, with legible type.

Each measure has two panels, one below the other: the methods' mean curves, without bands, on an
axis as long as they need; and the paired differences to the first method over the rounds, with
their 95 % interval. Seeds differ more than methods do: bands around the curves would overlap and
hide them, and show less than the interval of the difference. A few curves have their names at
their ends, more have a legend.
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
from .curves import Axis, Curve, axis_limits, draw_curves, mean_curve
from .figure import check_figure_path, choose_panels, panel_title
from .intervals import (
    Runs,
    all_priority,
    all_runs,
    choose_measures,
    correction_ratio,
    find_column,
    mean_and_half,
    seed_variation,
)
from .style import LineStyle, add_legend, drop_date, new_figure, save_figure
from .text_format import escape_mathtext, wrap_label

COLUMN, PAGE = 3.4, 7.0  # inches: one of two columns, and both
CURVES, GAPS = 1.5, 1.0  # inches of height
MAX_LABELS = 4  # curves with their names at their ends
LABEL_WIDTH = 16  # characters of a name in one line
TIGHT = Axis(cut=1.5, beyond=0.6)  # an axis that shows the differences
SIZE = 0.75  # of lines and marks
RC: dict[Any, Any] = {
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize"), 8),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 7),
    "legend.fontsize": 7.5,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    # Text stays text: it can be searched, and passes a publisher's checks.
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
}


def draw_paper_figure(
    runs: Runs, path: str | Path, panels: str | Iterable[str] = (), wide: bool = False
) -> Path:
    """Draw runs for a paper to a file in the format of its ending: .pdf, .svg or .png.

    Args:
        runs: the runs of each method by label, all in the same order of seeds
        path: the file
        panels: the measures to draw; by default those of the table
        wide: span both columns, the measures side by side; otherwise one below the other
    """
    import matplotlib

    path = check_figure_path(path)
    shown = choose_panels(runs, panels or [m.name for m in choose_measures(runs)])
    many = len(runs) > 1
    heights = [CURVES, GAPS] if many else [CURVES]
    across = len(shown) if wide else 1
    down = 1 if wide else len(shown)
    styles = {label: LineStyle.of(i) for i, label in enumerate(runs)}
    everyone = all(map(all_priority, all_runs(runs)))
    legend = 0.18 * -(-len(runs) // 2) if len(runs) > MAX_LABELS else 0.0
    size = (PAGE if wide else COLUMN, (sum(heights) + 0.35) * down + legend)
    with matplotlib.rc_context(RC):
        fig = new_figure(*size)
        grid = fig.add_gridspec(len(heights) * down, across, height_ratios=heights * down)
        for i, measure in enumerate(shown):
            row, column = (0, i) if wide else (len(heights) * i, 0)
            ax = fig.add_subplot(grid[row, column])
            draw_mean_curves(ax, runs, styles, measure)
            ax.set_title(
                escape_mathtext(panel_title(measure, everyone)), loc="left", fontweight="bold"
            )
            if many:
                ax.set_xlabel("")
                ax.tick_params(labelbottom=False)
                below = fig.add_subplot(grid[row + 1, column], sharex=ax)
                draw_difference_curves(below, runs, styles, measure)
        if len(runs) > MAX_LABELS:
            options = {"ncols": 2, "handlelength": 2.4, "columnspacing": 1.0}
            add_legend(fig, styles, "upper left", LABEL_WIDTH, 2, 3.5, **options)
        save_figure(fig, path, dpi=300, metadata=drop_date(path))
    return path


def draw_mean_curves(
    ax: Any, runs: Runs, styles: Mapping[str, LineStyle], measure: Measure
) -> None:
    """Draw every method's curve, with its name at its end where there are few."""
    found = {label: mean_curve(mine, measure) for label, mine in runs.items()}
    curves = {
        label: replace(curve, half=np.full_like(curve.mean, np.nan))
        for label, curve in found.items()
        if curve is not None
    }
    draw_curves(ax, curves, styles, measure, TIGHT, SIZE)
    if 1 < len(runs) <= MAX_LABELS:
        label_ends(ax, curves, styles)


def label_ends(ax: Any, curves: Mapping[str, Curve], styles: Mapping[str, LineStyle]) -> None:
    """Write each method's name at the end of its curve, without overlaps."""
    low, high = ax.get_ylim()
    logarithmic = ax.get_yscale() == "log"

    def height(value: float) -> float:
        if logarithmic:
            low_, high_, value = np.log(low), np.log(high), np.log(max(value, 1e-300))
        else:
            low_, high_ = low, high
        return float((value - low_) / (high_ - low_))

    ends = {label: height(float(curve.mean[-1])) for label, curve in curves.items()}
    lines = {label: wrap_label(label, LABEL_WIDTH, 2).count("\n") + 1 for label in curves}
    for label, at in spread_out(ends, {n: 0.105 * k for n, k in lines.items()}).items():
        place = {"xycoords": "axes fraction", "xytext": (4, 0), "textcoords": "offset points"}
        look = {"color": styles[label].colour, "fontsize": 7, "linespacing": 0.95}
        align = {"va": "center", "ha": "left", "annotation_clip": False}
        ax.annotate(wrap_label(label, LABEL_WIDTH, 2), (1.0, at), **place, **look, **align)


def spread_out(heights: Mapping[str, float], room: Mapping[str, float]) -> dict[str, float]:
    """Move heights in [0, 1] apart so that each has its room, in the same order.

    >>> spread_out({"a": 0.5, "b": 0.5}, {"a": 0.2, "b": 0.2})
    {'a': 0.4, 'b': 0.6}
    """
    order = sorted(heights, key=lambda label: heights[label])
    # Labels that would overlap are centred on the mean of their heights.
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


def difference_curve(mine: Sequence[Run], first: Sequence[Run], measure: Measure) -> Curve | None:
    """Return the paired difference to the first method after each round that both measured."""
    gaps: list[Float64] = []
    rounds: Float64 | None = None
    for run, other in zip(mine, first, strict=True):
        names = find_column(run, measure.name), find_column(other, measure.name)
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
    ratio = correction_ratio(seed_variation([*mine, *first]), measure)
    return Curve(rounds[:n], *mean_and_half(np.stack([gap[:n] for gap in gaps]), ratio=ratio))


def draw_difference_curves(
    ax: Any, runs: Runs, styles: Mapping[str, LineStyle], measure: Measure
) -> None:
    """Draw the paired differences to the first method, around zero."""
    first, *others = runs
    found = {label: difference_curve(runs[label], runs[first], measure) for label in others}
    curves = {label: curve for label, curve in found.items() if curve is not None}
    gap = measure.difference
    draw_curves(ax, curves, styles, gap, TIGHT, SIZE)
    if curves:
        low, high = axis_limits(list(curves.values()), gap, TIGHT)
        room = 0.05 * (max(high, 0.0) - min(low, 0.0))
        ax.set_ylim(min(low, -room), max(high, room))
    ax.axhline(0, color="0.35", linewidth=0.8, zorder=2)
    ax.set_ylabel(f"minus\n{wrap_label(first, LABEL_WIDTH, 2)}", fontsize=7)
    seeds = len(runs[first])
    unit = seed_variation(all_runs(runs)).unit
    ax.set_xlabel(f"round ({plural(seeds, unit)}, 95 %)" if seeds > 1 else "round")
