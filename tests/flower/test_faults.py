"""What can go wrong with one client, each alone: the round goes on without it, the ledger says
why, and the model is finite and is what the others alone would have made of it."""

from __future__ import annotations

import io

import numpy as np
import polars as pl
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict

from flower_setup import Setup
from flower_tamper import in_training, word
from muster.flower.wire import MODEL, WORD

BAD = 3  # the client that misbehaves; not priority, and it joins when it behaves


def model(change):
    def tamper(message, reply):
        arrays = {n: a.numpy().copy() for n, a in reply.content.array_records[MODEL].items()}
        reply.content[MODEL] = ArrayRecord({n: Array(a) for n, a in change(arrays).items()})
        return reply

    return in_training(tamper)


def first(change):
    """Changes the first of a model's arrays."""
    return model(lambda arrays: {**arrays, "1.weight": change(arrays["1.weight"])})


def raw(**fields):
    """Replaces what the first array says of itself, or its bytes."""

    def tamper(message, reply):
        record = reply.content.array_records[MODEL]
        a = record["1.weight"]
        said = {"dtype": a.dtype, "shape": a.shape, "stype": a.stype, "data": a.data, **fields}
        record["1.weight"] = Array(**said)
        return reply

    return in_training(tamper)


def raises(message, reply):
    raise RuntimeError("the client's disk is full")


def died(message, reply):
    return Message(Error(5, "node unavailable"), reply_to=message)


def extra_record(message, reply):
    reply.content["surprise"] = ConfigRecord({"a": 1})
    return reply


def without_word(message, reply):
    return Message(RecordDict({MODEL: reply.content[MODEL]}), reply_to=message)


def empty_word(message, reply):
    reply.content[WORD] = ConfigRecord()
    return reply


def arrays_of_another(message, reply):
    del reply.content[MODEL]
    return reply


def pickled():
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], object), allow_pickle=True)
    return buffer.getvalue()


FAULTS = {
    "raises": (in_training(raises), "failed: the client raised an error"),
    "killed mid-round": (in_training(died), "failed: the node went away"),
    "too late": (in_training(lambda message, reply: None), "failed: no answer within 0.3 s"),
    "nan": (first(lambda w: w * np.nan), "malformed: not finite"),
    "inf": (first(lambda w: w + np.inf), "malformed: not finite"),
    "huge weights": (first(lambda w: w + 1e200), "malformed: not finite"),
    "wrong shape": (first(lambda w: w[:, :-1]), "malformed: shapes of arrays"),
    "shape that broadcasts": (first(lambda w: w[:1]), "malformed: shapes of arrays"),
    "wrong dtype": (first(lambda w: w.astype(np.float32)), "malformed: dtype of arrays"),
    "integers": (first(lambda w: w.astype(np.int64)), "malformed: dtype of arrays"),
    "missing array": (model(lambda a: {"1.bias": a["1.bias"]}), "malformed: names of arrays"),
    "extra array": (model(lambda a: {**a, "more": a["1.bias"]}), "malformed: names of arrays"),
    "says another shape": (raw(shape=(1,)), "malformed: shapes of arrays"),
    "says another dtype": (raw(dtype="float32"), "malformed: dtype of arrays"),
    "cut bytes": (raw(data=b"\x93NUMPY\x01"), "malformed: ValueError"),
    "a pickle": (raw(data=pickled()), "malformed: ValueError"),
    "another encoding": (raw(stype="pickle"), "malformed: TypeError"),
    "huge sample count": (word(rows=10**12), "impossible sample count"),
    "negative sample count": (word(rows=-5), "impossible sample count"),
    "no sample count": (word(rows=None), "impossible sample count"),
    "unknown key": (word(surprise=1), "malformed: unknown key 'surprise'"),
    "unknown record": (in_training(extra_record), "malformed: unknown record 'surprise'"),
    "no word": (in_training(without_word), "forged: does not repeat the nonce"),
    "an empty word": (in_training(empty_word), "forged: does not repeat the nonce"),
    "no model": (in_training(arrays_of_another), "malformed: no model"),
    "a huge loss": (word(loss=1e12), "impossible loss"),
    "a negative loss": (word(loss=-1.0), "impossible loss"),
    "no loss": (word(loss=None), "impossible loss"),
    "an impossible accuracy": (word(accuracy=7.0), "impossible accuracy"),
    "text for a number": (word(loss="low"), "malformed: loss is no float"),
    "someone else's round": (word(round=7), "answers round 7, not 1"),
    "another client": (word(client=0), "answers for another client"),
    "abstains, with weights": (word(joined=False), "malformed: abstained, with arrays"),
    "says nothing of joining": (word(joined=None), "malformed: neither joined nor abstained"),
    "negative steps": (word(steps=-1), "impossible number of steps"),
    "claims to be priority": (word(priority=True), "malformed: unknown key 'priority'"),
}  # fmt: skip


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """The model the others make when client BAD has left before training."""
    case = Setup(tmp_path_factory.mktemp("without"), **QUICK)
    case.nodes[BAD].tamper = in_training(died)
    return case.run().weights


METHOD = {"name": "fedalign", "epsilon": 1.0, "warmup": 0}
QUICK = {"method": METHOD, "rounds": 2, "evaluate_every": 0}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_round_goes_on_without_it_and_the_ledger_says_why(setup, fault, without):
    tamper, reason = FAULTS[fault]
    case = setup(**QUICK)
    case.nodes[BAD].tamper = tamper
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
