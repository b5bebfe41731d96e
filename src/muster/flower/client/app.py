"""The Flower client app: five requests, each answered by a `Node` on its own data.

survey    what are your columns like, that features may be made of them as everybody does
hello     how many rows, of what shape
evaluate  what do you make of this model
train     here is an offer: join, or abstain
trial     what would you make of each of these models, next to the round's
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import ConfigRecord, ConfigRecordValues, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from ... import __version__
from ...base.errors import MusterError
from ...base.params import get_dtype
from ...config.experiment import Experiment
from ...federation import Federation
from ...protocol import Offer
from ...tasks.base import target_kind
from ...tasks.compatibility import match_task
from ..server.fit_columns import FITTED, Fitted, read_fitted, write_told
from ..terms import check_agreed, read_terms
from ..transport.wire import (
    MODEL,
    NONCE,
    OFFER,
    TRIAL,
    UNSAID,
    WORD,
    Seat,
    parts,
    read_offer,
    write_reply,
)
from .client_state import Diary
from .node import Node, required, seated
from .node_data import MOST_KEPT, kept, own_data, own_statistics

AGREED = "agreed"  # the terms that the node's owner agreed to, where a node keeps to them

_nodes: dict[Hashable, tuple[Hashable, Federation, Node]] = {}  # by owner: what, whose, built

app = ClientApp()


@app.query("survey")
def survey(message: Message, context: Context) -> Message:
    """What this client's columns are like, where its owner has agreed to tell."""
    chosen = _agreed(message, context)
    if not chosen.network.fits:
        raise MusterError("survey: the terms ask for no statistics; nothing was told")
    said = message.content.config_records[OFFER]
    wants = target_kind(chosen.settings.task)
    told = own_statistics(context.node_config, chosen.network, int(str(said["seed"])), wants)
    return answer(message, write_told(told))


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    """What the server must know of this client to count it in: sample count and shapes."""
    chosen = _agreed(message, context)
    own = _own(message, context, chosen, carried(message))
    own, _ = match_task(own, chosen.settings.task)
    word: dict[str, ConfigRecordValues] = {
        "rows": int(own.train.sizes[0]),
        "shape": list(own.train.x.shape[1:]),
        "classes": own.classes,
        "target": list(own.target),
        "whole": not own.train.x.is_floating_point() and own.train.x.dtype != torch.uint8,
        "pixels": own.train.x.dtype == torch.uint8,
        "columns": digest(own.text.fingerprint() if own.text else "\n".join(own.columns or ())),
        "version": __version__,
    }
    return answer(message, RecordDict({WORD: ConfigRecord(word)}))


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """What this client makes of the model."""
    node, seat, offer, diary, precision = _ready(message, context)
    word = node.measure(offer, seat, diary)
    return answer(message, write_reply(word, precision))


@app.train()
def train(message: Message, context: Context) -> Message:
    """Join and train, or abstain."""
    node, seat, offer, diary, precision = _ready(message, context)
    word, replies = node.train(offer, seat, diary)
    if replies is None:
        return answer(message, write_reply(word, precision))
    model = {name: t[0] for name, t in replies.models.items()}
    extra = {part: {n: t[0] for n, t in m.items()} for part, m in replies.extra.items()}
    if node.method.serves == "own":
        model = {}  # its own model is its own
    return answer(message, write_reply(word, precision, model, extra))


@app.query("trial")
def trial(message: Message, context: Context) -> Message:
    """What this client makes of models that might follow the round's."""
    node, _, offer, diary, precision = _ready(message, context)
    tried = parts(message.content, TRIAL, node.dtype)
    word = node.trial(offer, [tried[key] for key in sorted(tried, key=int)], diary)
    return answer(message, write_reply(word, precision))


def answer(message: Message, content: RecordDict) -> Message:
    """An answer to a message: it repeats the nonce, which nobody else was sent."""
    nonce = message.content.config_records[OFFER][NONCE]
    content[WORD] = ConfigRecord({**content.config_records[WORD], NONCE: nonce})
    return Message(content, reply_to=message)


