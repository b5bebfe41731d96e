"""The account of sampled Gaussian releases, by which row-level privacy is measured.

A release is a sum over rows, each drawn with probability q by itself and bounded by C, plus
Normal(0, (z C)^2). With a row (P) and without it (Q), in units of C along the row's contribution,

    P = (1 - q) Normal(0, z^2) + q Normal(1, z^2),   Q = Normal(0, z^2)

and no pair of neighbours is easier to tell apart (Zhu, Dong and Wang 2022), whatever was released
before. The privacy loss log P/Q of many releases is the sum of theirs, so its distribution is a
convolution. Each is put on a grid in such a way that P's mass and Q's mass of every cell stay what
they are ("connecting the dots", Doroshenko et al. 2022): the curve delta(epsilon) on the grid lies
above the true one, never below. What is cut off at the ends of the grid is added to delta.

The order of releases, and which of them a client takes part in, may depend on what was released
before. Let f_{a,b} be the curve of a releases of one kind and b of another. Whichever comes first,
the curve is that of all of them together, because convolution commutes; stopping early is a
function of the rest. By induction over a + b no choice does better than f_{a,b}.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..base.arrays import Float64
from ..base.checks import check_above, check_whole, require
from ..base.errors import MusterError

FAR = 12.0  # deviations beyond which a release's noise is counted as if it revealed everything
FINE = 20.0  # cells for one deviation of a release's privacy loss
COARSEST = 0.01  # width of a cell, at most
CUT = 1e-6  # share of delta that may be cut off at each end of the sum
LEAST_DELTA = 1e-9  # below it the rounding of the convolution would count
MOST_CELLS = 2**24
MOST_EPSILON = 700.0  # beyond which e^epsilon is no float; it protects nothing
LEAST_NOISE, MOST_NOISE = 0.05, 1e6


@dataclass(frozen=True)
class SampledRelease:
    """Some releases of one kind.

    Attributes:
        rate: the probability q with which a row is in one of them; 1: all rows are in each
        noise: the deviation z of the noise, in units of the bound on a row's contribution
        count: the number of releases
    """

    rate: float
    noise: float
    count: int = 1

    def __post_init__(self) -> None:
        require(0 < self.rate <= 1, "rate", self.rate, "a probability above 0, up to 1")
        enough = LEAST_NOISE <= self.noise <= MOST_NOISE
        require(enough, "noise", self.noise, f"a number from {LEAST_NOISE:g} to {MOST_NOISE:g}")
        check_whole("count", self.count, 0)


@dataclass(frozen=True)
class LossGrid:
    """The distribution of a privacy loss under P: `mass[i]` at `(first + i) width`, and the mass
    at infinity."""

    first: int
    mass: Float64
    infinite: float
    width: float

    @property
    def losses(self) -> Float64:
        """The losses of the cells."""
        return np.asarray((self.first + np.arange(len(self.mass))) * self.width, np.float64)


def measure_epsilon(releases: Sequence[SampledRelease], delta: float) -> float:
    """Return an epsilon such that all releases together are (epsilon, delta)-private for every row;
    it is above the smallest such by less than a hundredth.

    >>> round(measure_epsilon([SampledRelease(0.01, 1.0, 1000)], 1e-5), 1)
    1.8
    """
    require(LEAST_DELTA <= delta < 1, "delta", delta, f"a number from {LEAST_DELTA:g} and below 1")
    used = [r for r in releases if r.count]
    if not used:
        return 0.0
    return max(_solve(_compose(used, delta, removed), delta) for removed in (True, False))


def find_noise(
    releases: Callable[[float], Sequence[SampledRelease]], epsilon: float, delta: float
) -> float:
    """Return the smallest noise z, to a part in a thousand and not below it, for which the
    releases of z are (epsilon, delta)-private."""
    check_above("epsilon", epsilon, double=True)
    low, high, over = LEAST_NOISE, 1.0, math.inf
    while (under := measure_epsilon(releases(high), delta)) > epsilon:
        low, high, over = high, 2 * high, under
        if 5 * high > MOST_NOISE:
            raise MusterError(
                f"epsilon: {epsilon:g}; no noise up to {high:g} reaches it: ask for more, or for "
                "fewer rounds"
            )
    while high > 1.001 * low:
        # Between two points log epsilon is nearly a line in log z; never all the way to an end.
        share = 0.5
        if math.isfinite(over) and under > 0:
            share = math.log(over / epsilon) / math.log(over / under)
        middle = low * (high / low) ** min(0.95, max(0.05, share))
        found = measure_epsilon(releases(middle), delta)
        if found > epsilon:
            low, over = middle, found
        else:
            high, under = middle, found
    return high


def _width(release: SampledRelease) -> float:
    """Return the width of cells that is fine enough for the privacy loss of one release."""
    spread = release.rate * math.sqrt(math.expm1(min(1.0 / release.noise**2, 50.0)))
    return min(COARSEST, spread / FINE)


def _between(a: Float64, b: Float64) -> Float64:
    """Return Normal(0, 1)'s mass between a and b, precise in both tails."""
    from scipy.special import ndtr  # takes a moment to load

    return np.asarray(np.where(a > 0, ndtr(-a) - ndtr(-b), ndtr(b) - ndtr(a)), np.float64)


