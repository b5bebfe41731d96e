"""Terms of Theorem 1's bound."""

from __future__ import annotations

import numpy as np
import pytest

from muster.theory import bounds


def test_terms_of_the_bound():
    extra, bias = np.array([0.0, 1.0, 3.0]), np.array([0.0, 0.5, 0.9])
    steps, gamma, L, mu = 2, 8.0, 3.0, 0.5
    T = 6
    per = [extra[i // 2] for i in range(T)]
    theta = sum(1 / (1 + s) for s in per[1:]) / (T + gamma - 2)
    drift = sum(bias[i // 2] / (1 + extra[i // 2]) for i in range(1, T))
    rho = 2 * L / (mu * (T + gamma - 2)) * drift
    assert bounds.bound_terms(extra, bias, steps, gamma, L, mu) == pytest.approx((theta, rho))
    # At eps = 0 the printed theta is (T - 1)/(T + gamma - 2), not 1; from i = 0 it gains a term.
    zero, _ = bounds.bound_terms(np.zeros(3), None, steps, gamma, L, mu)
    assert zero == pytest.approx((T - 1) / (T + gamma - 2))
    repaired, _ = bounds.bound_terms(np.zeros(3), None, steps, gamma, L, mu, first=0)
    assert repaired == pytest.approx(T / (T + gamma - 2))
