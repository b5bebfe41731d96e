"""Schedules: every form, and the two settings that may follow one."""

from __future__ import annotations

import numpy as np
import pytest

import muster
from helpers import nine_clients
from muster.local import Local
from muster.schedules import Constant, Exponential, Inverse, Linear, StepTo

M = muster.methods


@pytest.fixture
def fed():
    return nine_clients()


def test_every_schedule():
    assert [Constant(0.2).at(t, 10) for t in (0, 9)] == [0.2, 0.2]
    assert [StepTo(0.2, 0.0, 5).at(t, 10) for t in (4, 5)] == [0.2, 0.0]
    assert [StepTo(0.2, 0.1, 0.5).at(t, 10) for t in (4, 5)] == [0.2, 0.1]
    assert Linear(1.0, 0.0).at(0, 11) == 1.0
    assert Linear(1.0, 0.0).at(5, 11) == pytest.approx(0.5)
    assert Linear(1.0, 0.2).at(10, 11) == pytest.approx(0.2)
    assert [Inverse(0.6).at(t, 10) for t in (0, 1, 2)] == pytest.approx([0.6, 0.3, 0.2])
    assert Exponential(0.5, 0.9).at(2, 10) == pytest.approx(0.405)


def test_epsilon_follows_its_schedule(fed):
    run = muster.simulate(
        fed, M.fedalign(StepTo(9.0, 0.0, 4), warmup=0), muster.models.Softmax(), rounds=8
    )
    assert run.rounds["eps"].to_list() == [9.0] * 4 + [0.0] * 4
    assert run.rounds["admitted_nonpriority"].to_list() == [6] * 4 + [0] * 4


def test_a_learning_rate_may_be_a_schedule(fed):
    local = Local(steps=1, batch_size=None, lr=StepTo(0.1, 0.0, 1))
    run = muster.simulate(fed, M.fedavg(), muster.models.Softmax(), 3, local)
    losses = run.rounds["loss"].to_list()
    assert losses[0] < np.log(4)
    assert losses[1:] == pytest.approx([losses[0]] * 2, abs=1e-6)


def test_a_line_ends_exactly_where_it_says():
    """0.9 - 0.9 * 99 / 99 is a little below 0, which is no epsilon."""
    assert M.fedalign(Linear(0.9)).schedule.at(99, 100) == 0.0
    assert [Linear(0.3, 0.1).at(t, 3) for t in (0, 2, 5)] == [0.3, 0.1, 0.1]
    assert Linear(0.3, 0.1).at(0, 1) == 0.3
