"""Theorem 1, Theorem A.9 and Corollary 2 of the FedALIGN paper: the bound, as printed and repaired.

With `gamma = max(8 L/mu, E)`, `eta_t = 2/(mu (t + gamma))` and t counting local steps,

    E F(w_T) - F* <= (C1 + C2 theta_T Gamma) / (T + gamma) + rho_T
    C1      = 2L/mu^2 (sigma^2 + 8 (E-1)^2 G^2 [+ 8 E^2 G^2 / K]) + 4 L^2/mu |w_0 - w*|^2
    C2      = 12 L^2/mu^2
    theta_T = 1/(T + gamma - 2) sum_i E 1/(1 + S_i),      S_i = sum_{k not in P} p_k I_k(i)
    rho_T   = 2L/(mu (T + gamma - 2)) sum_i E sum_{k not in P} p_k I_k(i) Gamma_k / (1 + S_i)

The bracket is A.9's, for K priority clients drawn with replacement. The printed form differs from
what its proof (Lemma A.6 and the induction of A.2) gives in four places:

1. `4 L^2/mu |w_0 - w*|^2` is `L gamma/2 |w_0 - w*|^2` at gamma = 8 L/mu only; it is too small
   where E is larger. The repaired form has the general term.
2. The sums start at i = 1 and so lose the first step's B_0 and D_0: the induction fails from t = 0
   to 1. The repaired form starts at i = 0. (Started at the optimum with full batches and E = 1, a
   client with another minimum admitted, Theorem 1 as printed is 0 after one step, and the model
   has moved away. In A.9 what is left then is the draw's term, which falls with K; the first step's
   bias does not.)
3. At eps = 0 the printed theta_T is (T - 1)/(T + gamma - 2), not 1 as section 3.2 says; nor is the
   repaired one, T/(T + gamma - 2). Both tend to 1. And eq. 35 lost its 1/(T + gamma).
4. A.9 sets gamma = 8 L/mu; Lemma A.4 needs gamma >= E there too.

One term is valid but larger than it need be: by Lemma A.8 the draw adds 4 E^2 G^2 / (K (1 + S)^2)
to the squared distance, and only in steps that communicate; eq. 58 doubles it to 8 E^2 G^2 / K.
Both forms have it as printed.

Corollary 2 says that eps_t -> 0 brings the error to 0. It does not: a client whose loss is equal to
F(w_t) all the way, but whose minimum is elsewhere, stays in at every eps_t > 0, and rho_T with it.
eps_t = 0 from some round on is enough, as inequalities are strict.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from ...base.arrays import Float64
from ...base.lazy import pl
from .convex import Constants

Form = Literal["printed", "repaired"]
FORMS: tuple[Form, ...] = ("printed", "repaired")


def offset(c: Constants, steps: int, form: Form = "repaired", drawn: int | None = None) -> float:
    """`gamma = max(8 L/mu, E)`, by which the learning rate's clock is ahead; A.9 (`drawn` = K)
    prints `gamma = 8 L/mu`."""
    needed = 8 * c.L / c.mu
    return needed if form == "printed" and drawn is not None else max(needed, float(steps))


def rate_at(c: Constants, steps: int, t: int) -> float:
    """`eta_t = 2/(mu (t + gamma))` in local step t, counted from 0."""
    return 2.0 / (c.mu * (t + offset(c, steps)))


def first_constant(c: Constants, steps: int, form: Form, drawn: int | None = None) -> float:
    """C1; with `drawn` = K, that of A.9."""
    spread = c.sigma2 + 8 * (steps - 1) ** 2 * c.G2
    if drawn is not None:
        spread += 8 * steps**2 * c.G2 / drawn
    far = 4 * c.L**2 / c.mu if form == "printed" else c.L * offset(c, steps) / 2
    return 2 * c.L / c.mu**2 * spread + far * c.start2


def second_constant(c: Constants) -> float:
    """C2."""
    return 12 * c.L**2 / c.mu**2


def terms_by_round(
    extra: Float64,
    bias: Float64,
    steps: int,
    gamma: float,
    smoothness: float,
    convexity: float,
    first: int = 1,
) -> tuple[Float64, Float64]:
    """Return `theta_T` and `rho_T` (eq. 7, 8) after each round, from what each round admitted.

    Args:
        extra: S_t = sum over admitted non-priority clients of p_k, one entry per round
        bias: sum over the same of p_k Gamma_k
        steps: E, local steps per round: i counts local steps, tau(i) is the round they belong to
        first: 1 as printed; 0 repairs the printed sums, which drop the first step's terms
    """
    share = 1.0 / (1.0 + np.repeat(extra, steps))
    drift = np.repeat(bias, steps) * share
    share[:first], drift[:first] = 0.0, 0.0
    last = np.arange(1, len(extra) + 1) * steps
    scale = 1.0 / (last + gamma - 2.0)
    theta = scale * np.cumsum(share)[last - 1]
    return theta, 2.0 * smoothness / convexity * scale * np.cumsum(drift)[last - 1]


def bound_terms(
    extra: Float64,
    bias: Float64 | None,
    steps: int,
    gamma: float,
    smoothness: float,
    convexity: float,
    first: int = 1,
) -> tuple[float, float]:
    """Return `theta_T` and `rho_T` after the last round (`terms_by_round`); without `bias`, where
    the Gamma_k are not known, rho_T is NaN."""
    known = np.full(len(extra), np.nan) if bias is None else bias
    theta, rho = terms_by_round(extra, known, steps, gamma, smoothness, convexity, first)
    return float(theta[-1]), float(rho[-1])


def bound_by_round(
    c: Constants, extra: Float64, bias: Float64, steps: int, drawn: int | None = None
) -> pl.DataFrame:
    """Return the bound after every round in both forms: one row per round and form.

    `extra` and `bias` as for `terms_by_round`; with an axis of seeds in front, the terms are their
    means over the seeds, which estimate the expectation. The learning rates are those of the
    repaired gamma; that of A.9 as printed is another only where E > 8 L/mu.
    """
    extra, bias = np.atleast_2d(extra), np.atleast_2d(bias)
    rounds = np.arange(1, extra.shape[1] + 1)
    frames = []
    for form in FORMS:
        first = 1 if form == "printed" else 0
        gamma = offset(c, steps, form, drawn)
        each = [
            terms_by_round(s, b, steps, gamma, c.L, c.mu, first)
            for s, b in zip(extra, bias, strict=True)
        ]
        theta, rho = np.mean([t for t, _ in each], axis=0), np.mean([r for _, r in each], axis=0)
        C1, C2 = first_constant(c, steps, form, drawn), second_constant(c)
        frames.append(
            pl.DataFrame(
                {
                    "round": rounds,
                    "T": rounds * steps,
                    "form": [form] * len(rounds),
                    "C1": np.full(len(rounds), C1),
                    "C2": np.full(len(rounds), C2),
                    "theta": theta,
                    "rho": rho,
                    "bound": (C1 + C2 * theta * c.Gamma) / (rounds * steps + gamma) + rho,
                }
            )
        )
    return pl.concat(frames)


def informative_from(C1: float, C2: float, Gamma: float, gamma: float, start: float) -> float:
    """Return the T from which the repaired bound at eps = 0 is below the error at the start.

    There theta_T = T/(T + gamma - 2) and rho_T = 0, so that with s = T + gamma the bound is `start`
    where `start s (s - 2) = C1 (s - 2) + C2 Gamma (s - gamma)`: the larger root, and 0 where the
    bound is below from the beginning.
    """
    if start <= 0:
        return math.inf
    half = (start + (C1 + C2 * Gamma) / 2) / start
    inner = half**2 - (2 * C1 + C2 * Gamma * gamma) / start
    return max(0.0, half + math.sqrt(inner) - gamma) if inner >= 0 else 0.0
