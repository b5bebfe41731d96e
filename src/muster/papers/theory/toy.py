"""Mean estimation: where MaxFL's objective puts the model, and which clients that model appeals to.

MaxFL section 2.2. Client k wants its true mean, `f_k(w) = (w - theta_k)^2`, and knows only its
empirical mean `that_k ~ N(theta_k, gamma^2)`: `F_k(w) = (w - that_k)^2 + (that_k - theta_k)^2`. Its
requirement is the loss of its solo model, `rho_k = F_k(that_k) = (that_k - theta_k)^2`, so that
`F_k(w) - rho_k = (w - that_k)^2`. A model appeals to client k where `f_k(w) < rho_k` (eq. 1). In
what follows `means` are the `that_k`, an array (draws, clients), and `errors` are
`e_k = that_k - theta_k`. By the offset `x_k = w - that_k`, a model appeals where
`x_k (x_k + 2 e_k) < 0`, that is x_k opposite in sign to e_k and |x_k| < 2 |e_k|.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from ...base.arrays import Bool, Float64
from ...base.checks import check_above, require
from ...base.errors import MusterError, unknown_name
from ...base.rng import generator
from .minima import (
    HALVINGS,
    is_appealing,
    log_sigmoid,
    safe_log,
    sigmoid,
    signed_sum,
)

GAMMA2 = 0.25  # the variance of the empirical means in Fig. 2


def places(clients: int | Sequence[float]) -> Float64:
    """Return the clients' true means, `theta_k / gamma_G`, from a number of clients or the places.

    A number M is M - 1 equal clients at -1 and a different one at 1. For two clients this is the
    paper's `gamma_G^2 = ((theta_1 - theta_2) / 2)^2`; for more it is our reading. Three clients
    that all differ are (-1, 1, 4), say. Beware of equal spacing, (-2, 0, 2): there the average of
    all is the truth of the middle client, which finds FedAvg appealing at any heterogeneity.

    >>> places(3).tolist()
    [-1.0, -1.0, 1.0]
    """
    if isinstance(clients, int):
        clients = [-1.0] * (clients - 1) + [1.0]
    where = np.asarray(clients, np.float64)
    if where.ndim != 1 or len(where) < 2 or not np.isfinite(where).all():
        raise MusterError(f"clients: {clients}; give a number from 2 or a list of 2 or more places")
    return where


def draw(
    gammaG2: float, gamma2: float, draws: int, seed: int, clients: int | Sequence[float] = 2
) -> tuple[Float64, Float64]:
    """Draw the clients' data: `(means, errors)`, each (draws, clients).

    True means are `gamma_G places(clients)`. Errors are `N(0, gamma^2)` and the same for every
    gamma_G^2, so that a curve over heterogeneity changes by heterogeneity alone.
    """
    require(0 <= gammaG2 < np.inf, "gammaG2", gammaG2, "finite numbers from 0")
    check_above("gamma2", gamma2)
    check_above("draws", draws)
    truth = np.sqrt(gammaG2) * places(clients)
    errors = np.sqrt(gamma2) * generator(seed, "toy").standard_normal((draws, len(truth)))
    return truth + errors, errors


def objective(w: ArrayLike, means: ArrayLike) -> Float64:
    """Return MaxFL's objective at each w, `sum_k sigmoid((w - that_k)^2) / M` (eq. 3;
    Fig. 2 b-c)."""
    x = np.asarray(w, np.float64)[..., None] - np.asarray(means, np.float64)
    return np.asarray(sigmoid(x**2).mean(axis=-1), np.float64)


def appeals(w: ArrayLike, means: ArrayLike, errors: ArrayLike) -> Bool:
    """Return to which clients the model `w` of each draw appeals: `f_k(w) < rho_k` (eq. 1).

    For MaxFL's model use `Minima.appeals`: rounded to one number, it may have lost its appeal.
    """
    x = np.asarray(w, np.float64)[..., None] - np.asarray(means, np.float64)
    return is_appealing(np.sign(x), safe_log(np.abs(x)), np.asarray(errors, np.float64))


# log h'(y) of the convex stand-ins for the 0-1 loss that Lemma 2.2 speaks of. ReLU is the identity
# here, since its argument (w - that_k)^2 is never negative.
CONVEX: dict[str, Callable[[Float64], Float64]] = {
    "relu": np.zeros_like,
    "log": log_sigmoid,
    "exp": np.positive,
}


def convex_minimiser(means: ArrayLike, surrogate: str) -> Float64:
    """Find the w that minimises `sum_k h((w - that_k)^2)` for a convex h, by bisection.

    `surrogate` is "relu" (the identity), "log" (`log(1 + e^y)`) or "exp". Lemma 2.2: for two
    clients this is their average, whatever h, so a convex surrogate is FedAvg again. The lemma
    stops at two clients: for three, h = exp is ruled by the farthest client and ends near the
    middle of the extremes; only the identity keeps to the average.
    """
    if surrogate not in CONVEX:
        raise unknown_name("surrogate", surrogate, CONVEX)
    that = np.atleast_2d(np.asarray(means, np.float64))
    lo, hi = that.min(axis=-1), that.max(axis=-1)
    for _ in range(HALVINGS):
        mid = lo + (hi - lo) / 2
        x = mid[:, None] - that
        slope, _size = signed_sum(np.sign(x), safe_log(np.abs(x)) + CONVEX[surrogate](x**2))
        lo, hi = np.where(slope < 0, mid, lo), np.where(slope < 0, hi, mid)
    return np.asarray((lo + (hi - lo) / 2).reshape(np.shape(means)[:-1]), np.float64)


def lemma_2_1(gamma2: float, gammaG2: ArrayLike) -> Float64:
    """Lemma 2.1: FedAvg's expected appeal is at most `2 exp(-gamma_G^2 / (5 gamma^2))`.

    The exponent is the best possible: the likeliest way to appeal is `3 e_1 + e_2 < -2 gamma_G`,
    of probability Phi(-2 gamma_G / (sqrt(10) gamma)). Vacuous (above 1) while
    `gamma_G^2 < 5 ln 2 gamma^2 = 3.47 gamma^2`. For two clients only: see `places` for three that
    break it.
    """
    check_above("gamma2", gamma2)
    return np.asarray(2 * np.exp(-np.asarray(gammaG2, np.float64) / (5 * gamma2)), np.float64)


def fedavg_appeal(gamma2: float, gammaG2: ArrayLike) -> Float64:
    """Compute FedAvg's expected appeal for two clients exactly.

    The average appeals to client 1 where `A = gamma_G + (e_2 - e_1)/2` and
    `B = gamma_G + (e_2 + 3 e_1)/2` differ in sign; they are normal with deviations gamma/sqrt(2)
    and sqrt(5/2) gamma and correlation -1/sqrt(5). So the probability is
    `2 T(h, a) + 2 T(k, b)` by Owen's T (1956), `h` and `k` being gamma_G by either deviation.

    >>> fedavg_appeal(0.25, [0.0, 1.0, 25.0]).round(12).tolist()
    [0.64758361765, 0.105283111574, 1.27e-10]
    """
    check_above("gamma2", gamma2)
    from scipy.special import owens_t

    gap, r = np.sqrt(np.asarray(gammaG2, np.float64) / gamma2), -1 / np.sqrt(5)
    h, k = gap * np.sqrt(2), gap / np.sqrt(2.5)
    a, b = ((ratio - r) / np.sqrt(1 - r**2) for ratio in (1 / np.sqrt(5), np.sqrt(5)))
    return np.asarray(2 * owens_t(h, a) + 2 * owens_t(k, b), np.float64)


def theorem_2_1(gamma2: float) -> float:
    """Theorem 2.1: MaxFL's expected appeal at a local minimum is at least `exp(-1/gamma^2) / 16`.

    Holds wherever tried, and is far from tight: 0.0011 at gamma^2 = 0.25, where 0.19 or more is
    seen.
    """
    check_above("gamma2", gamma2)
    return float(np.exp(-1 / gamma2) / 16)
