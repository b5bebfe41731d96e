"""Faults on the wire: replies that break on their way, or at the node that sends them.

What `parts.faults` is to a simulation this is to a grid. A tamper takes a question and the reply to
it, and makes of the reply what arrives; None: nothing does. For tests and measurements.
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
from ..transport.wire import AWAY, MODEL, OFFER, RAISED, WORD, decoded
from .in_process import InProcess, Site

Tamper = Callable[[Message, Message], Message | None]
Arrays = dict[str, NDArray[Any]]


def in_training(change: Tamper) -> Tamper:
    """Tampers with replies to a request to train, and with no others."""

    def tamper(message: Message, reply: Message) -> Message | None:
        if message.metadata.message_type != MessageType.TRAIN:
            return reply
        return change(message, reply)

    return tamper


def said(reply: Message, **values: Any) -> Message:
    """A reply with other values in its word; None takes one out."""
    word = {**reply.content.config_records[WORD], **values}
    reply.content[WORD] = ConfigRecord({k: v for k, v in word.items() if v is not None})
    return reply


def word(**values: Any) -> Tamper:
    """Says something else in its word."""
    return in_training(lambda message, reply: said(reply, **values))


def arrays_of(reply: Message) -> Arrays:
    """The model that a reply carries."""
    return {n: decoded(a).copy() for n, a in reply.content.array_records[MODEL].items()}


def carrying(reply: Message, arrays: Arrays) -> Message:
    """A reply with another model."""
    reply.content[MODEL] = ArrayRecord({n: Array(a) for n, a in arrays.items()})
    return reply


def model(change: Callable[[Arrays], Arrays]) -> Tamper:
    """Sends another model."""
    return in_training(lambda message, reply: carrying(reply, change(arrays_of(reply))))


def first(change: Callable[[NDArray[Any]], NDArray[Any]]) -> Tamper:
    """Changes the first of a model's arrays."""

    def changed(arrays: Arrays) -> Arrays:
        name = next(iter(arrays))
        return {**arrays, name: change(arrays[name])}

    return model(changed)


def raw(**fields: Any) -> Tamper:
    """Replaces what the first array says of itself, or its bytes."""

    def tamper(message: Message, reply: Message) -> Message:
        record = reply.content.array_records[MODEL]
        name, a = next(iter(record.items()))
        told = {"dtype": a.dtype, "shape": a.shape, "stype": a.stype, "data": a.data, **fields}
        record[name] = Array(**told)
        return reply

    return in_training(tamper)


def raises(message: Message, reply: Message) -> Message:
    """The client app ends in an error."""
    raise RuntimeError("the client's disk is full")


def died(message: Message, reply: Message) -> Message:
    """The node goes away before it answers."""
    return Message(Error(AWAY, "node unavailable"), reply_to=message)


def extra_record(message: Message, reply: Message) -> Message:
    """Carries something nobody asked for."""
    reply.content["surprise"] = ConfigRecord({"a": 1})
    return reply


def without_word(message: Message, reply: Message) -> Message:
    """Carries a model and no word."""
    return Message(RecordDict({MODEL: reply.content[MODEL]}), reply_to=message)


def empty_word(message: Message, reply: Message) -> Message:
    """Carries a word that says nothing."""
    reply.content[WORD] = ConfigRecord()
    return reply


def without_model(message: Message, reply: Message) -> Message:
    """Says that it joined, and carries no model."""
    del reply.content[MODEL]
    return reply


def pickled() -> bytes:
    """An array whose bytes are a pickle."""
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], object), allow_pickle=True)
    return buffer.getvalue()


