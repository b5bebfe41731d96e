"""One panel of the figure: a measure of every method over the rounds, so that differences show.

Two things hide them: curves that lie on each other, and an axis stretched by the first rounds. So
a curve below another one is wide and pale, with the dashes of the other above it; and the axis is
as long as the later rounds need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.arrays import Float64
from ..results.measures import Measure
from ..results.run import Run
from .intervals import column_of, mean_and_half, ratio_of, variation_of
from .style import Look, tidy

EARLY = 0.25  # the share of the rounds that has no say in how long the axis is, if it must be cut
MARKED = 7  # markers on a curve
NEAR = 0.008  # of the axis: curves closer than that lie on each other
TOGETHER = 0.5  # ... if they do so in this share of the rounds
WIDEST = 2  # steps that a line below others is wider by
BANDED = 6  # methods whose bands can be told apart
CUT = 4.0  # times as long an axis as the later rounds need is too long
BEYOND = 6.0  # times the means' span that a band may take on each side
MAGNITUDES = 100.0  # between the smallest and the largest value: more is drawn by powers of ten


@dataclass(frozen=True)
class Axis:
    """How an axis is chosen.

    Attributes:
        cut: an axis that is this many times as long as the later rounds need is cut to them
        beyond: how far bands may reach beyond the means, as a multiple of the means' span
    """

    cut: float = CUT
    beyond: float = BEYOND


@dataclass(frozen=True)
class Curve:
    """The mean of a measure over the seeds after each round, and its interval's half-width (NaN of
    a single seed)."""

    x: Float64
    mean: Float64
    half: Float64

    def band(self, measure: Measure) -> tuple[Float64, Float64]:
        """The interval's ends, within what the measure can be: bands of few seeds reach beyond."""
        half = np.nan_to_num(self.half)
        low, high = self.mean - half, self.mean + half
        if measure.signed:
            return low, high
        if measure.share or np.nanmin(self.mean, initial=np.inf) >= 0:
            low = np.maximum(low, np.minimum(self.mean, 0))
        return low, np.minimum(high, np.maximum(self.mean, 1)) if measure.share else high


def curve_of(runs: Sequence[Run], measure: Measure) -> Curve | None:
    """The curve of one method's seeds; None where none of them took the measure, nor what stands
    in for it."""
    taken = [
        run.rounds.select("round", value=column).drop_nulls()
        for run in runs
        if (column := column_of(run, measure.name)) is not None
    ]
    # Interrupted runs may be shorter: the rounds that all seeds have.
    n = min((len(t) for t in taken), default=0)
    if n == 0:
        return None
    values = np.stack([t["value"].to_numpy()[:n] for t in taken]).astype(np.float64)
    x = taken[0]["round"].to_numpy()[:n].astype(np.float64)
    ratio = ratio_of(variation_of(runs), measure)
    return Curve(x, *mean_and_half(values * measure.scale, ratio=ratio))


def draw_curves(
    ax: Any,
    curves: Mapping[str, Curve],
    looks: Mapping[str, Look],
    measure: Measure,
    axis: Axis = Axis(),
    size: float = 1.0,
) -> None:
    """Every method's curve with its band, in lines and marks of this size."""
    from matplotlib.ticker import MaxNLocator

    low, high = limits(list(curves.values()), measure, axis)
    if by_powers(list(curves.values()), measure):
        ax.set_yscale("log")
    banded = len(curves) <= BANDED
    above = covering(list(curves.values()), high - low)
    for i, (label, curve) in enumerate(curves.items()):
        look = looks[label]
        if banded and np.isfinite(curve.half).any() and len(curve.x) > 1:
            ax.fill_between(curve.x, *curve.band(measure), color=look.colour, alpha=0.12, lw=0)
        ax.plot(
            curve.x, curve.mean, label=label, color=look.colour, linestyle=look.dashes,
            linewidth=size * (1.5 + 2.0 * min(above[i], WIDEST)), alpha=0.5 if above[i] else 1.0,
            solid_capstyle="butt", dash_capstyle="butt", zorder=3 + i / 100,
        )  # fmt: skip
        some = marked(len(curve.x), i, len(curves))
        ax.plot(
            curve.x[some], curve.mean[some], linestyle="none", marker=look.marker,
            markersize=4.5 * size, color=look.colour, markeredgecolor="white", markeredgewidth=0.5,
            zorder=5 + i / 100,
        )  # fmt: skip
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


