"""What can go wrong with one client, each alone: the round goes on without it, the ledger says
why, and the model is finite and is what the others alone would have made of it."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from flower_setup import Setup
from muster.flower.testing.faults import WIRE

BAD = 3  # the client that misbehaves; not priority, and it joins when it behaves
REASONS = {
    "raises": "failed: the client raised an error",
    "killed mid-round": "failed: the node went away",
    "too late": "failed: no answer within 0.3 s",
    "nan": "malformed: not finite",
    "inf": "malformed: not finite",
    "huge weights": "malformed: not finite",
    "wrong shape": "malformed: shapes of arrays",
    "shape that broadcasts": "malformed: shapes of arrays",
    "wrong dtype": "malformed: dtype of arrays",
    "integers": "malformed: dtype of arrays",
    "missing array": "malformed: names of arrays",
    "extra array": "malformed: names of arrays",
    "says another shape": "malformed: shapes of arrays",
    "says another dtype": "malformed: dtype of arrays",
    "cut bytes": "malformed: ValueError",
    "a pickle": "malformed: ValueError",
    "another encoding": "malformed: TypeError",
    "huge sample count": "impossible sample count",
    "negative sample count": "impossible sample count",
    "no sample count": "impossible sample count",
    "unknown key": "malformed: unknown key 'surprise'",
    "unknown record": "malformed: unknown record 'surprise'",
    "no word": "forged: does not repeat the nonce",
    "an empty word": "forged: does not repeat the nonce",
    "no model": "malformed: no model",
    "a huge loss": "impossible loss",
    "a negative loss": "impossible loss",
    "no loss": "impossible loss",
    "an impossible accuracy": "impossible accuracy",
    "text for a number": "malformed: loss is no float",
    "someone else's round": "answers round 7, not 1",
    "another client": "answers for another client",
    "abstains, with weights": "malformed: abstained, with arrays",
    "says nothing of joining": "malformed: neither joined nor abstained",
    "negative steps": "impossible number of steps",
    "claims to be priority": "malformed: unknown key 'priority'",
}


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """The model the others make when client BAD has left before training."""
    case = Setup(tmp_path_factory.mktemp("without"), **QUICK)
    case.nodes[BAD].tamper = WIRE["killed mid-round"]
    return case.run().weights


METHOD = {"name": "fedalign", "epsilon": 1.0, "warmup": 0}
QUICK = {"method": METHOD, "rounds": 2, "evaluate_every": 0}


@pytest.mark.parametrize("fault", WIRE)
def test_the_round_goes_on_without_it_and_the_ledger_says_why(setup, fault, without):
    reason = REASONS[fault]
    case = setup(**QUICK)
    case.nodes[BAD].tamper = WIRE[fault]
    run = case.run()
    rows = run.clients.filter(pl.col("client") == BAD).sort("round")
    assert not rows["admitted"].any()
    assert (rows["weight"] == 0).all()
    assert rows["reason"][1 if "round 7" in reason else 0].startswith(reason)
    others = run.clients.filter(pl.col("client") != BAD)
    assert others["admitted"].all()
    failed = reason.startswith("failed")
    assert run.rounds["failed"].to_list() == [int(failed)] * 2
    assert run.rounds["refused"].to_list() == [int(not failed)] * 2
    for name, w in run.weights.items():
        assert np.isfinite(w).all()
        np.testing.assert_array_equal(w, without[name])
