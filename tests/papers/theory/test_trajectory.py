"""muster run on the regularised problem, against a loop that shares nothing with it."""

from __future__ import annotations

import numpy as np
import pytest

import muster
from muster.papers.theory import bounds, convex, trajectory
from muster.papers.theory.trajectory import small_synth

LAM, E, ROUNDS, EPS = 0.3, 3, 6, 0.15


@pytest.fixture(scope="module")
def fed():
    return small_synth()


@pytest.fixture(scope="module")
def problem(fed):
    return convex.problem(fed, LAM)


@pytest.fixture(scope="module")
def constants(problem):
    return convex.constants(problem, None)


def slope(rows, w):
    """The gradient of the mean cross-entropy and the quadratic, row by row."""
    total = LAM * w
    for x, y in zip(rows.x, rows.y, strict=True):
        s = np.exp(w @ x - np.max(w @ x))
        s = s / s.sum()
        s[y] -= 1.0
        total = total + np.outer(s, x) / len(rows.y)
    return total


def fedalign(fed, problem, c):
    """Algorithm 1 with full batches: the model after every round, and who was let in."""
    w, t = np.zeros_like(c.w_star), 0
    for _ in range(ROUNDS):
        loss = np.array([o.value(w) for o in problem.clients])
        whole = fed.share[fed.priority] @ loss[fed.priority]
        let_in = fed.priority | (np.abs(loss - whole) < EPS)
        replies = []
        for k in np.flatnonzero(let_in):
            own = w
            for i in range(E):
                own = own - 2 / (c.mu * (t + i + max(8 * c.L / c.mu, E))) * slope(
                    problem.clients[k], own
                )
            replies.append(fed.share[k] * own)
        w, t = sum(replies) / fed.share[let_in].sum(), t + E
        yield w, let_in


def test_full_batches_against_a_plain_loop(fed, problem, constants):
    method = muster.methods.fedalign(EPS, warmup=0)
    local = trajectory.theorem_local(constants, E, None)
    ours = trajectory.follow(fed, method, local, ROUNDS, 0, range(1, ROUNDS + 1))
    extra, bias = ours.admitted_sums(fed, constants.Gamma_k)
    counted = set()
    for t, (w, let_in) in enumerate(fedalign(fed, problem, constants)):
        assert ours.models[t + 1] == pytest.approx(w, abs=1e-13)
        others = let_in & ~fed.priority
        assert extra[t] == pytest.approx(fed.share[others].sum())
        assert bias[t] == pytest.approx(fed.share[others] @ constants.Gamma_k[others])
        counted.add(int(others.sum()))
    assert len(counted) > 1, "some were let in and later not"


def test_from_another_start(fed, constants):
    """At the optimum FedAvg on the priority clients with full batches and E = 1 stays there."""
    local = trajectory.theorem_local(constants, 1, None)
    method = muster.methods.fedavg_priority()
    ran = trajectory.follow(fed, method, local, 3, 0, [1, 3], constants.w_star)
    assert sorted(ran.models) == [1, 3]
    assert ran.models[3] == pytest.approx(constants.w_star, abs=1e-9)
    away = trajectory.follow(fed, method, local, 1, 0, [1])
    assert np.abs(away.models[1] - constants.w_star).max() > 0.05


def test_batches_are_drawn_again_in_every_step(constants):
    """As eq. 37 needs it: from one shuffle, a batch is told by those before it."""
    assert trajectory.theorem_local(constants, 4, 10).batches == "independent"


def test_the_learning_rate_is_the_theorems(constants):
    local = trajectory.theorem_local(constants, 4, 10)
    for t, step in ((0, 0), (0, 3), (7, 2)):
        assert local.rate_at(t, step, 10) == pytest.approx(
            bounds.rate_at(constants, 4, 4 * t + step)
        )
