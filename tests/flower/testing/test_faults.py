"""Faults on a grid: they hit the replies that they hit in a simulation, and cost what they cost
there."""

from __future__ import annotations

import polars as pl
import pytest

import muster
from flower_parity import assert_same
from muster.flower.testing.faults import AGAIN, TWICE, FaultyGrid
from muster.parts.threats.faults import Faults

FEDALIGN = {"name": "fedalign", "epsilon": 5.0, "warmup": 0}
RATE = 0.3


def both(case, kind):
    rounds = case.chosen.settings.rounds
    real = case.run(case.grid(grid=lambda sites: FaultyGrid(sites, kind, RATE, rounds)))
    simulated = muster.simulate(
        case.fed, case.chosen.job.method, case.chosen.spec, rounds,
        case.chosen.local, dtype="float64", evaluate_every=0,
        attack=None if kind in (AGAIN, TWICE) else Faults(rate=RATE, kinds=(kind,)),
    )  # fmt: skip
    return real, simulated


@pytest.mark.parametrize("kind", ["turned", "one bit"])
def test_a_broken_model_is_the_simulations(setup, kind):
    case = setup(FEDALIGN, trust=True, evaluate_every=0)
    real, simulated = both(case, kind)
    assert_same(real, simulated)
    assert real.rounds["refused"].sum() > 0


def test_a_question_that_comes_twice_changes_nothing_and_an_old_reply_is_refused(setup):
    case = setup(FEDALIGN, trust=True, evaluate_every=0)
    assert_same(*both(case, TWICE))
    old = case.run(case.grid(grid=lambda s: FaultyGrid(s, AGAIN, RATE, 3)), name="again")
    reasons = set(old.clients.filter(~pl.col("admitted"))["reason"])
    assert "forged: does not repeat the nonce of the request" in reasons
