"""Fault injection on a grid: replies that break on their way, or at the node that sends them.

The counterpart of `parts.threats.faults` for messages. A tamper takes a request and the reply to
it, and returns the reply that arrives; None: none does. For tests and measurements.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MessageType, RecordDict
from numpy.typing import NDArray

from ...base import rng
from ...parts.threats.faults import LOSSES, break_tensor
from ...protocol import Offer
from ..transport.wire import APP_RAISED, MODEL, NODE_UNAVAILABLE, OFFER, REPORT, decode
from .in_process import InProcess, Site

Tamper = Callable[[Message, Message], Message | None]
Arrays = dict[str, NDArray[Any]]


def train_only(change: Tamper) -> Tamper:
    """Return a tamper that changes replies to a request to train, and no others."""

    def tamper(message: Message, reply: Message) -> Message | None:
        if message.metadata.message_type != MessageType.TRAIN:
            return reply
        return change(message, reply)

    return tamper


def set_report(reply: Message, **values: Any) -> Message:
    """Return a reply with other values in its report; None takes one out."""
    word = {**reply.content.config_records[REPORT], **values}
    reply.content[REPORT] = ConfigRecord({k: v for k, v in word.items() if v is not None})
    return reply


def change_report(**values: Any) -> Tamper:
    """Return a tamper that reports other values."""
    return train_only(lambda message, reply: set_report(reply, **values))


def read_arrays(reply: Message) -> Arrays:
    """Return the model that a reply carries."""
    return {n: decode(a).copy() for n, a in reply.content.array_records[MODEL].items()}


def set_arrays(reply: Message, arrays: Arrays) -> Message:
    """Return a reply with another model."""
    reply.content[MODEL] = ArrayRecord({n: Array(a) for n, a in arrays.items()})
    return reply


def change_model(change: Callable[[Arrays], Arrays]) -> Tamper:
    """Return a tamper that sends another model."""
    return train_only(lambda message, reply: set_arrays(reply, change(read_arrays(reply))))


def change_first(change: Callable[[NDArray[Any]], NDArray[Any]]) -> Tamper:
    """Return a tamper that changes the first of a model's arrays."""

    def replace_first(arrays: Arrays) -> Arrays:
        name = next(iter(arrays))
        return {**arrays, name: change(arrays[name])}

    return change_model(replace_first)


def change_raw(**fields: Any) -> Tamper:
    """Return a tamper that replaces the first array's stated shape or dtype, or its bytes."""

    def tamper(message: Message, reply: Message) -> Message:
        record = reply.content.array_records[MODEL]
        name, a = next(iter(record.items()))
        stated = {"dtype": a.dtype, "shape": a.shape, "stype": a.stype, "data": a.data, **fields}
        record[name] = Array(**stated)
        return reply

    return train_only(tamper)


def fail(message: Message, reply: Message) -> Message:
    """Fail, as a client app that ends in an error."""
    raise RuntimeError("the client's disk is full")


def lose_node(message: Message, reply: Message) -> Message:
    """Lose the node before it replies."""
    return Message(Error(NODE_UNAVAILABLE, "node unavailable"), reply_to=message)


def add_record(message: Message, reply: Message) -> Message:
    """Add a record that nobody asked for."""
    reply.content["surprise"] = ConfigRecord({"a": 1})
    return reply


def remove_report(message: Message, reply: Message) -> Message:
    """Remove the report, and leave the model."""
    return Message(RecordDict({MODEL: reply.content[MODEL]}), reply_to=message)


def empty_report(message: Message, reply: Message) -> Message:
    """Empty the report."""
    reply.content[REPORT] = ConfigRecord()
    return reply


def remove_model(message: Message, reply: Message) -> Message:
    """Remove the model of a reply that reports it joined."""
    del reply.content[MODEL]
    return reply


def pickle_array() -> bytes:
    """Return the bytes of an array that are a pickle."""
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], object), allow_pickle=True)
    return buffer.getvalue()


