"""Theorem 3.1: its learning rates, MaxFL's objective and the gradient that is to vanish."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from muster.errors import MusterError
from muster.theory import convex, rate, study


@pytest.fixture(scope="module")
def problem():
    return convex.problem(study.small(), 0.0)


def test_learning_rates():
    assert rate.theorem_3_1_rates(T=400, tau=25, m=4) == (1 / 500, 10.0)
    with pytest.raises(MusterError, match="T: 0"):
        rate.theorem_3_1_rates(0, 1, 1)


def test_the_objective_and_its_gradient_against_differences(problem):
    few = [replace(c, x=c.x[:, -4:], y=c.y % 3, classes=3) for c in problem.clients]
    problem = replace(problem, clients=tuple(few))
    draw = np.random.default_rng(0)
    w = draw.standard_normal((3, 4))
    losses = np.array([c.value(w) for c in problem.clients])
    rho = losses + draw.standard_normal(8)  # some met, some not
    value, size = rate.surrogate(problem, rho, w)
    assert value == pytest.approx(np.mean(1 / (1 + np.exp(rho - losses))))
    h, total = 1e-6, 0.0
    for place in np.ndindex(w.shape):
        step = np.zeros_like(w)
        step[place] = h
        up, _ = rate.surrogate(problem, rho, w + step)
        down, _ = rate.surrogate(problem, rho, w - step)
        total += ((up - down) / (2 * h)) ** 2
    assert size == pytest.approx(total, rel=1e-5)


def test_the_servers_epsilon(problem):
    """`m L_c / (4 L_s)`, with the losses' largest slope and curvature over many models."""
    draw = np.random.default_rng(1)
    models = [scale * draw.standard_normal((10, 61)) for scale in (0.0, 1.0, 10.0)]
    steepest = max(np.linalg.norm(c.gradient(w)) for c in problem.clients for w in models)
    L_c = np.sqrt(2) * problem.longest
    assert L_c / 3 < steepest <= L_c
    assert rate.server_epsilon(problem, 4) == pytest.approx(L_c / problem.smoothness)
