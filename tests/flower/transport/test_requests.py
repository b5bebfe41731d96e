"""Hostile answers: what no client app would send, one node at a time (docs/security.md)."""

from __future__ import annotations

import time
import tracemalloc
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from flwr.app import ConfigRecord, Error, Message
from flwr.superlink.grid import HttpGrid

import muster
from flower_grid import LocalGrid
from flower_hostile import (
    chunk_that_is_not_there,
    huge_object,
    less_nested_json,
    many_objects,
    misplaced_objects,
    nested_json,
    nested_objects,
    no_json,
    nonce,
    other_content,
    repeated_chunk,
    repeated_chunk_of_megabytes,
    unannounced,
    unknown_kind,
)
from flower_raw import Raw
from flower_setup import Setup
from muster.flower.testing.faults import train_only
from muster.flower.transport import requests
from muster.flower.transport.object_fetch import MissingObject, SuperLinkReplies, reply_source
from muster.flower.transport.wire import MODEL, NONCE, OFFER, REPORT

BAD = 103  # the node of client 3, which is not priority
FEDALIGN = {"name": "fedalign", "epsilon": 5.0, "warmup": 0}
QUICK = {"method": FEDALIGN, "rounds": 2, "evaluate_every": 0}
HELLO = "query.hello"


class Hostile(LocalGrid):
    """Answers to some kind of message from node BAD are replaced by what `attack` makes of the
    message."""

    kind, attack = "train", None

    def push_messages(self, messages):
        messages = list(messages)
        ids = super().push_messages(messages)
        self.asked = {**getattr(self, "asked", {}), **dict(zip(ids, messages, strict=True))}
        return ids

    def find_reply(self, asked):
        message = self.asked[asked]
        meta = message.metadata
        found = super().find_reply(asked)
        if meta.dst_node_id != BAD or meta.message_type != self.kind or found is None:
            return found
        raw = Raw()
        announced = type(self).attack(raw, message, found)
        self.arrived[announced.tree.object_id] = raw.contents
        return announced


ATTACKS = {
    "204 kB of nested JSON": (nested_json, "malformed: over 84076 bytes"),
    "40 kB of nested JSON": (less_nested_json, "malformed: nested too deep"),
    "nested objects": (nested_objects, "malformed: objects nested too deep"),
    "misplaced objects": (misplaced_objects, "malformed: objects in the wrong place"),
    "a chunk repeated 20,000 times": (repeated_chunk, "malformed: arrays of over 84076 bytes"),
    "a large chunk repeated": (repeated_chunk_of_megabytes, "malformed: over 84076 bytes"),
    "too many objects": (many_objects, "malformed: over 13 objects"),
    "a huge object": (huge_object, "malformed: over"),
    "an object that was not announced": (unannounced, "malformed: an object that was not ann"),
    "another object than announced": (other_content, "malformed: an object that is not what"),
    "an unknown kind of object": (unknown_kind, "malformed: objects in the wrong place"),
    "half a record": (no_json, "malformed: unreadable (JSONDecodeError)"),
    "a chunk that is not there": (chunk_that_is_not_there, "malformed: unreadable (IndexError)"),
}


