"""An attack on a private release: how much of a canary shows, as an epsilon that holds with 95 %.

Of many releases, half have the canary and half do not. A threshold on a statistic is chosen on a
first part of both; on the rest, whatever is (epsilon, delta)-private has
P(above | canary) <= e^epsilon P(above | none) + delta, and the same the other way round.
Clopper-Pearson intervals of these chances give an epsilon that the mechanism cannot be below.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import beta


def bound(hits, n, upper, level=0.025):
    """Clopper-Pearson's bound on a chance."""
    if upper:
        return 1.0 if hits == n else float(beta.ppf(1 - level, hits + 1, n - hits))
    return 0.0 if hits == 0 else float(beta.ppf(level, hits, n - hits + 1))


def epsilon_of(more, less, n, delta):
    """The epsilon that so many hits of n each show; 0 where they show none."""
    high, low = bound(more, n, upper=False) - delta, bound(less, n, upper=True)
    return max(0.0, float(np.log(high / low))) if high > 0 else 0.0


def attack(present, absent, delta):
    """Return the empirical epsilon of a statistic, above which the canary shows."""
    n = len(present) // 2
    assert len(present) == len(absent) == 2 * n

    def show(a, b, t):
        return (
            epsilon_of(int((a > t).sum()), int((b > t).sum()), n, delta),
            epsilon_of(int((b <= t).sum()), int((a <= t).sum()), n, delta),
        )

    tried = np.quantile(np.concatenate([present[:n], absent[:n]]), np.linspace(0.001, 0.999, 399))
    found = np.array([show(present[:n], absent[:n], t) for t in tried])
    best, side = np.unravel_index(found.argmax(), found.shape)
    return show(present[n:], absent[n:], tried[best])[side]
