"""Trust over the network: the same ruling as simulated, from the same configuration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MessageType

from flower_parity import assert_same
from flower_setup import DATA
from muster.config.network import Network
from muster.flower.server.remote_clients import TRY
from muster.flower.testing.faults import train_only
from muster.flower.transport.wire import MODEL, REPORT
from muster.parts import Audit

FEDALIGN = {"name": "fedalign", "epsilon": 5.0, "warmup": 0}
REQUIREMENT = {"requirement": {"steps": 15, "lr": 0.3}}
CASES = {
    "fedalign": (FEDALIGN, {}),
    "maxfl": ({"name": "maxfl"}, REQUIREMENT),
    "maxfl among peers": ({"name": "maxfl"}, {**REQUIREMENT, "data": DATA | {"priority": "all"}}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_configuration_has_it_unless_it_says_no_and_the_weights_are_the_simulators(setup, name):
    method, settings = CASES[name]
    case = setup(method, **{"trust": None, "rounds": 2, **settings})
    assert case.chosen.job.method.trust == Audit()
    real = case.run()
    assert (real.rounds["trials"] >= 4).all()
    assert case.chosen.network != Network()
    simulated = case.simulate()
    assert_same(real, simulated)
    assert real.rounds["trials"].to_list() == simulated.rounds["trials"].to_list()
    off = setup(method, rounds=2, **settings).run(name="off")
    assert "trials" not in off.rounds.columns
    extra = real.rounds["bytes_down"].sum() - off.rounds["bytes_down"].sum()
    least = simulated.rounds["trials"].sum() * 650 * 8  # a model of 650 numbers of eight bytes
    assert least < extra < 3 * least
    others = [r.clients.filter(~pl.col("priority"))["bytes_down"].sum() for r in (real, off)]
    assert abs(others[0] - others[1]) < 1000, "others are not asked"


def turned(message, reply):
    """The update the other way, ten times over."""
    was, sent = message.content.array_records[MODEL], reply.content.array_records[MODEL]
    back = {n: was[n].numpy() - 10 * (w.numpy() - was[n].numpy()) for n, w in sent.items()}
    reply.content[MODEL] = ArrayRecord({n: Array(w) for n, w in back.items()})
    return reply


def test_a_client_that_turns_its_update_is_refused_with_a_reason(setup):
    case = setup(FEDALIGN, trust=True, evaluate_every=0)
    case.nodes[3].tamper = train_only(turned)
    run = case.run()
    liar = run.clients.filter(pl.col("client") == 3)
    assert not liar["admitted"].any()
    assert set(liar["reason"]) <= {
        "unlike any priority client",
        "priority clients worse off with it",
    }


def tried(value):
    """Says this of every model it is asked to try out; an error when it raises."""

    def tamper(message, reply):
        if message.metadata.message_type == TRY:
            said = {**reply.content.config_records[REPORT], **value()}
            reply.content[REPORT] = ConfigRecord(said)
        return reply

    return tamper


def raises():
    raise RuntimeError


BAD = {
    "too few": lambda: {"trial": [1.0]},
    "below 0": lambda: {"trial": [-1.0] * 5},
    "no list": lambda: {"trial": 1.0},
    "an error": raises,
}


@pytest.mark.parametrize("bad", BAD)
def test_without_the_priority_clients_reports_nobody_outside_counts(setup, bad):
    case = setup(FEDALIGN, trust=True, evaluate_every=0, rounds=1)
    case.network = replace(case.network, quorum=0.0)
    for node in case.nodes[:2]:
        node.tamper = tried(BAD[bad])
    run = case.run()
    assert run.clients.filter("priority")["admitted"].all()
    assert not run.clients.filter(~pl.col("priority"))["admitted"].any()
    assert not run.rounds["skipped"].any()


def test_one_client_that_says_nothing_is_named_and_the_others_decide(setup):
    case = setup(FEDALIGN, trust=True, evaluate_every=0, rounds=2)
    case.fed = replace(case.fed, priority=np.arange(5) < 3, importance=(np.arange(5) < 3) * 1.0)
    case.network = replace(case.network, quorum=0.0)
    case.nodes[1].tamper = tried(BAD["too few"])
    run = case.run()
    assert run.moves.select("client", "move").rows() == [(1, "impossible trial")] * 2
    assert (run.rounds["trials"] > 0).all()


def test_a_trial_is_no_training(setup):
    """It carries the models and a number each comes back; nothing else does."""
    case = setup(FEDALIGN, trust=True, evaluate_every=0, rounds=1)
    grid = case.grid()
    case.run(grid)
    kinds = [message.metadata.message_type for message, _ in grid.log]
    assert kinds.count(TRY) == 2
    for message, reply in grid.log:
        if message.metadata.message_type == TRY:
            assert not reply.content.array_records
            tried = sum(key.startswith("trial.") for key in message.content.array_records)
            assert len(reply.content.config_records[REPORT]["trial"]) == tried + 1
    assert kinds.index(TRY) > kinds.index(MessageType.TRAIN)