def marked(n: int, i: int, of: int) -> list[int]:
    """The rounds of the i-th of so many curves that have a marker: the methods take turns, so that
    markers of curves on each other do not hide each other; a curve of few rounds has them all.

    >>> marked(70, 0, 2)[:3], marked(70, 1, 2)[:3], marked(2, 1, 2)
    ([0, 10, 20], [5, 15, 25], [0, 1])
    """
    every = n / MARKED
    if every <= 1:
        return list(range(n))
    return sorted({int(every * (k + i / of)) for k in range(MARKED)})


def covering(curves: Sequence[Curve], span: float) -> list[int]:
    """For each curve, how many of those drawn after it lie on it."""
    return [
        sum(_together(one, other, span) for other in curves[i + 1 :])
        for i, one in enumerate(curves)
    ]


def _together(one: Curve, other: Curve, span: float) -> bool:
    n = min(len(one.x), len(other.x))
    gap = np.abs(one.mean[:n] - other.mean[:n])
    return bool((gap <= NEAR * span).mean() >= TOGETHER)


def limits(curves: Sequence[Curve], measure: Measure, axis: Axis = Axis()) -> tuple[float, float]:
    """Where the axis of a panel ends.

    It holds all means, unless those of the first quarter of the rounds would stretch it to more
    than `axis.cut` times what the later ones need (numbers of clients are never cut). It holds most
    of the bands, as far as they reach beyond the means by no more than `axis.beyond` times their
    span: those of two seeds may be a hundred times wider than anything there is to see.
    """
    every = _finite([c.mean for c in curves])
    if not len(every):
        return 0.0, 1.0
    later = [c.x > c.x[0] + EARLY * (c.x[-1] - c.x[0]) for c in curves]
    late = [late if late.any() else np.ones_like(late) for late in later]
    means = _finite([c.mean[which] for c, which in zip(curves, late, strict=True)])
    means = means if len(means) else every
    if measure.counts or np.ptp(means) == 0 or np.ptp(every) <= axis.cut * np.ptp(means):
        means = every
    low, high = float(means.min()), float(means.max())
    if measure.counts:
        low, high = float(np.floor(low)), float(np.ceil(high))
    if len(curves) <= BANDED:
        bands = [(*c.band(measure), which) for c, which in zip(curves, late, strict=True)]
        lows = _finite([band[which] for band, _, which in bands])
        highs = _finite([band[which] for _, band, which in bands])
        # All but the widest tenth: a single wild round would make everything else small.
        lowest, highest = min(low, np.quantile(lows, 0.1)), max(high, np.quantile(highs, 0.9))
        # Where all means are alike, the bands are all there is.
        room = axis.beyond * (high - low) or np.inf
        low, high = max(low - room, lowest), min(high + room, highest)
    room = 0.06 * (high - low) or 0.05 * abs(high) or 0.05
    floor = 0.0 if every.min() >= 0 and not measure.signed else -np.inf
    top = 1.0 if measure.share else np.inf
    # A curve at the very edge would be cut along its middle.
    edge = 0.25 * room
    return max(low - room, floor - edge), min(high + room, top + edge)


def by_powers(curves: Sequence[Curve], measure: Measure) -> bool:
    """Whether the later values lie so far apart that only powers of ten show them all. Shares,
    numbers of clients and differences may be 0, which has no power."""
    values = _finite([c.mean[len(c.mean) // 4 :] for c in curves])
    plain = measure.share or measure.counts or measure.signed
    return not plain and len(values) > 0 and 0 < values.min() * MAGNITUDES < values.max()


def _finite(parts: Sequence[Float64]) -> Float64:
    together = np.concatenate(parts) if parts else np.zeros(0)
    return together[np.isfinite(together)]
