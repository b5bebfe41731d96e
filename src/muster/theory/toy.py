"""Mean estimation: where MaxFL's objective puts the model, and which clients that model appeals to.

MaxFL section 2.2. Client k wants its true mean, `f_k(w) = (w - theta_k)^2`, and knows only its
empirical mean `that_k ~ N(theta_k, gamma^2)`: `F_k(w) = (w - that_k)^2 + (that_k - theta_k)^2`. Its
requirement is the loss of its solo model, `rho_k = F_k(that_k) = (that_k - theta_k)^2`, so that
`F_k(w) - rho_k = (w - that_k)^2`. A model appeals to client k where `f_k(w) < rho_k` (eq. 1). In
what follows `means` are the `that_k`, an array (draws, clients), and `errors` are
`e_k = that_k - theta_k`.

Everything is said by the offset `x_k = w - that_k`:

    appeal           x_k (x_k + 2 e_k) < 0, that is x_k opposite in sign to e_k and |x_k| < 2 |e_k|
    MaxFL, eq. 3     sum_k sigmoid(x_k^2) / M
    its slope, eq. 4 (2 / M) sum_k g(x_k),  g(x) = x q(x^2),  q(y) = 1 / (4 cosh^2(y / 2))

*Why offsets, and why their logarithms.* Far from the others, client k holds a minimum displaced
from `that_k` by `x_k ~ 4 D exp(-D^2)` toward the nearest other client, at a distance D: 6e-15 at
D = 6 (gamma_G^2 = 9), 1e-42 at D = 10. The spacing of float64 near `that_k` is 4e-16, so formed as
`w - that_k` it would soon be 0 and nobody would find the model appealing. Appeal hangs on its sign.
So a minimum is kept as (client, sign, log|x|), solved for in log|x|, and no offset is a difference
from a rounded `w`. The offsets to the other clients follow, `x_j = x_k + (that_k - that_j)`.

*Where minima can be.* g rises on [0, r] and falls after, r = 1.0216 (`split_point`). Where every
client is farther than r, the slope falls as w grows: the pull of clients on the left weakens, that
on the right strengthens. So no minimum lies there, and a search within r of each client, between
the outermost clients, sees them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit, log_expit

from ..arrays import Float64, Int64
from ..errors import MusterError, unknown
from ..parts.claim import appeal_weight
from ..rng import generator

__all__ = [
    "AppealCurve",
    "Minima",
    "appeal_curve",
    "appeal_weight",
    "appeals",
    "convex_minimiser",
    "draw",
    "fold_point",
    "lemma_2_1",
    "local_minima",
    "objective",
    "pick",
    "places",
    "split_point",
    "theorem_2_1",
    "theorem_3_1_rates",
]

Bool = NDArray[np.bool_]

REACH = 1.03  # a little beyond r, past which the slope can only fall
STEPS = 32  # search points on either side of a gap, at most REACH / 31 = 0.033 apart
HALVINGS = 64  # takes any interval met here below the spacing of float64
TIE = 1e-9  # minima whose log merit differs by less count as equally good: symmetry, not chance


# ---------------------------------------------------------------------------------- the problem


def places(clients: int | Sequence[float]) -> Float64:
    """Where the clients' true means lie, `theta_k / gamma_G`: a number of clients, or the places.

    A number M is M - 1 clients alike at -1 and a stranger at 1. For two clients this is the paper's
    `gamma_G^2 = ((theta_1 - theta_2) / 2)^2`; for more it is our reading. Three clients that all
    differ are (-1, 1, 4), say. Beware of equal spacing, (-2, 0, 2): there the average of all is the
    truth of the middle client, which finds FedAvg appealing at any heterogeneity.

    >>> places(3).tolist()
    [-1.0, -1.0, 1.0]
    """
    if isinstance(clients, int):
        clients = [-1.0] * (clients - 1) + [1.0]
    where = np.asarray(clients, np.float64)
    if where.ndim != 1 or len(where) < 2 or not np.isfinite(where).all():
        raise MusterError(f"clients is {clients}; give a number >= 2 or a list of 2 or more places")
    return where


def draw(
    gammaG2: float, gamma2: float, draws: int, seed: int, clients: int | Sequence[float] = 2
) -> tuple[Float64, Float64]:
    """Draw the clients' data: `(means, errors)`, each (draws, clients).

    True means are `gamma_G places(clients)`. Errors are `N(0, gamma^2)` and the same for every
    gamma_G^2, so that a curve over heterogeneity changes by heterogeneity alone.
    """
    if not (np.isfinite(gammaG2) and gammaG2 >= 0):
        raise MusterError(f"gammaG2 is {gammaG2}; it must be a number >= 0")
    _positive("gamma2", gamma2)
    _positive("draws", draws)
    truth = np.sqrt(gammaG2) * places(clients)
    errors = np.sqrt(gamma2) * generator(seed, "toy").standard_normal((draws, len(truth)))
    return truth + errors, errors


def objective(w: ArrayLike, means: ArrayLike) -> Float64:
    """MaxFL's objective at each w, `sum_k sigmoid((w - that_k)^2) / M` (eq. 3; Fig. 2 b-c)."""
    x = np.asarray(w, np.float64)[..., None] - np.asarray(means, np.float64)
    return np.asarray(expit(x**2).mean(axis=-1), np.float64)