WIRE: dict[str, Tamper] = {
    "raises": train_only(fail),
    "killed mid-round": train_only(lose_node),
    "too late": train_only(lambda message, reply: None),
    "nan": change_first(lambda w: w * np.nan),
    "inf": change_first(lambda w: w + np.inf),
    "huge weights": change_first(lambda w: w + np.finfo(w.dtype).max / 4),
    "wrong shape": change_first(lambda w: w[:, :-1]),
    "shape that broadcasts": change_first(lambda w: w[:1]),
    "wrong dtype": change_first(lambda w: w.astype(np.float16)),
    "integers": change_first(lambda w: w.astype(np.int64)),
    "missing array": change_model(lambda a: dict(list(a.items())[1:])),
    "extra array": change_model(lambda a: {**a, "more": next(iter(a.values()))}),
    "says another shape": change_raw(shape=(1,)),
    "says another dtype": change_raw(dtype="float16"),
    "cut bytes": change_raw(data=b"\x93NUMPY\x01"),
    "a pickle": change_raw(data=pickle_array()),
    "another encoding": change_raw(stype="pickle"),
    "huge sample count": change_report(rows=10**12),
    "negative sample count": change_report(rows=-5),
    "no sample count": change_report(rows=None),
    "unknown key": change_report(surprise=1),
    "unknown record": train_only(add_record),
    "no word": train_only(remove_report),
    "an empty word": train_only(empty_report),
    "no model": train_only(remove_model),
    "a huge loss": change_report(loss=1e12),
    "a negative loss": change_report(loss=-1.0),
    "no loss": change_report(loss=None),
    "an impossible accuracy": change_report(accuracy=7.0),
    "text for a number": change_report(loss="low"),
    "someone else's round": change_report(round=7),
    "another client": change_report(client=0),
    "abstains, with weights": change_report(joined=False),
    "says nothing of joining": change_report(joined=None),
    "negative steps": change_report(steps=-1),
    "claims to be priority": change_report(priority=True),
}
AGAIN, TWICE = "last reply again", "asked twice"  # for which the grid stores replies


class FaultyGrid(InProcess):
    """An in-process grid with faults: every reply to a request to train breaks with a probability,
    drawn as `Faults` draws it. So a fault of the model itself (one of `parts.threats.faults`) hits
    the same replies as in a simulation of the same seed; a retry draws again. A fault of the loss
    hits it wherever a round asks for it.

    Attributes:
        kind: the fault: one of WIRE, of `parts.threats.faults`, AGAIN or TWICE
        rate: the share of replies that break
        rounds: of the run: reports on its last model are left as they are
    """

    def __init__(self, sites: Iterable[Site], kind: str, rate: float, rounds: int) -> None:
        super().__init__(sites)
        self.kind, self.rate, self.rounds = kind, rate, rounds
        self.held: dict[int, ArrayRecord] = {}  # the model each site was sent last
        self.sent: dict[int, RecordDict] = {}  # what each site replied last
        self.asked: Counter[tuple[str, int, int]] = Counter()  # by kind of request, round, client

    def deliver(self, message: Message, site: Site) -> Message | None:
        """Return a site's reply as it arrives, broken or not."""
        reply = super().deliver(message, site)
        node, asked = message.metadata.dst_node_id, message.metadata.message_type
        if MODEL in message.content.array_records:
            self.held[node] = message.content.array_records[MODEL]
        losses = asked == MessageType.EVALUATE and self.kind in LOSSES
        if reply is None or reply.has_error() or not (asked == MessageType.TRAIN or losses):
            return reply
        before, self.sent[node] = self.sent.get(node), RecordDict(dict(reply.content))
        offered: Any = message.content.config_records[OFFER]
        if offered["round"] >= self.rounds or not self.breaks(asked, offered):
            return reply
        try:
            if self.kind == TWICE:
                return super().deliver(message, site)
            if self.kind == AGAIN:
                return reply if before is None else Message(before, reply_to=message)
            if self.kind in WIRE:
                return WIRE[self.kind](message, reply)
            return self.inject(offered, self.held[node], reply)
        except Exception as error:
            return Message(Error(APP_RAISED, str(error)), reply_to=message)

    def breaks(self, asked: str, offered: Any) -> bool:
        """Return True if the reply to this request breaks."""
        at = (asked, int(offered["round"]), int(offered["client"]))
        key = rng.keys(int(offered["seed"]), "faults", *at[1:])
        if self.asked[at]:
            key = rng.fold(key, 1 + self.asked[at])
        self.asked[at] += 1
        return bool(rng.uniform(key) < self.rate)

    def inject(self, offered: Any, held: ArrayRecord, reply: Message) -> Message:
        """Return the reply with a fault that a simulation has too."""
        if self.kind in LOSSES:
            return set_report(reply, loss=LOSSES[self.kind])
        if MODEL not in reply.content.array_records:
            return reply  # it abstained
        w = {n: torch.from_numpy(decode(a).copy()) for n, a in held.items()}
        offer = Offer(int(offered["seed"]), int(offered["round"]), int(offered["rounds"]), w)
        one = {n: torch.from_numpy(a)[None] for n, a in read_arrays(reply).items()}
        sent = {n: break_tensor(self.kind, offer, one, n, t).numpy() for n, t in w.items()}
        return set_arrays(reply, sent)