def hostile(case, attack, kind="train"):
    grid = type("Attacked", (Hostile,), {"attack": staticmethod(attack), "kind": kind})
    return case.grid(grid=grid)


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """The model the others make without client 3."""
    case = Setup(tmp_path_factory.mktemp("without"), **QUICK)
    case.nodes[3].tamper = train_only(lambda m, reply: Message(Error(5, "gone"), reply_to=m))
    return case.run().weights


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_hostile_answer_is_its_senders_failure_and_costs_no_memory(setup, attack, without):
    make, reason = ATTACKS[attack]
    case = setup(**QUICK)
    peaks = []

    def measured(raw, message, found):
        answer = make(raw, message, found)
        tracemalloc.start()
        return answer

    class Measured(Hostile):
        attack = staticmethod(measured)

        def confirm(self, message):
            if tracemalloc.is_tracing():
                peaks.append(tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()
            super().confirm(message)

    run = case.run(case.grid(grid=Measured))
    rows = run.clients.filter(pl.col("client") == 3)
    assert rows["reason"].str.starts_with(reason).all(), rows["reason"].to_list()
    assert not rows["admitted"].any()
    assert run.clients.filter(pl.col("client") != 3)["admitted"].all()
    for name, w in run.weights.items():
        np.testing.assert_array_equal(w, without[name])
    assert max(peaks) < 40e6


@pytest.mark.parametrize("attack", ["204 kB of nested JSON", "a large chunk repeated"])
def test_a_hostile_introduction_leaves_its_sender_out(setup, attack):
    make, _ = ATTACKS[attack]

    def at_hello(raw, message, found):
        message.content[OFFER] = ConfigRecord(
            {**message.content.config_records[OFFER], "round": 0, "client": 3}
        )
        return make(raw, message, found)

    case = setup(**QUICK)
    run = case.run(hostile(case, at_hello, HELLO))
    assert 3 not in set(run.clients["client"])
    assert run.moves["move"].str.starts_with("not in: malformed: ").to_list() == [True]


@pytest.mark.parametrize("error", [RecursionError, MemoryError, OverflowError, KeyError])
def test_whatever_an_answer_raises_is_its_senders_failure(setup, error):
    class Raising(Hostile):
        @staticmethod
        def attack(raw, message, found):
            raise error

    case = setup(**QUICK)
    run = case.run(case.grid(grid=Raising))
    rows = run.clients.filter(pl.col("client") == 3)
    assert set(rows["reason"]) == {f"malformed: unreadable ({error.__name__})"}
    assert run.clients.filter(pl.col("client") != 3)["admitted"].all()


# Forged answers.


def test_every_request_has_another_nonce(setup):
    case = setup(FEDALIGN, rounds=2)
    grid = case.grid()
    case.run(grid)
    nonces = [nonce(message) for message, _ in grid.log]
    assert len(nonces) == len(set(nonces)) > 5 * 4
    assert {len(n) for n in nonces} == {16}
    assert {m.metadata.message_type for m, _ in grid.log} == {HELLO, "evaluate", "train"}


class Forging(LocalGrid):
    """Node BAD answers in place of node 100, a priority client: all it knows is public."""

    kind, source = "train", None

    def push_messages(self, messages):
        messages = list(messages)
        ids = super().push_messages(messages)
        by_node = {m.metadata.dst_node_id: i for i, m in zip(ids, messages, strict=True)}
        if messages[0].metadata.message_type == self.kind and BAD in by_node:
            victim, own = self.replies[by_node[100]], self.replies[by_node[BAD]]
            said = {**victim.content.config_records[REPORT]}
            said[NONCE] = own.content.config_records[REPORT][NONCE]  # the only one it was sent
            if self.source is None:
                victim.content[REPORT] = ConfigRecord(said)
            else:
                victim.metadata.__dict__["_src_node_id"] = self.source
            if MODEL in victim.content:
                victim.content[MODEL] = own.content[MODEL]
        return ids


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (None, "forged: does not repeat the nonce of the request"),
        (BAD, "forged: comes from a node that was not asked"),
    ],
)
def test_no_client_answers_for_another(setup, source, reason):
    case = setup(**QUICK)
    grid = case.grid(grid=Forging)
    grid.source = source
    run = case.run(grid)
    rows = run.clients.filter(pl.col("client") == 0)
    assert set(rows["reason"]) == {reason}
    assert not rows["admitted"].any()
    assert run.clients.filter(pl.col("client") != 0)["admitted"].all()


def test_no_client_introduces_itself_as_another(setup):
    case = setup(**QUICK)
    grid = case.grid(grid=Forging)
    grid.kind = HELLO
    with pytest.raises(muster.MusterError, match="client0: a priority client, and forged: does"):
        case.run(grid)


# Answers that do not come.


