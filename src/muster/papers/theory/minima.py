"""Minima of MaxFL's objective in mean estimation, nearer to a client than float64 can tell.

Everything is computed from the offset `x_k = w - that_k` to client k's empirical mean:

    MaxFL, eq. 3     sum_k sigmoid(x_k^2) / M
    its slope, eq. 4 (2 / M) sum_k g(x_k),  g(x) = x q(x^2),  q(y) = 1 / (4 cosh^2(y / 2))

*Why offsets, and why their logarithms.* Far from the others, client k holds a minimum displaced
from `that_k` by `x_k ~ 4 D exp(-D^2)` toward the nearest other client, at a distance D: 6e-15 at
D = 6 (gamma_G^2 = 9), 1e-42 at D = 10. The spacing of float64 near `that_k` is 4e-16, so formed as
`w - that_k` it would soon be 0 and nobody would find the model appealing. Appeal depends on its
sign. So a minimum is stored as (client, sign, log|x|), solved for in log|x|, and no offset is a
difference from a rounded `w`. The offsets to the other clients follow,
`x_j = x_k + (that_k - that_j)`.

*Where minima can be.* g rises on [0, r] and falls after, r = 1.0216 (`split_point`). Where every
client is farther than r, the slope falls as w grows: the pull of clients on the left weakens, that
on the right strengthens. So no minimum lies there, and a search within r of each client, between
the outermost clients, sees them all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ...base.arrays import Bool, Float64, Int64
from ...base.errors import MusterError, unknown_name

REACH = 1.03  # a little beyond r, past which the slope can only fall
STEPS = 32  # search points on either side of a gap, at most REACH / 31 = 0.033 apart
HALVINGS = 64  # takes any interval met here below the spacing of float64
TIE = 1e-9  # minima whose log merit differs by less count as equally good: symmetry, not chance
PICKS = ("global", "random")


@dataclass(frozen=True, slots=True)
class Minima:
    """Local minima of MaxFL's objective, each as a client and a displacement from its mean.

    Entry i is a minimum of row `draw[i]` of `means`, at `means[draw, anchor] + sign exp(log_size)`.
    A draw may have several; they stand together, in the order of draws.
    """

    means: Float64
    draw: Int64
    anchor: Int64
    sign: Float64
    log_size: Float64

    def points(self) -> Float64:
        """Return the minima as numbers, rounded: for plots, never for deciding appeal."""
        return self.means[self.draw, self.anchor] + self.sign * np.exp(self.log_size)

    def offsets(self) -> tuple[Float64, Float64, Float64]:
        """`x_k = w - that_k` to every client, (minima, clients): its value, sign and log|x_k|.

        The value of the anchor's own offset may underflow to 0; its sign and log do not.
        """
        own = (np.arange(len(self.draw)), self.anchor)
        that = self.means[self.draw]
        x = that[own][:, None] - that + (self.sign * np.exp(self.log_size))[:, None]
        sign, log = np.sign(x), safe_log(np.abs(x))
        sign[own], log[own] = self.sign, self.log_size
        return x, sign, log

    def slope(self) -> tuple[Float64, Float64]:
        """`sum_k g(x_k)`, half of M times the slope of eq. 4, as (sign, log)."""
        x, sign, log = self.offsets()
        return signed_sum(sign, log + log_sigmoid_slope(x**2))

    def appeals(self, errors: Float64) -> Bool:
        """Return whom each minimum appeals to, (minima, clients), from all draws' errors."""
        _x, sign, log = self.offsets()
        return is_appealing(sign, log, errors[self.draw])

    def take(self, rows: Int64) -> Minima:
        """Return some of the minima."""
        return Minima(
            self.means, self.draw[rows], self.anchor[rows], self.sign[rows], self.log_size[rows]
        )


def local_minima(means: ArrayLike) -> Minima:
    """Find all local minima of MaxFL's objective, for each row of `means` (draws, clients).

    Between neighbours, the sign of the slope is taken at points dense near both; where it turns
    from minus to plus, the minimum is found by bisection in log|displacement|. A minimum
    whose basin is narrower than 0.033 may be missed; that is one about to vanish.
    """
    that = np.atleast_2d(np.asarray(means, np.float64))
    if that.shape[-1] < 2 or not np.isfinite(that).all():
        raise MusterError("means must be finite, two or more in each draw")
    order = np.argsort(that, axis=-1)
    gap = np.diff(np.take_along_axis(that, order, axis=-1), axis=-1)
    if not (gap > 0).all():
        raise MusterError("means must differ within each draw")

    # Points 0 .. STEPS-1 of a gap are measured from its left client, the rest from its right one.
    # The middle interval has no point at its centre, where two clients have a stationary point.
    step = np.minimum(gap / (2 * STEPS - 1), REACH / (STEPS - 1))[..., None]
    point = np.arange(2 * STEPS)
    left = np.broadcast_to(point < STEPS, (*gap.shape, 2 * STEPS))
    size = step * np.minimum(point, 2 * STEPS - 1 - point)
    rows = np.broadcast_to(np.arange(len(that))[:, None, None], left.shape)
    grid = Minima(
        that,
        rows.ravel(),
        np.where(left, order[:, :-1, None], order[:, 1:, None]).ravel(),
        np.where(left, 1.0, -1.0).ravel(),
        safe_log(size).ravel(),
    )
    sign, log_slope = (part.reshape(left.shape) for part in grid.slope())

    # Upward crossings. Each is measured from the client of its nearer end, so its displacement
    # grows from `near` to `far`, and the slope along the displacement goes from minus to plus.
    d, g, i = np.nonzero((sign[..., :-1] <= 0) & (sign[..., 1:] > 0))
    near, far = np.where(i < STEPS, (i, i + 1), (i + 1, i))
    inner, outer = size[d, g, near], size[d, g, far]
    outer = np.where(i == STEPS - 1, gap[d, g] - inner, outer)
    # From a client outward, start where its own pull, at most |x| / 4, is still too weak to stop
    # the pull of the others.
    hi = np.log(outer)
    lo = np.where(inner > 0, safe_log(inner), np.minimum(hi, log_slope[d, g, near]) - 10)
    found = grid.take(np.ravel_multi_index((d, g, near), left.shape))
    for _ in range(HALVINGS):
        mid = (lo + hi) / 2
        slope, _size = Minima(that, found.draw, found.anchor, found.sign, mid).slope()
        above = found.sign * slope > 0
        lo, hi = np.where(above, lo, mid), np.where(above, mid, hi)
    # No pull at all (a client midway between two others): lo is -inf and the displacement is 0.
    return Minima(that, d, found.anchor, np.where(np.isneginf(lo), 0.0, found.sign), lo)


