"""Range checks: one form of words, and numpy's numbers are numbers."""

from __future__ import annotations

import numpy as np
import pytest

import muster
from helpers import nine_clients
from muster.base import checks
from muster.schedules import Linear, as_schedule, count_rounds

M = muster.methods


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_numpy_whole_numbers_are_whole_numbers(kind):
    fed = nine_clients()
    local = muster.Local(steps=kind(2), batch_size=kind(4), lr=np.float32(0.1))
    method = M.fedalign(np.float32(0.3), warmup=kind(1), invite=muster.parts.Sample(kind(4)))
    run = muster.simulate(
        fed, method, muster.models.Softmax(), kind(3), local, seed=kind(1), evaluate_every=kind(1)
    )
    plain = muster.simulate(
        fed,
        M.fedalign(float(np.float32(0.3)), warmup=1, invite=muster.parts.Sample(4)),
        muster.models.Softmax(),
        3,
        muster.Local(steps=2, batch_size=4, lr=float(np.float32(0.1))),
        seed=1,
    )
    assert all(np.array_equal(run.weights[n], plain.weights[n]) for n in plain.weights)
    assert muster.Flexible(kind(3)).starts(10) == 3


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_numpy_fractions_are_fractions(kind):
    assert count_rounds(kind(0.25), 8, "warmup") == 2
    assert as_schedule(kind(0.5), "epsilon").at(0, 1) == 0.5
    assert M.maxfl(server_lr=kind(0.5)).step.server_lr == 0.5
    assert Linear(kind(0.5)).at(0, 2) == 0.5


@pytest.mark.parametrize(
    ("share", "rounds", "expected"),
    [(0.1, 5, 1), (0.05, 10, 1), (0.1, 15, 2), (0.1, 25, 3), (0.5, 3, 2), (0.29, 50, 15),
     (0.05, 9, 0), (0.05, 200, 10), (0.0, 5, 0), (1.0, 7, 7)],
)  # fmt: skip
def test_half_a_round_counts_as_one(share, rounds, expected):
    assert count_rounds(share, rounds, "warmup") == expected


def test_true_is_no_number():
    for wrong in (True, "3", None, 2.5):
        with pytest.raises(muster.MusterError, match=r"rounds: .*allowed: whole numbers from 1"):
            checks.check_whole("rounds", wrong)
    for wrong in (True, "3", None, float("nan")):
        with pytest.raises(muster.MusterError, match=r"mu: .*; allowed: 0 and above"):
            checks.check_at_least("mu", wrong)
    with pytest.raises(muster.MusterError, match="lr: inf; allowed: above 0"):
        checks.check_above("lr", float("inf"))


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda: muster.Local(steps=1, lr=1e300), "local lr"),
        (lambda: M.fedalign(prox=1e300), "prox"),
        (lambda: M.ditto(lam=1e300), "lam"),
        (lambda: M.fedadam(tau=1e300), "tau"),
        (lambda: muster.optimizers.sgd(weight_decay=1e300), "weight_decay"),
    ],
)
def test_numbers_that_float32_cannot_hold_are_refused(build, what):
    with pytest.raises(muster.MusterError, match=f"{what}: 1e\\+300; allowed: at most 1e\\+38"):
        build()
