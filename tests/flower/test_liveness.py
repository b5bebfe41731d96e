"""A federation goes on without some, waits for those it is for, and stops with a reason."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from flwr.app import Array, ArrayRecord, Error, Message

import muster
from flower_parity import assert_same
from muster.cli.main import main as command
from muster.flower.testing.faults import train_only
from muster.flower.transport.requests import Failures
from muster.flower.transport.wire import MODEL
from muster.results.run import NoQuorum

EVERYONE = {"name": "fedalign", "epsilon": 9.0, "warmup": 0}
QUICK = {"method": EVERYONE, "rounds": 3, "evaluate_every": 0}


def fails(rounds, times=99):
    """Fails to train in these rounds (from 0), so many times altogether."""
    left = [times]

    def change(message, reply):
        if message.content.config_records["offer"]["round"] in rounds and left[0]:
            left[0] -= 1
            return Message(Error(5, "gone"), reply_to=message)
        return reply

    return train_only(change)


def asked_again(run):
    moves = run.moves.filter(pl.col("move").str.starts_with("asked again"))
    return list(zip(moves["round"], moves["client"], strict=True))


def test_without_a_quorum_the_run_stops_with_a_reason_and_goes_on_later(setup):
    case = setup(**QUICK)
    for k in (0, 1):
        case.nodes[k].tamper = fails({1})
    gone = r"client0: failed: the node went away \(code 5\); client1: failed: the node went away"
    with pytest.raises(NoQuorum, match=rf"round 2: replies from 0.00 .*quorum is 0.5 \({gone}"):
        case.run()
    assert (case.folder / "run" / "checkpoints" / "round-00000001").exists()
    assert not (case.folder / "run" / "run.toml").exists()
    for k in (0, 1):
        case.nodes[k].tamper = None
    assert_same(case.run(), case.simulate())


def test_those_who_failed_are_asked_again_before_the_run_stops(setup):
    case = setup(**QUICK)
    for k, times in ((0, 2), (1, 1)):
        case.nodes[k].tamper = fails({1}, times)
    run = case.run()
    # The second time one of two was heard, with enough weight or not: so it may be a third time.
    assert asked_again(run)[:2] == [(2, 0), (2, 1)]
    case.network = replace(case.network, quorum=1.0)
    case.nodes[0].tamper, case.nodes[1].tamper = fails({1}, 2), fails({1}, 1)
    run = case.run(name="all")
    assert asked_again(run) == [(2, 0), (2, 1), (2, 0)]
    assert run.rounds["failed"].to_list() == [0, 0, 0]
    assert_same(run, case.simulate())


def test_how_often_and_how_much_is_for_the_configuration_to_say(setup):
    case = setup(**QUICK)
    case.nodes[0].tamper = fails({1})
    case.network = replace(case.network, quorum=1.0, retries=1)
    with pytest.raises(NoQuorum, match="round 2: replies from 0"):
        case.run()
    case.network = replace(case.network, quorum=0.0)
    run = case.run(name="none")
    assert run.rounds["failed"].to_list() == [0, 1, 0]
    assert asked_again(run) == []


def test_nobody_outside_the_objective_is_needed(setup):
    case = setup(**QUICK)
    case.network = replace(case.network, quorum=1.0)
    for k in (2, 3, 4):
        case.nodes[k].tamper = fails({0, 1, 2})
    assert case.run().rounds["failed"].to_list() == [3, 3, 3]


def test_replies_that_are_refused_are_no_quorum_either(setup):
    def diverged(message, reply):
        arrays = {n: a.numpy() * np.nan for n, a in reply.content.array_records[MODEL].items()}
        reply.content[MODEL] = ArrayRecord({n: Array(a) for n, a in arrays.items()})
        return reply

    case = setup(**QUICK)
    for k in (0, 1):
        case.nodes[k].tamper = train_only(diverged)
    with pytest.raises(NoQuorum, match=r"round 1: replies from 0.00 .*client0: malformed: not fin"):
        case.run()


def test_abstaining_is_an_answer(setup):
    """Priority clients of MaxFL may leave: nobody has failed."""
    case = setup(
        "maxfl", requirement=0.0, participation={"kind": "flexible", "from_round": 1}, rounds=3
    )
    run = case.run()
    assert run.rounds["asked"].to_list() == [5, 0, 0]


def test_a_priority_client_that_lost_its_connection_is_waited_for(setup):
    case = setup(**QUICK)
    case.network = replace(case.network, timeout=5.0, quorum=1.0)
    grid = case.grid()
    pushed, looked = [], []

    def push(messages, push=grid.push_messages):
        pushed.append(messages[0].metadata.message_type)
        if pushed.count("train") == 1:
            case.nodes[0].online = False  # from the second round's first question on
        return push(messages)

    def get_nodes(get_nodes=grid.get_nodes):
        looked.append(1)
        if not case.nodes[0].online and len(looked) > 6:
            case.nodes[0].online = True
        return get_nodes()

    grid.push_messages, grid.get_nodes = push, get_nodes
    run = case.run(grid)
    assert any("asked again: failed: not connected" in move for move in run.moves["move"])
    assert_same(run, case.simulate())


def test_a_chronic_failure_is_set_aside_and_taken_back_when_it_answers(setup):
    case = setup(EVERYONE, rounds=7, evaluate_every=0)
    case.network = replace(case.network, timeout=1.0, failures=3)

    def silent(message, reply):
        return None if message.content.config_records["offer"]["round"] < 5 else reply

    case.nodes[3].tamper = train_only(silent)
    began = time.monotonic()
    run = case.run()
    assert time.monotonic() - began < 30
    rows = run.clients.filter(pl.col("client") == 3).sort("round")
    assert rows["reason"][:3].to_list() == ["failed: no answer within 1 s"] * 3
    assert rows["reason"][3:5].to_list() == ["failed: set aside, and no answer yet"] * 2
    assert rows["admitted"].to_list() == [False] * 5 + [True] * 2
    seconds = run.rounds["seconds"].to_list()
    assert min(seconds[:3]) >= 1.0  # waited for
    assert max(seconds[3:]) < 1.0  # and not any more
    moves = run.moves.filter(pl.col("client") == 3)
    assert moves["round"].to_list() == [3, 6]
    assert moves["move"][0].startswith("set aside after 3 failures: asked, and not waited for (")
    assert moves["move"][1] == "taken back: it answered"
    assert any(line.startswith("client3 set aside after 3 failures") for line in case.said)
    assert "client3 taken back: it answered" in case.said


def test_failures_are_counted_by_kind_of_request():
    failures = Failures(2)
    assert failures.record("train", 1, "why") == ""
    assert failures.record("evaluate", 1, "") == ""  # it measures, and never trains
    assert failures.record("train", 1, "why").startswith("set aside after 2 failures")
    assert failures.record("train", 1, "why") == ""
    assert failures.record("evaluate", 1, "") == ""
    assert failures.aside == {1}
    assert failures.record("train", 1, "") == "taken back: it answered"
    assert failures.aside == frozenset()


# A run in which every round is skipped.


@pytest.fixture
def diverging():
    return ["--data", "digits", "--data.clients", "3", "--rounds", "2", "--local.lr", "1e30",
            "--method", "fedavg"]  # fmt: skip


def test_a_run_of_skipped_rounds_is_no_success(diverging, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command(["run", *diverging]) == 1
    assert "fedavg, seed 0: no success: every round was skipped" in capsys.readouterr().out
    assert command(["run", "--resume", "runs/run"]) == 1
    assert command(["compare", *diverging, "--seeds", "2"]) == 1
    assert "fedavg, seed 1: no success" in capsys.readouterr().out
    fed = muster.data.digits(clients=3)
    model, local = muster.models.Softmax(), muster.Local(steps=5, lr=1e30)
    run = muster.simulate(fed, muster.methods.fedavg(), model, 2, local)
    assert run.idle
    sound = muster.simulate(fed, muster.methods.fedavg(), model, 2)
    assert not sound.idle
