"""Mean curves of a measure over the rounds, in one panel that shows the differences of methods.

Two things hide differences: overlapping curves, and an axis stretched by the first rounds. So a
curve below another one is wide and pale, with the dashes of the other above it; and the axis is as
long as the later rounds need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.arrays import Float64
from ..results.measures import Measure
from ..results.run import Run
from .intervals import correction_ratio, find_column, mean_and_half, seed_variation
from .style import LineStyle, tidy

EARLY_SHARE = 0.25  # share of the rounds that does not count where the axis must be cut
MARKERS_PER_CURVE = 7
OVERLAP_GAP = 0.008  # share of the axis: curves closer than that overlap ...
OVERLAP_SHARE = 0.5  # ... if they are so in this share of the rounds
WIDEST = 2  # most steps by which a line below others is wider
MAX_BANDS = 6  # methods whose bands can be distinguished
CUT = 4.0  # an axis this many times as long as the later rounds need is too long
BEYOND = 6.0  # multiple of the means' span that a band may take on each side
LOG_RATIO = 100.0  # between the smallest and the largest value: above it the axis is logarithmic


@dataclass(frozen=True)
class Axis:
    """The rule that chooses the limits of an axis.

    Attributes:
        cut: an axis this many times as long as the later rounds need is cut to them
        beyond: the reach of bands beyond the means, as a multiple of the means' span
    """

    cut: float = CUT
    beyond: float = BEYOND


@dataclass(frozen=True)
class Curve:
    """The mean of a measure over the seeds after each round, and the half-width of its interval.

    The half-width is NaN for a single seed.
    """

    x: Float64
    mean: Float64
    half: Float64

    def band(self, measure: Measure) -> tuple[Float64, Float64]:
        """Return the ends of the interval, clipped to the range of the measure."""
        half = np.nan_to_num(self.half)
        low, high = self.mean - half, self.mean + half
        if measure.signed:
            return low, high
        if measure.share or np.nanmin(self.mean, initial=np.inf) >= 0:
            low = np.maximum(low, np.minimum(self.mean, 0))
        return low, np.minimum(high, np.maximum(self.mean, 1)) if measure.share else high


def mean_curve(runs: Sequence[Run], measure: Measure) -> Curve | None:
    """Return the mean curve of one method's seeds; None if none has the measure."""
    measured = [
        run.rounds.select("round", value=column).drop_nulls()
        for run in runs
        if (column := find_column(run, measure.name)) is not None
    ]
    # Interrupted runs may be shorter: the rounds that all seeds have.
    n = min((len(t) for t in measured), default=0)
    if n == 0:
        return None
    values = np.stack([t["value"].to_numpy()[:n] for t in measured]).astype(np.float64)
    x = measured[0]["round"].to_numpy()[:n].astype(np.float64)
    ratio = correction_ratio(seed_variation(runs), measure)
    return Curve(x, *mean_and_half(values * measure.scale, ratio=ratio))


def draw_curves(
    ax: Any,
    curves: Mapping[str, Curve],
    styles: Mapping[str, LineStyle],
    measure: Measure,
    axis: Axis = Axis(),
    size: float = 1.0,
) -> None:
    """Draw every method's curve with its band, in lines and markers of this size."""
    from matplotlib.ticker import MaxNLocator

    low, high = axis_limits(list(curves.values()), measure, axis)
    if needs_log_scale(list(curves.values()), measure):
        ax.set_yscale("log")
    banded = len(curves) <= MAX_BANDS
    above = count_overlaps(list(curves.values()), high - low)
    for i, (label, curve) in enumerate(curves.items()):
        style = styles[label]
        if banded and np.isfinite(curve.half).any() and len(curve.x) > 1:
            ax.fill_between(curve.x, *curve.band(measure), color=style.colour, alpha=0.12, lw=0)
        width = size * (1.5 + 2.0 * min(above[i], WIDEST))
        line = {"color": style.colour, "linestyle": style.dashes, "linewidth": width}
        line |= {"solid_capstyle": "butt", "dash_capstyle": "butt", "zorder": 3 + i / 100}
        ax.plot(curve.x, curve.mean, label=label, alpha=0.5 if above[i] else 1.0, **line)
        some = marker_positions(len(curve.x), i, len(curves))
        mark = {"color": style.colour, "marker": style.marker, "markersize": 4.5 * size}
        edge = {"markeredgecolor": "white", "markeredgewidth": 0.5, "zorder": 5 + i / 100}
        ax.plot(curve.x[some], curve.mean[some], linestyle="none", **mark, **edge)
    if curves:
        ax.set_ylim(low, high)
        first = min(c.x[0] for c in curves.values())
        last = max(c.x[-1] for c in curves.values())
        room = 0.02 * (last - first) or 0.5
        ax.set_xlim(first - room, last + room)
    ax.xaxis.set_major_locator(
        MaxNLocator(nbins=7, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)
    )
    if measure.counts and ax.get_yscale() == "linear":
        ax.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    ax.tick_params(labelsize=8)
    ax.set_xlabel("round", fontsize=8)
    tidy(ax)


