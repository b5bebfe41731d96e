"""A client's state: what comes back from a file is what went into it, in the module's order."""

from __future__ import annotations

import pytest
import torch
from flwr.app import Message, MessageType, RecordDict

import muster
from muster.flower.client.client_state import ClientState
from muster.flower.testing.in_process import InProcess, travel
from muster.flower.transport.wire import (
    EXTRA,
    MODEL,
    UNSTATED,
    ExpectedReply,
    read_reply,
    write_reply,
)


def of_model(value):
    """Tensors whose order is not that of their names."""
    return {name: torch.full((1, 2), value) for name in ("z.weight", "z.bias", "a.weight")}


def ordered_alike(one, other):
    return [(part, list(model)) for part, model in one.items()] == [
        (part, list(model)) for part, model in other.items()
    ]


def test_a_client_state_read_from_its_folder_keeps_the_order_of_the_module(tmp_path):
    new = {part: {n: t[0] for n, t in of_model(0.0).items()} for part in ("own", "control")}
    ClientState(RecordDict(), "run", 0, torch.float32, tmp_path).put_memory(
        1, {part: of_model(1.0) for part in new}
    )
    restarted = ClientState(RecordDict(), "run", 1, torch.float32, tmp_path).get_memory(new)
    assert ordered_alike(restarted, new)
    assert all(bool((t == 1.0).all()) for model in restarted.values() for t in model.values())


def test_a_reply_is_read_in_the_order_of_the_offer():
    shapes = {name: tuple(t.shape) for name, t in of_model(0.0).items()}
    turned = dict(reversed(of_model(1.0).items()))
    word = {"round": 0, "client": 0, "rows": 5, "joined": True, "steps": 1}
    content = write_reply(word, "exact", turned, {"change": turned})
    assert list(content[MODEL]) == list(content[EXTRA + "change"]) == list(turned)
    InProcess([])
    asked = Message(RecordDict(), dst_node_id=1, message_type=MessageType.TRAIN)
    message = travel(Message(content, reply_to=asked))
    expected = ExpectedReply(
        0, 0, 5, torch.float32, shapes=shapes, extra={"change": shapes}, steps=1
    )
    reply = read_reply(message, expected)
    assert reply.why == ""
    assert list(reply.model) == list(reply.extra["change"]) == list(shapes)


def test_contributions_are_counted_under_the_agreed_terms_and_on_disk(tmp_path):
    def state(run, agreed="terms"):
        return ClientState(RecordDict(), run, UNSTATED, torch.float32, tmp_path, agreed)

    assert state("one").get_count("given") == 0
    state("one").put_count("given", 3)
    assert state("another").get_count("given") == 3  # of the same terms
    assert state("one", "other terms").get_count("given") == 0
    (tmp_path / "terms.given").write_text("three")
    with pytest.raises(muster.MusterError, match=r"terms\.given: no number"):
        state("one").get_count("given")
    alone = ClientState(RecordDict(), "one", UNSTATED, torch.float32)
    with pytest.raises(muster.MusterError, match="start it with --memory FOLDER"):
        alone.get_count("given")