def _positive(name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 0):
        raise MusterError(f"{name} is {value}; it must be a number > 0")


def _signed_sum(sign: Float64, log: Float64) -> tuple[Float64, Float64]:
    """`sum_k sign_k exp(log_k)` over the last axis as (sign, log), without under- or overflow."""
    top = log.max(axis=-1)
    top = np.where(np.isneginf(top), 0.0, top)  # all terms zero
    total = (sign * np.exp(log - top[..., None])).sum(axis=-1)
    return np.sign(total), top + _log(np.abs(total))


def _log(x: Float64) -> Float64:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(x), np.float64)


def _sigmoid_slope(y: Float64) -> Float64:
    """`log q(y)`, the log of the sigmoid's slope, for y >= 0."""
    return np.asarray(-y - 2 * np.log1p(np.exp(-y)), np.float64)


# ------------------------------------------------------------------------------- convex surrogates

# log h'(y) of the convex stand-ins for the 0-1 loss that Lemma 2.2 speaks of. ReLU is the identity
# here, since its argument (w - that_k)^2 is never negative.
CONVEX: dict[str, Callable[[Float64], Float64]] = {
    "relu": np.zeros_like,
    "log": log_expit,
    "exp": np.positive,
}


def convex_minimiser(means: ArrayLike, surrogate: str) -> Float64:
    """The w that minimises `sum_k h((w - that_k)^2)` for a convex h, found by bisection.

    `surrogate` is "relu" (the identity), "log" (`log(1 + e^y)`) or "exp". Lemma 2.2: for two
    clients this is their average, whatever h, so a convex surrogate is FedAvg again. The lemma
    stops at two clients: for three, h = exp is ruled by the farthest client and ends near the
    middle of the extremes; only the identity keeps to the average.
    """
    if surrogate not in CONVEX:
        raise unknown("surrogate", surrogate, CONVEX)
    that = np.atleast_2d(np.asarray(means, np.float64))
    lo, hi = that.min(axis=-1), that.max(axis=-1)
    for _ in range(HALVINGS):
        mid = lo + (hi - lo) / 2
        x = mid[:, None] - that
        slope, _size = _signed_sum(np.sign(x), _log(np.abs(x)) + CONVEX[surrogate](x**2))
        lo, hi = np.where(slope < 0, mid, lo), np.where(slope < 0, hi, mid)
    return np.asarray((lo + (hi - lo) / 2).reshape(np.shape(means)[:-1]), np.float64)


# ----------------------------------------------------------------------------------------- minima


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
        """The minima as numbers, rounded: for plots, never for deciding appeal."""
        return self.means[self.draw, self.anchor] + self.sign * np.exp(self.log_size)

    def offsets(self) -> tuple[Float64, Float64, Float64]:
        """`x_k = w - that_k` to every client, (minima, clients): its value, sign and log|x_k|.

        The value of the anchor's own offset may underflow to 0; its sign and log do not.
        """
        own = (np.arange(len(self.draw)), self.anchor)
        that = self.means[self.draw]
        x = that[own][:, None] - that + (self.sign * np.exp(self.log_size))[:, None]
        sign, log = np.sign(x), _log(np.abs(x))
        sign[own], log[own] = self.sign, self.log_size
        return x, sign, log

    def slope(self) -> tuple[Float64, Float64]:
        """`sum_k g(x_k)`, half of M times the slope of eq. 4, as (sign, log)."""
        x, sign, log = self.offsets()
        return _signed_sum(sign, log + _sigmoid_slope(x**2))

    def appeals(self, errors: Float64) -> Bool:
        """To which clients each minimum appeals, (minima, clients), from all draws' errors."""
        _x, sign, log = self.offsets()
        return _appeals(sign, log, errors[self.draw])

    def take(self, rows: Int64) -> Minima:
        """Some of them."""
        return Minima(
            self.means, self.draw[rows], self.anchor[rows], self.sign[rows], self.log_size[rows]
        )