def marker_positions(n: int, i: int, curves: int) -> list[int]:
    """Return the points of the i-th of several curves with n points that have a marker.

    Methods take turns, so that markers of overlapping curves do not hide each other; a curve of few
    points has them all.

    >>> marker_positions(70, 0, 2)[:3], marker_positions(70, 1, 2)[:3], marker_positions(2, 1, 2)
    ([0, 10, 20], [5, 15, 25], [0, 1])
    """
    step = n / MARKERS_PER_CURVE
    if step <= 1:
        return list(range(n))
    return sorted({int(step * (k + i / curves)) for k in range(MARKERS_PER_CURVE)})


def count_overlaps(curves: Sequence[Curve], span: float) -> list[int]:
    """Return, for each curve, how many of those drawn after it overlap it."""
    return [
        sum(_overlap(one, other, span) for other in curves[i + 1 :]) for i, one in enumerate(curves)
    ]


def _overlap(one: Curve, other: Curve, span: float) -> bool:
    n = min(len(one.x), len(other.x))
    gap = np.abs(one.mean[:n] - other.mean[:n])
    return bool((gap <= OVERLAP_GAP * span).mean() >= OVERLAP_SHARE)


def axis_limits(
    curves: Sequence[Curve], measure: Measure, axis: Axis = Axis()
) -> tuple[float, float]:
    """Return the limits of a panel's axis.

    They include all means, unless those of the first quarter of the rounds would stretch the axis
    to more than `axis.cut` times what the later ones need (numbers of clients are never cut). They
    include most of the bands, up to `axis.beyond` times the means' span beyond the means: bands of
    two seeds may be a hundred times wider than all else.
    """
    finite = _finite([c.mean for c in curves])
    if not len(finite):
        return 0.0, 1.0
    later = [c.x > c.x[0] + EARLY_SHARE * (c.x[-1] - c.x[0]) for c in curves]
    late = [late if late.any() else np.ones_like(late) for late in later]
    means = _finite([c.mean[which] for c, which in zip(curves, late, strict=True)])
    means = means if len(means) else finite
    if measure.counts or np.ptp(means) == 0 or np.ptp(finite) <= axis.cut * np.ptp(means):
        means = finite
    low, high = float(means.min()), float(means.max())
    if measure.counts:
        low, high = float(np.floor(low)), float(np.ceil(high))
    if len(curves) <= MAX_BANDS:
        bands = [(*c.band(measure), which) for c, which in zip(curves, late, strict=True)]
        lows = _finite([band[which] for band, _, which in bands])
        highs = _finite([band[which] for _, band, which in bands])
        # All but the widest tenth: a single wild round would shrink everything else.
        lowest, highest = min(low, np.quantile(lows, 0.1)), max(high, np.quantile(highs, 0.9))
        # Where all means are equal, only the bands count.
        room = axis.beyond * (high - low) or np.inf
        low, high = max(low - room, lowest), min(high + room, highest)
    room = 0.06 * (high - low) or 0.05 * abs(high) or 0.05
    floor = 0.0 if finite.min() >= 0 and not measure.signed else -np.inf
    top = 1.0 if measure.share else np.inf
    # A curve at the very edge would be cut along its middle.
    edge = 0.25 * room
    return max(low - room, floor - edge), min(high + room, top + edge)


def needs_log_scale(curves: Sequence[Curve], measure: Measure) -> bool:
    """Return True if the later values need a logarithmic axis.

    Shares, numbers of clients and differences may be 0, which has no logarithm.
    """
    values = _finite([c.mean[len(c.mean) // 4 :] for c in curves])
    linear = measure.share or measure.counts or measure.signed
    return not linear and len(values) > 0 and 0 < values.min() * LOG_RATIO < values.max()


def _finite(parts: Sequence[Float64]) -> Float64:
    values = np.concatenate(parts) if parts else np.zeros(0)
    return values[np.isfinite(values)]