WIRE: dict[str, Tamper] = {
    "raises": in_training(raises),
    "killed mid-round": in_training(died),
    "too late": in_training(lambda message, reply: None),
    "nan": first(lambda w: w * np.nan),
    "inf": first(lambda w: w + np.inf),
    "huge weights": first(lambda w: w + np.finfo(w.dtype).max / 4),
    "wrong shape": first(lambda w: w[:, :-1]),
    "shape that broadcasts": first(lambda w: w[:1]),
    "wrong dtype": first(lambda w: w.astype(np.float16)),
    "integers": first(lambda w: w.astype(np.int64)),
    "missing array": model(lambda a: dict(list(a.items())[1:])),
    "extra array": model(lambda a: {**a, "more": next(iter(a.values()))}),
    "says another shape": raw(shape=(1,)),
    "says another dtype": raw(dtype="float16"),
    "cut bytes": raw(data=b"\x93NUMPY\x01"),
    "a pickle": raw(data=pickled()),
    "another encoding": raw(stype="pickle"),
    "huge sample count": word(rows=10**12),
    "negative sample count": word(rows=-5),
    "no sample count": word(rows=None),
    "unknown key": word(surprise=1),
    "unknown record": in_training(extra_record),
    "no word": in_training(without_word),
    "an empty word": in_training(empty_word),
    "no model": in_training(without_model),
    "a huge loss": word(loss=1e12),
    "a negative loss": word(loss=-1.0),
    "no loss": word(loss=None),
    "an impossible accuracy": word(accuracy=7.0),
    "text for a number": word(loss="low"),
    "someone else's round": word(round=7),
    "another client": word(client=0),
    "abstains, with weights": word(joined=False),
    "says nothing of joining": word(joined=None),
    "negative steps": word(steps=-1),
    "claims to be priority": word(priority=True),
}
AGAIN, TWICE = "last reply again", "asked twice"  # for which a grid must remember


class BrokenGrid(InProcess):
    """Sites of this process, some of whose replies break: every reply to a request to train with a
    probability, drawn as `Faults` draws it. So a fault of the model itself (one of `parts.faults`)
    hits the replies that it hits in a simulation of the same seed; whoever is asked again may be
    luckier. A loss that is broken is so wherever a round asks for it.

    Attributes:
        kind: the fault: one of WIRE, of `parts.faults`, AGAIN or TWICE
        rate: how many replies break
        rounds: of the run: what is said of its last model is left alone
    """

    def __init__(self, sites: Iterable[Site], kind: str, rate: float, rounds: int) -> None:
        super().__init__(sites)
        self.kind, self.rate, self.rounds = kind, rate, rounds
        self.held: dict[int, ArrayRecord] = {}  # the model each site was sent last
        self.sent: dict[int, RecordDict] = {}  # what each site replied last
        self.asked: Counter[tuple[str, int, int]] = Counter()  # by kind of question, round, client

    def deliver(self, message: Message, site: Site) -> Message | None:
        """What arrives of a site's answer."""
        reply = super().deliver(message, site)
        node, asked = message.metadata.dst_node_id, message.metadata.message_type
        if MODEL in message.content.array_records:
            self.held[node] = message.content.array_records[MODEL]
        losses = asked == MessageType.EVALUATE and self.kind in LOSSES
        if reply is None or reply.has_error() or not (asked == MessageType.TRAIN or losses):
            return reply
        before, self.sent[node] = self.sent.get(node), RecordDict(dict(reply.content))
        told: Any = message.content.config_records[OFFER]
        if told["round"] >= self.rounds or not self.breaks(asked, told):
            return reply
        try:
            if self.kind == TWICE:
                return super().deliver(message, site)
            if self.kind == AGAIN:
                return reply if before is None else Message(before, reply_to=message)
            if self.kind in WIRE:
                return WIRE[self.kind](message, reply)
            return self.faulty(told, self.held[node], reply)
        except Exception as error:
            return Message(Error(RAISED, str(error)), reply_to=message)

    def breaks(self, asked: str, told: Any) -> bool:
        """Whether the reply to this question is one that breaks."""
        at = (asked, int(told["round"]), int(told["client"]))
        key = rng.keys(int(told["seed"]), "faults", *at[1:])
        if self.asked[at]:
            key = rng.fold(key, 1 + self.asked[at])
        self.asked[at] += 1
        return bool(rng.uniform(key) < self.rate)

    def faulty(self, told: Any, held: ArrayRecord, reply: Message) -> Message:
        """The reply with a fault that a simulation has too."""
        if self.kind in LOSSES:
            return said(reply, loss=LOSSES[self.kind])
        if MODEL not in reply.content.array_records:
            return reply  # it abstained
        w = {n: torch.from_numpy(decoded(a).copy()) for n, a in held.items()}
        offer = Offer(int(told["seed"]), int(told["round"]), int(told["rounds"]), w)
        one = {n: torch.from_numpy(a)[None] for n, a in arrays_of(reply).items()}
        sent = {n: break_tensor(self.kind, offer, one, n, t).numpy() for n, t in w.items()}
        return carrying(reply, sent)
