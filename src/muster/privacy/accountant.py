"""The accountant: the privacy that a number of releases with Gaussian noise costs, exactly.

One release of a sum to which a client adds at most C, with noise of deviation z C, is a Gaussian
mechanism; releases compose to one whose `mu^2 = sum_t (share_t / z)^2`, where `share_t C` is the
most that the client adds in round t. It has (epsilon, delta)-privacy for (Balle and Wang 2018)

`delta(eps; mu) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)`

and for no smaller delta. No amplification by sampling is used: who is asked is public, and who
joins decides for itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..base.checks import check_above, is_number, require
from ..base.lazy import special

TIMES = 1200  # halvings of an interval, at most: to the last bit of the smallest float


def delta_of(epsilon: float, mu: float) -> float:
    """Return the smallest delta for which a Gaussian mechanism of this mu is (epsilon, delta).

    >>> round(delta_of(1.0, 1.0), 4)
    0.1269
    """
    if mu == 0.0:
        return 0.0
    high = float(special.log_ndtr(mu / 2 - epsilon / mu))
    low = epsilon + float(special.log_ndtr(-mu / 2 - epsilon / mu))
    return -math.exp(high) * math.expm1(min(0.0, low - high))


def epsilon(noise: float, releases: float, delta: float) -> float:
    """Return the epsilon that so many releases cost a client that adds to each of them.

    Args:
        noise: z, the deviation of the noise in units of the clip C
        releases: number of releases; a client that counts by a share `a` of the clip adds `a^2`
        delta: the chance with which epsilon need not hold

    >>> round(epsilon(6.3755, 60, 1e-3), 4)
    4.0
    """
    check_above("noise", noise, double=True)
    require(is_number(releases) and releases >= 0, "releases", releases, "0 and above")
    check_delta(delta)
    mu = math.sqrt(releases) / noise
    if delta_of(0.0, mu) <= delta:
        return 0.0
    top = 1.0
    while delta_of(top, mu) > delta:
        top *= 2.0
    return bisect(lambda eps: delta_of(eps, mu) <= delta, 0.0, top)


def noise_for(epsilon: float, releases: float, delta: float) -> float:
    """Return the smallest noise z with which so many releases cost at most epsilon.

    >>> round(noise_for(4.0, 60, 1e-3), 2)
    6.38
    """
    check_above("epsilon", epsilon, double=True)
    check_above("releases", releases, double=True)
    check_delta(delta)
    top = 1.0
    while delta_of(epsilon, math.sqrt(releases) / top) > delta:
        top *= 2.0
    return bisect(lambda z: delta_of(epsilon, math.sqrt(releases) / z) <= delta, 0.0, top)


def bisect(enough: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest float that is enough, which `high` is and `low` is not; of the last
    interval the end that is enough, so that nothing is promised that does not hold."""
    for _ in range(TIMES):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def check_delta(delta: float, what: str = "delta") -> None:
    """Refuse a delta that is no chance."""
    require(is_number(delta) and 0.0 < delta < 1.0, what, delta, "above 0, below 1")
