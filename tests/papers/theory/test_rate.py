"""Theorem 3.1: its learning rates, MaxFL's objective and the gradient that is to vanish."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from muster.base.errors import MusterError
from muster.papers.theory import convex, rate
from muster.papers.theory.trajectory import small_synth


@pytest.fixture(scope="module")
def problem():
    return convex.problem(small_synth(), 0.0)


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


def test_the_curvature_of_the_objective():
    """`L_c^2 / (6 sqrt 3)` is reached by F(w) = L_c w, and L_c/4 is less from L_c = 2.598 on."""
    y = np.linspace(-5, 5, 100_001)
    s = 1 / (1 + np.exp(-y))
    assert np.abs(s * (1 - s) * (1 - 2 * s)).max() == pytest.approx(rate.STEEPEST, rel=1e-8)
    assert pytest.approx(2.598, abs=5e-4) == rate.MOST_SLOPE
    q = np.array([0.1, 0.2])
    assert rate.smoothness(2.0, 4.0, q, "printed") == pytest.approx(2 * 0.15 + 1)
    assert rate.smoothness(2.0, 4.0, q, "repaired") == pytest.approx(0.3 + 16 / (6 * np.sqrt(3)))
    for slope in (0.5, 2.59, 2.61, 20.0):
        most = rate.largest_curvature(slope)
        assert most == pytest.approx(rate.smoothness(0.0, slope, np.zeros(1), "repaired"), rel=1e-5)
        assert (most > rate.smoothness(0.0, slope, np.zeros(1), "printed")) == (slope > 2.598)


def test_the_repaired_curvature_bounds_any_objective(problem):
    """Against differences of the gradient of softmax regression's objective, in many directions."""
    draw = np.random.default_rng(2)
    L_c, L_s = np.sqrt(2) * problem.longest, problem.smoothness
    for scale in (0.0, 1.0, 5.0):
        w = scale * draw.standard_normal((10, 61))
        gap = np.array([c.value(w) for c in problem.clients])
        rho = gap + draw.choice([-1.3, 1.3], 8)  # where the sigmoid curves most
        most = rate.smoothness(L_s, L_c, rate.appeal_weight(gap - rho), "repaired")
        for _ in range(5):
            v = draw.standard_normal(w.shape)
            v *= 1e-3 / np.linalg.norm(v)
            ends = [rate.surrogate(problem, rho, w + step)[0] for step in (v, 0 * v, -v)]
            assert abs(ends[0] - 2 * ends[1] + ends[2]) / 1e-6 <= most