def local_minima(means: ArrayLike) -> Minima:
    """All local minima of MaxFL's objective, for each row of `means` (draws, clients).

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
        _log(size).ravel(),
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
    lo = np.where(inner > 0, _log(inner), np.minimum(hi, log_slope[d, g, near]) - 10)
    found = grid.take(np.ravel_multi_index((d, g, near), left.shape))
    for _ in range(HALVINGS):
        mid = (lo + hi) / 2
        slope, _size = Minima(that, found.draw, found.anchor, found.sign, mid).slope()
        above = found.sign * slope > 0
        lo, hi = np.where(above, lo, mid), np.where(above, mid, hi)
    # No pull at all (a client midway between two others): lo is -inf and the displacement is 0.
    return Minima(that, d, found.anchor, np.where(np.isneginf(lo), 0.0, found.sign), lo)


PICKS = ("global", "random")


def pick(minima: Minima, which: str, rng: np.random.Generator) -> Minima:
    """One minimum of each draw: the "global" one, or a "random" one of all.

    Merit is `sum_k sigmoid(-x_k^2) - 1/2`, M (1 - objective) less the half that any client's own
    mean achieves: positive at the global minimum, and compared by its log, as minima far apart
    differ only by `exp(-D^2)`. Equals (two clients: always, by symmetry; of more that are all far
    apart, the two nearest each other, to 9 digits) are settled at random.
    """
    if which not in PICKS:
        raise unknown("choice of minimum", which, PICKS)
    first = np.flatnonzero(np.diff(minima.draw, prepend=-1))
    last = np.append(first[1:], len(minima.draw)) - 1
    chance = rng.random(len(minima.draw))
    if which == "global":
        x, _sign, _log_x = minima.offsets()
        own = (np.arange(len(minima.draw)), minima.anchor)
        log, sign = log_expit(-(x**2)), np.ones_like(x)
        # The anchor's own part: sigmoid(-y) - 1/2 = -tanh(y / 2) / 2.
        log[own], sign[own] = _log(np.tanh(x[own] ** 2 / 2) / 2), -1.0
        total, size = _signed_sum(sign, log)
        merit = np.where(total > 0, size, -np.inf)
        best = np.maximum.reduceat(merit, first)
        chance = np.where(merit >= best[minima.draw] - TIE, chance, -1.0)
    return minima.take(np.lexsort((chance, minima.draw))[last])


# ----------------------------------------------------------------------------------------- appeal


def appeals(w: ArrayLike, means: ArrayLike, errors: ArrayLike) -> Bool:
    """To which clients the model `w` of each draw appeals: `f_k(w) < rho_k` (eq. 1), strictly.

    For MaxFL's model use `Minima.appeals`: rounded to one number, it may have lost its appeal.
    """
    x = np.asarray(w, np.float64)[..., None] - np.asarray(means, np.float64)
    return _appeals(np.sign(x), _log(np.abs(x)), np.asarray(errors, np.float64))


def _appeals(sign: Float64, log: Float64, errors: Float64) -> Bool:
    """`(e + x)^2 < e^2` is `x (x + 2 e) < 0`: x opposite in sign to e, and |x| < 2 |e|."""
    return np.asarray((sign * np.sign(errors) < 0) & (log < _log(2 * np.abs(errors))), np.bool_)


class AppealCurve(NamedTuple):
    """GM-Appeal, the share of clients the model appeals to, at each gamma_G^2 (Fig. 2a)."""

    fedavg: Float64
    maxfl: Float64


def appeal_curve(
    gammaG2s: ArrayLike,
    gamma2: float = 0.25,
    draws: int = 3000,
    seed: int = 0,
    clients: int | Sequence[float] = 2,
    which: str = "global",
) -> AppealCurve:
    """Mean appeal of FedAvg's and MaxFL's model over draws of the data (Fig. 2a).

    FedAvg's model is the average of the `that_k`. MaxFL's is a local minimum, by default the global
    one, as eq. 3 asks. Two clients have mirror-image minima, so the choice does not matter. With
    three it does: two alike and a stranger (`clients=3`) have their global minimum where the two
    are, and appeal stays high however far the stranger is. It is not always above FedAvg's: with
    places (-1, 1, 4) at gamma_G^2 = 1, the global minimum appeals to 0.07, the average to 0.16.
    """
    curve = []
    for gammaG2 in np.asarray(gammaG2s, np.float64).ravel():
        means, errors = draw(float(gammaG2), gamma2, draws, seed, clients)
        model = pick(local_minima(means), which, generator(seed, "toy-pick"))
        fedavg = appeals(means.mean(axis=-1), means, errors)
        curve.append((fedavg.mean(), model.appeals(errors).mean()))
    fed, maxfl = np.array(curve, np.float64).reshape(-1, 2).T
    return AppealCurve(fed, maxfl)


# ----------------------------------------------------------------------------------------- claims


def lemma_2_1(gamma2: float, gammaG2: ArrayLike) -> Float64:
    """FedAvg's expected appeal is at most `2 exp(-gamma_G^2 / (5 gamma^2))` (Lemma 2.1).

    The exponent is the best possible: the likeliest way to appeal is `3 e_1 + e_2 < -2 gamma_G`,
    of probability Phi(-2 gamma_G / (sqrt(10) gamma)). Vacuous (above 1) while
    `gamma_G^2 < 5 ln 2 gamma^2 = 3.47 gamma^2`. For two clients only: see `places` for three that
    break it.
    """
    _positive("gamma2", gamma2)
    return np.asarray(2 * np.exp(-np.asarray(gammaG2, np.float64) / (5 * gamma2)), np.float64)


def theorem_2_1(gamma2: float) -> float:
    """MaxFL's expected appeal at a local minimum is at least `exp(-1/gamma^2) / 16` (Theorem 2.1).

    True wherever tried, and far from tight: 0.0011 at gamma^2 = 0.25, where 0.19 or more is seen.
    """
    _positive("gamma2", gamma2)
    return float(np.exp(-1 / gamma2) / 16)


def split_point() -> float:
    """The empirical heterogeneity where the average of two clients stops being a minimum: 1.0436.

    With `that = -a, a`, the curvature at the midpoint is proportional to
    `g'(a) = q(a^2) (1 - 2 a^2 tanh(a^2 / 2))`, as `q' = -q tanh(y / 2)`. It is 0 where
    `2 y tanh(y / 2) = 1`, `y = a^2 = ((that_2 - that_1) / 2)^2`. The root is r^2, r = 1.0216 being
    where g is largest.
    """
    return float(brentq(lambda y: 2 * y * np.tanh(y / 2) - 1, 0.5, 2.0, xtol=1e-15))


def fold_point() -> float:
    """The empirical heterogeneity where two clients' separate minima first appear: 1.0278.

    This is before the midpoint ceases to be one (`split_point`): in between there are three
    minima, so the model jumps from the average to either side; it does not slide. Stationary
    points at `u` from the midpoint obey `g(a + u) = g(a - u)`; as g has a single peak, each u has
    one such a, and the fold is the least of them. Both numbers agree with the paper's "one minimum
    below 1, separate ones above 2".
    """

    def log_pull(x: float) -> float:
        return float(np.log(x) + _sigmoid_slope(np.array(x * x)))

    def half_distance(u: float) -> float:
        return float(brentq(lambda a: log_pull(a + u) - log_pull(a - u), u * (1 + 1e-9), u + 3))

    best = minimize_scalar(half_distance, bounds=(0.05, 1.0), options={"xatol": 1e-9})
    return float(best.fun) ** 2


def theorem_3_1_rates(T: int, tau: int, m: int) -> tuple[float, float]:
    """The learning rates of Theorem 3.1: `eta_l = 1 / (sqrt(T) tau)`, `eta_g = sqrt(tau m)`.

    T rounds, tau local steps, m clients a round.

    >>> theorem_3_1_rates(T=100, tau=4, m=9)
    (0.025, 6.0)
    """
    for name, value in (("T", T), ("tau", tau), ("m", m)):
        _positive(name, value)
    return 1 / (math.sqrt(T) * tau), math.sqrt(tau * m)