def _discretize(release: SampledRelease, width: float, removed: bool) -> LossGrid:
    """Return the privacy loss of one release: of P against Q where the row is `removed` from the
    data, of Q against P where it is added."""
    q, z = release.rate, release.noise

    def loss(y: float) -> float:
        tilt = (2 * y - 1) / (2 * z**2)
        return tilt if q == 1 else float(np.logaddexp(math.log1p(-q), math.log(q) + tilt))

    low, high = math.floor(loss(-FAR * z) / width), math.ceil(loss(1 + FAR * z) / width)
    edges = np.arange(low, high + 1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inner = edges * width + np.log1p(-(1 - q) * np.exp(-edges * width)) - math.log(q)
    y = np.where(np.isnan(inner), -np.inf, z**2 * inner + 0.5)
    ends = np.concatenate([[-np.inf], y, [np.inf]])
    without = _between(ends[:-1] / z, ends[1:] / z)
    p = (1 - q) * without + q * _between((ends[:-1] - 1) / z, (ends[1:] - 1) / z)
    if removed:
        return _connect(low, p, without, width)
    return _connect(-high, without[::-1], p[::-1], width)


def _connect(first: int, p: Float64, q: Float64, width: float) -> LossGrid:
    """Divide P's mass of each cell between its two edges so that Q's mass stays what it is:
    `up + down = p` and `up e^-right + down e^-left = q`."""
    edges = (first + np.arange(len(p) - 2)) * width
    with np.errstate(over="ignore", invalid="ignore"):
        up = (p[1:-1] - q[1:-1] * np.exp(edges)) / -math.expm1(-width)
    up = np.clip(np.where(np.isnan(up), p[1:-1], up), 0.0, p[1:-1])
    mass = np.zeros(len(p) - 1)
    mass[1:] += up
    mass[:-1] += p[1:-1] - up
    mass[0] += p[0]
    return LossGrid(first, mass, float(p[-1]), width)


def _compose(releases: Sequence[SampledRelease], delta: float, removed: bool) -> LossGrid:
    """Return the privacy loss of all releases together."""
    width = min(_width(r) for r in releases)
    grids = [_discretize(r, width, removed) for r in releases]
    counts = [r.count for r in releases]
    cut = CUT * delta
    top, bottom = _bound(grids, counts, cut, 1), -_bound(grids, counts, cut, -1)
    first = math.floor(bottom / width)
    n = math.ceil(top / width) - first + 2
    if n > MOST_CELLS:
        raise MusterError(
            f"noise: {min(r.noise for r in releases):g} is so little that the account does not "
            "fit in memory; give more"
        )
    n = 1 << (n - 1).bit_length()
    spectrum = np.ones(n // 2 + 1, np.complex128)
    for grid, count in zip(grids, counts, strict=True):
        wrapped = np.zeros(n)
        np.add.at(wrapped, (grid.first + np.arange(len(grid.mass))) % n, grid.mass)
        spectrum *= np.fft.rfft(wrapped) ** count
    mass = np.roll(np.maximum(np.fft.irfft(spectrum, n), 0.0), -(first % n))
    finite = math.prod((1.0 - g.infinite) ** c for g, c in zip(grids, counts, strict=True))
    return LossGrid(first, mass, 1.0 - finite + 2 * cut, width)


def _bound(grids: Sequence[LossGrid], counts: Sequence[int], cut: float, sign: int) -> float:
    """Return a value that the sum of privacy losses (of their negatives, with `sign` -1) exceeds
    with probability `cut` at most, by Chernoff's bound."""
    from scipy.special import logsumexp

    best = math.inf
    for tilt in np.geomspace(1e-2, 1e3, 21):
        growth = sum(
            count * logsumexp(sign * tilt * grid.losses, b=grid.mass)
            for grid, count in zip(grids, counts, strict=True)
        )
        best = min(best, float(growth - math.log(cut)) / tilt)
    return best


def _solve(grid: LossGrid, delta: float) -> float:
    """Return the smallest epsilon from 0 with `sum (1 - e^(epsilon - loss)) mass <= delta` over
    losses above it."""
    seen = (grid.losses >= 0) & (grid.losses <= MOST_EPSILON)
    losses, mass = grid.losses[seen], grid.mass[seen]
    left = delta - grid.infinite - float(grid.mass[grid.losses > MOST_EPSILON].sum())
    if left <= 0:
        return math.inf
    above = np.cumsum(mass[::-1])[::-1]  # P's mass from each cell on
    others = np.cumsum((mass * np.exp(-losses))[::-1])[::-1]  # and Q's
    enough = np.flatnonzero(above - np.exp(losses) * others <= left)
    if not len(enough):
        return math.inf
    at = int(enough[0])
    if at == 0 or above[at] <= left:
        return float(losses[at])
    # Between two cells the curve is `above - e^epsilon others` of the cells from the second on.
    return max(0.0, math.log((above[at] - left) / others[at]))