class Withholding(LocalGrid):
    """Clients whose training is announced and kept back, in part or for ever."""

    held, lost = (0,), False

    def fetch_object(self, name):
        for k in self.held:
            names = self.kept.get(100 + k, [])
            if name in names[1:]:
                if self.lost:
                    raise MissingObject(name)
                return None
        return super().fetch_object(name)

    def push_messages(self, messages):
        messages = list(messages)
        self.pushed = {**getattr(self, "pushed", {})}
        ids = super().push_messages(messages)
        self.pushed.update(zip(ids, messages, strict=True))
        self.kept = {}
        return ids

    def find_reply(self, asked):
        found = super().find_reply(asked)
        meta = self.pushed[asked].metadata
        if found is not None and meta.message_type == "train":
            self.kept[meta.dst_node_id] = requests.list_objects(found.tree, requests.Limits(1000))
        return found


def test_a_withheld_answer_costs_one_timeout_and_only_its_sender(setup):
    case = setup(**QUICK)
    grid = case.grid(grid=Withholding)
    began = time.monotonic()
    run = case.run(grid)
    assert (run.rounds["seconds"] < 0.3 + 1.5).all()
    assert time.monotonic() - began < 20
    for k in range(5):
        reasons = run.clients.filter(pl.col("client") == k)["reason"]
        if k == 0:  # the first that is asked
            assert reasons.str.contains("announced an answer and withheld 7 of its 8").all()
        else:
            assert not reasons.str.contains("failed").any()
    assert run.rounds["failed"].to_list() == [1, 1]


def test_an_answer_that_was_announced_and_is_lost_is_not_waited_for(setup):
    case = setup(**QUICK)
    grid = case.grid(grid=Withholding)
    grid.lost = True
    run = case.run(grid)
    reasons = run.clients.filter(pl.col("client") == 0)["reason"]
    assert set(reasons) == {"failed: announced an answer that never came"}


def test_messages_live_longer_than_the_timeout(setup):
    case = setup(**QUICK)
    grid = case.grid()
    case.run(grid)
    assert all(message.metadata.ttl > 2 * 0.3 for message, _ in grid.log)


def test_a_dead_superlink_is_nobodys_failure(setup):
    import httpx

    class Dead(LocalGrid):
        def find_reply(self, asked):
            raise httpx.ConnectError("refused")

    case = setup(**QUICK)
    with pytest.raises(httpx.ConnectError):
        case.run(case.grid(grid=Dead))


# What clients write.

LOUD = "\x1b[2J\x1b]0;owned\x07\n" * 2000 + "\u202e"


def in_order(text):
    return len(text) <= 400 and text.isprintable()


@pytest.mark.parametrize("kind", [HELLO, "evaluate", "train"])
@pytest.mark.parametrize("code", [0, 2, 5, 1000, 2**40])
def test_the_text_of_an_error_is_one_short_line_wherever_it_goes(setup, kind, code):
    def loud(message, reply):
        if message.metadata.message_type != kind:
            return reply
        return Message(Error(code, LOUD), reply_to=message)

    case = setup(FEDALIGN, rounds=1)
    case.nodes[3].tamper = loud
    run = case.run()
    said = [*run.clients["reason"], *run.moves["move"], *case.said]
    assert all(in_order(text) for text in said)
    assert any("client3" in text or "failed" in text for text in said)
    case.nodes[0].tamper = loud  # a priority client: then the reason ends the run
    if kind == HELLO:
        with pytest.raises(muster.MusterError) as error:
            case.run(name="second")
        assert in_order(str(error.value))


# The real grid, as far as it can be had without processes.


def test_the_post_of_a_real_grid_is_its_runtime_client():
    class Grid(HttpGrid):
        run = SimpleNamespace(run_id=7)

    grid = Grid("127.0.0.1:1", insecure=True, token="0" * 64)
    source = reply_source(grid)
    assert isinstance(source, SuperLinkReplies)
    assert source.run == 7
    for call in ("PullMessages", "PullObject", "ConfirmMessageReceived"):
        assert callable(getattr(source.client, call))
    grid.close()
    with pytest.raises(muster.MusterError, match="this version's grid is another"):
        reply_source(SimpleNamespace())