def pick(minima: Minima, which: str, rng: np.random.Generator) -> Minima:
    """Choose one minimum of each draw: the "global" one, or a "random" one of all.

    Merit is `sum_k sigmoid(-x_k^2) - 1/2`, M (1 - objective) less the half that any client's own
    mean achieves: positive at the global minimum, and compared by its log, as minima far apart
    differ only by `exp(-D^2)`. Equals (two clients: always, by symmetry; of more that are all far
    apart, the two nearest each other, to 9 digits) are chosen between at random.
    """
    if which not in PICKS:
        raise unknown_name("choice of minimum", which, PICKS)
    first = np.flatnonzero(np.diff(minima.draw, prepend=-1))
    last = np.append(first[1:], len(minima.draw)) - 1
    chance = rng.random(len(minima.draw))
    if which == "global":
        x, _sign, _log_x = minima.offsets()
        own = (np.arange(len(minima.draw)), minima.anchor)
        log, sign = log_sigmoid(-(x**2)), np.ones_like(x)
        # The anchor's own part: sigmoid(-y) - 1/2 = -tanh(y / 2) / 2.
        log[own], sign[own] = safe_log(np.tanh(x[own] ** 2 / 2) / 2), -1.0
        total, size = signed_sum(sign, log)
        merit = np.where(total > 0, size, -np.inf)
        best = np.maximum.reduceat(merit, first)
        chance = np.where(merit >= best[minima.draw] - TIE, chance, -1.0)
    return minima.take(np.lexsort((chance, minima.draw))[last])


def split_point() -> float:
    """The empirical heterogeneity where the average of two clients stops being a minimum: 1.0436.

    With `that = -a, a`, the curvature at the midpoint is proportional to
    `g'(a) = q(a^2) (1 - 2 a^2 tanh(a^2 / 2))`, as `q' = -q tanh(y / 2)`. It is 0 where
    `2 y tanh(y / 2) = 1`, `y = a^2 = ((that_2 - that_1) / 2)^2`. The root is r^2, r = 1.0216 being
    where g is largest.
    """
    from scipy.optimize import brentq

    return float(brentq(lambda y: 2 * y * np.tanh(y / 2) - 1, 0.5, 2.0, xtol=1e-15))


def fold_point() -> float:
    """The empirical heterogeneity where two clients' separate minima first appear: 1.0278.

    This is before the midpoint ceases to be one (`split_point`): in between there are three
    minima, so the model jumps from the average to either side; it does not slide. Stationary
    points at `u` from the midpoint obey `g(a + u) = g(a - u)`; as g has a single peak, each u has
    one such a, and the fold is the least of them. Both numbers agree with the paper's "one minimum
    below 1, separate ones above 2".
    """
    from scipy.optimize import brentq, minimize_scalar

    def log_pull(x: float) -> float:
        return float(np.log(x) + log_sigmoid_slope(np.array(x * x)))

    def half_distance(u: float) -> float:
        return float(brentq(lambda a: log_pull(a + u) - log_pull(a - u), u * (1 + 1e-9), u + 3))

    best = minimize_scalar(half_distance, bounds=(0.05, 1.0), options={"xatol": 1e-9})
    return float(best.fun) ** 2


def is_appealing(sign: Float64, log: Float64, errors: Float64) -> Bool:
    """`(e + x)^2 < e^2` is `x (x + 2 e) < 0`: x opposite in sign to e, and |x| < 2 |e|."""
    return np.asarray((sign * np.sign(errors) < 0) & (log < safe_log(2 * np.abs(errors))), np.bool_)


def signed_sum(sign: Float64, log: Float64) -> tuple[Float64, Float64]:
    """`sum_k sign_k exp(log_k)` over the last axis as (sign, log), without under- or overflow."""
    top = log.max(axis=-1)
    top = np.where(np.isneginf(top), 0.0, top)  # all terms zero
    total = (sign * np.exp(log - top[..., None])).sum(axis=-1)
    return np.sign(total), top + safe_log(np.abs(total))


def safe_log(x: Float64) -> Float64:
    """Return `log x`, -inf at 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(x), np.float64)


def log_sigmoid_slope(y: Float64) -> Float64:
    """`log q(y)`, the log of the sigmoid's slope, for y >= 0."""
    return np.asarray(-y - 2 * np.log1p(np.exp(-y)), np.float64)


def sigmoid(y: Float64) -> Float64:
    """`1 / (1 + exp(-y))`, without overflow."""
    return np.asarray((1.0 + np.tanh(y / 2)) / 2, np.float64)


def log_sigmoid(y: Float64) -> Float64:
    """Its logarithm, also where the sigmoid is too small for a number."""
    return np.asarray(-np.logaddexp(0.0, -y), np.float64)