def digest(text: str) -> str:
    """A short name for a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def carried(message: Message) -> str:
    """What came with a message of what features are made by; "" when nothing did."""
    record = message.content.config_records.get(FITTED)
    return "" if record is None else str(record["text"])


def _agreed(message: Message, context: Context) -> Experiment:
    """The experiment, if it is the one that was agreed on."""
    text = str(message.content.config_records[OFFER]["experiment"])
    if AGREED in context.run_config:
        check_agreed(text, str(context.run_config[AGREED]))
    return read_terms(text)


def _fitted(text: str, chosen: Experiment) -> Fitted | None:
    """What features are made by, where the terms say that it is agreed on."""
    if chosen.network.fits != bool(text):
        raise MusterError(
            "features: the server and the terms do not say alike whether they are fitted together"
        )
    return read_fitted(text, chosen.network) if text else None


def _own(message: Message, context: Context, chosen: Experiment, fitted: str) -> Federation:
    """This client's data, its features made by what was `fitted`."""
    said = message.content.config_records[OFFER]
    seed, config = int(str(said["seed"])), context.node_config

    def read() -> Federation:
        made_by, wants = _fitted(fitted, chosen), target_kind(chosen.settings.task)
        return own_data(config, chosen.network, seed, wants, made_by)

    own = kept(config, (str(said["experiment"]), seed, fitted), read)
    if chosen.settings.decide_on == "held_out" and own.test is None:
        raise MusterError(
            "decide_on: this federation decides on held-out rows, and this client has none"
        )
    return own


def _ready(message: Message, context: Context) -> tuple[Node, Seat, Offer, Diary, Any]:
    """The node, its seat, the offer, and the diary, for one message."""
    said = message.content.config_records[OFFER]
    chosen = _agreed(message, context)
    text, seed, made_by = str(said["experiment"]), int(str(said["seed"])), str(said["fitted"])
    job = chosen.job.with_seed(seed)
    # Its number too: a folder that two nodes share by mistake is nobody's memory.
    run = digest(f"{seed} {int(str(said['client']))} {text}{made_by}")
    where = context.node_config.get("memory-path")
    dtype = get_dtype(chosen.settings.dtype)
    counted = int(str(said["counted"])) if job.has_client_state else UNSAID
    diary = Diary(context.state, run, counted, dtype, Path(str(where)) if where else None)
    own = _own(message, context, chosen, diary.fitted(made_by, carried(message)))
    held = diary.held(int(str(said["round"])))
    offer, seat = read_offer(message.content, dtype, held, job.scoring.first)
    if MODEL in message.content:
        diary.hold(offer.round, offer.model)

    def build() -> Node:
        fed = required(seated(own, seat), chosen, job, diary)
        return Node(job, fed, chosen.settings.compute)

    role = (seat.client, seat.priority, seat.importance)
    node = kept_node(context.node_config, own, (run, role), build)
    if offer.frozen != node.frozen:
        raise MusterError(
            "model: its frozen parameters are not the server's, and they do not travel; build the "
            "same model from the same files"
        )
    return node, seat, replace(offer, trainable=node.stack.trainable), diary, said["precision"]


def kept_node(
    config: Mapping[str, Any], own: Federation, asked: Hashable, build: Callable[[], Node]
) -> Node:
    """The node built for an owner's last message, if it was about the same run, in the same role,
    on the same rows; a new one otherwise. One is kept for each owner."""
    owner = tuple(sorted(config.items()))
    found = _nodes.pop(owner, None)
    if found is None or found[0] != asked or found[1] is not own:
        if found is not None:
            found[2].stack.close()
        found = (asked, own, build())
    _nodes[owner] = found  # the last one used stands last
    if len(_nodes) > MOST_KEPT:
        _nodes.pop(next(iter(_nodes)))[2].stack.close()
    return found[2]
