"""The Flower client app: eight requests, each answered by a `Node` on its own data.

survey    send column statistics, from which the server fits one scaler and encoder for all
hello     enrol: the number of rows, and their shape
evaluate  evaluate the model
train     join and train, or abstain
trial     evaluate each of these models, next to the round's
fetch     send the model of this round, after its sketch
unmask    send the sum of the masks of those listed, as a member of the committee
advice    send the summary of the losses after all trainings of advice
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from flwr.app import ConfigRecord, ConfigRecordValues, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from ... import __version__
from ...base.errors import MusterError
from ...base.params import Params, get_dtype
from ...config.experiment import Experiment
from ...config.network import build_committee
from ...data.split.resplit import split_again
from ...federation import Federation
from ...parts.sketch import SKETCH
from ...parts.tracks import select_sent
from ...privacy.contributions import CONTRIBUTION
from ...privacy.fixed_point import Vectors
from ...privacy.groups import deal_everyone
from ...privacy.masks import Attempt
from ...privacy.noise import draw_vectors
from ...privacy.secure_sum import hash_offer
from ...protocol import Offer
from ...study.advice_plan import ALONE
from ...tasks.compatibility import match_task
from ...tasks.task import target_kind
from ..server.fit_columns import TRANSFORM, Transform, read_transform, write_statistics
from ..terms import check_private_terms, check_terms, read_terms
from ..transport.sum_wire import LIST, NUMBER, SUM, hash_run, report_vector
from ..transport.wire import (
    MODEL,
    NONCE,
    OFFER,
    REPORT,
    TRIAL,
    UNSTATED,
    ClientRole,
    read_offer,
    read_parts,
    write_reply,
)
from .client_state import ClientState
from .node import Node, assign_role, count_rows, set_requirement
from .node_data import MAX_CACHED, read_cached, read_own_data, read_own_statistics
from .row_losses import RowLosses, get_label
from .sum_party import SumParty

AGREED = "agreed"  # key of the run configuration: the terms that the node's owner agreed to

_nodes: dict[Hashable, tuple[Hashable, Federation, Node]] = {}  # by owner: request, data, node

app = ClientApp()


@app.query("survey")
def send_statistics(message: Message, context: Context) -> Message:
    """Send the statistics of this client's columns, if its owner has agreed to it."""
    chosen = _read_experiment(message, context)
    if not chosen.network.fits:
        raise MusterError("survey: the terms ask for no statistics; nothing was sent")
    seed = int(str(message.content.config_records[OFFER]["seed"]))
    targets = target_kind(chosen.settings.task)
    statistics = read_own_statistics(context.node_config, chosen.network, seed, targets)
    return reply_to(message, write_statistics(statistics))


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    """Send the sample count and the shapes that the server needs to enrol this client."""
    chosen = _read_experiment(message, context)
    if chosen.network.advice:  # a node that could not store its losses does not begin
        RowLosses.of(context.node_config.get("memory-path"), chosen)
    own = _read_data(message, context, chosen, carried_transform(message))
    seed = int(str(message.content.config_records[OFFER]["seed"]))
    own, _ = match_task(divide(own, chosen, seed), chosen.settings.task)
    report: dict[str, ConfigRecordValues] = {
        "rows": count_rows(own, chosen.job),
        "shape": list(own.train.x.shape[1:]),
        "classes": own.classes,
        "target": list(own.target),
        "whole": not own.train.x.is_floating_point() and own.train.x.dtype != torch.uint8,
        "pixels": own.train.x.dtype == torch.uint8,
        "columns": digest(own.text.fingerprint() if own.text else "\n".join(own.columns or ())),
        "version": __version__,
    }
    return reply_to(message, RecordDict({REPORT: ConfigRecord(report)}))


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate the model on this client's data."""
    node, role, offer, state, precision = _prepare(message, context)
    report = node.measure(offer, role, state)
    chosen = _read_experiment(message, context)
    if chosen.network.advice and offer.round == chosen.settings.rounds:
        losses = RowLosses.of(context.node_config.get("memory-path"), chosen)
        node.store_losses(offer, state, losses, get_label(chosen))
    return reply_to(message, write_reply(report, precision))


@app.train()
def train(message: Message, context: Context) -> Message:
    """Join and train, or abstain."""
    node, role, offer, state, precision = _prepare(message, context)
    if node.job.privacy is not None and node.job.privacy.secure:
        party, attempt = _prepare_sum(message, context, role, offer)
        record = party.join(attempt, lambda: node.contribute_securely(offer, role, state))
        report = node.base_report(offer.round) | report_vector(record)
        return reply_to(message, write_reply(report, "exact", as_contribution(record.values)))
    if node.job.protects_clients:
        report, given = node.contribute(offer, role, state)
        return reply_to(message, write_reply(report, "exact", given))
    report, replies = node.train(offer, role, state)
    if replies is None:
        return reply_to(message, write_reply(report, precision))
    model = {name: t[0] for name, t in replies.models.items()}
    extra = {part: {n: t[0] for n, t in m.items()} for part, m in replies.extra.items()}
    if node.method.serves == "own":
        model = {}  # its own model stays with it
    member = role.importance > 0
    model, extra = select_sent(node.method.tracks, member, model, extra)
    if node.method.sketch:
        sketch = {SKETCH: extra.pop(SKETCH)}
        if not member:
            state.put_reply(offer.round, model)
            model, extra = {}, sketch
    return reply_to(message, write_reply(report, precision, model, extra))


@app.query("trial")
def trial(message: Message, context: Context) -> Message:
    """Evaluate models that might follow the round's."""
    node, _, offer, state, precision = _prepare(message, context)
    tried = read_parts(message.content, TRIAL, node.dtype)
    report = node.trial(offer, [tried[key] for key in sorted(tried, key=int)], state)
    return reply_to(message, write_reply(report, precision))


@app.query("fetch")
def fetch(message: Message, context: Context) -> Message:
    """Send the model of this round, whose sketch was sent before."""
    node, role, offer, state, precision = _prepare(message, context)
    report = node.base_report(offer.round) | {"joined": True, "reason": ""}
    model = {} if role.importance > 0 else state.get_reply(offer.round)
    return reply_to(message, write_reply(report, precision, model))


@app.query("unmask")
def unmask(message: Message, context: Context) -> Message:
    """Answer a list of masked vectors, as a member of the committee: the sum of its masks, less its
    noise."""
    node, role, offer, _, _ = _prepare(message, context)
    party, attempt = _prepare_sum(message, context, role, offer)
    job, listed = node.job, message.content.config_records[SUM][LIST]
    if not isinstance(listed, bytes):
        raise MusterError("secure sum: the list is no bytes; nothing was sent")
    deviation = job.noise_deviation(offer)
    clients = np.arange(len(party.committee.keys))
    priority = np.isin(clients, _read_experiment(message, context).network.sum_priority)
    dealt = deal_everyone(priority, clients, job.get_privacy().groups, job.seed, offer.round)
    answer = party.answer(
        attempt,
        listed,
        job.count_numbers(offer.model),
        lambda shape: draw_vectors(shape, deviation),
        dict(enumerate(dealt.tolist())),
    )
    report = node.base_report(offer.round) | {"joined": True, "reason": ""}
    return reply_to(message, write_reply(report, "exact", as_contribution(answer)))


def as_contribution(values: Vectors) -> Params:
    """Return a vector of whole numbers as the arrays of a reply."""
    return {CONTRIBUTION: torch.from_numpy(values.copy())}


def _prepare_sum(
    message: Message, context: Context, role: ClientRole, offer: Offer
) -> tuple[SumParty, Attempt]:
    """Return the party that this client is in secure sums, and the attempt of a request."""
    chosen, record = _read_experiment(message, context), message.content.config_records[OFFER]
    privacy, network = chosen.job.get_privacy(), chosen.network
    party = SumParty.from_owner(
        context.node_config, build_committee(network, privacy.committee), role.client
    )
    agreed = dict(enumerate(network.sum_roles)).get(role.client)
    priority = role.client in network.sum_priority
    if role.importance != agreed or role.priority != priority or role.share != 1:
        raise MusterError(
            "secure sum: the server gives this client another role than was agreed on; nothing "
            "was sent"
        )
    run = hash_run(int(str(record["seed"])), str(record["experiment"]), str(record["fitted"]))
    number = message.content.config_records[SUM][NUMBER]
    if not isinstance(number, int) or not 0 <= number < 2**63:
        raise MusterError("secure sum: an attempt without a number; nothing was sent")
    return party, Attempt(run, offer.round, number, hash_offer(offer))


@app.query("advice")
def advice(message: Message, context: Context) -> Message:
    """Send the summary of the losses on held-out rows, if its owner has agreed to advice."""
    chosen = _read_experiment(message, context)
    if not chosen.network.advice:
        raise MusterError("advice: the terms ask for none; nothing was sent")
    losses = RowLosses.of(context.node_config.get("memory-path"), chosen)
    record = message.content.config_records[OFFER]
    alone, *labels = (str(label) for label in cast(list[str], record["labels"]))
    return reply_to(message, losses.summarise(alone, labels))


def reply_to(message: Message, content: RecordDict) -> Message:
    """Return the reply to a message, with its nonce, which nobody else was sent."""
    nonce = message.content.config_records[OFFER][NONCE]
    content[REPORT] = ConfigRecord({**content.config_records[REPORT], NONCE: nonce})
    return Message(content, reply_to=message)


def digest(text: str) -> str:
    """Return a short hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def carried_transform(message: Message) -> str:
    """Return the text of the scaler and encoder that a message carries; "": none."""
    record = message.content.config_records.get(TRANSFORM)
    return "" if record is None else str(record["text"])


def _read_experiment(message: Message, context: Context) -> Experiment:
    """Return the experiment of a message, if it is the one that was agreed on."""
    text = str(message.content.config_records[OFFER]["experiment"])
    if AGREED in context.run_config:
        check_terms(text, str(context.run_config[AGREED]))
    chosen = read_terms(text)
    check_private_terms(chosen)
    return chosen


def _read_transform(text: str, chosen: Experiment) -> Transform | None:
    """Return the scaler and encoder of features, if the terms ask for them."""
    if chosen.network.fits != bool(text):
        raise MusterError(
            "features: the server and the terms differ in whether one scaler and encoder is fitted "
            "for all; nothing was done"
        )
    return read_transform(text, chosen.network) if text else None


def _read_data(message: Message, context: Context, chosen: Experiment, text: str) -> Federation:
    """Return this client's data, its features made by a transform (as text)."""
    offer = message.content.config_records[OFFER]
    seed, config = int(str(offer["seed"])), context.node_config

    def read() -> Federation:
        transform, targets = _read_transform(text, chosen), target_kind(chosen.settings.task)
        return read_own_data(config, chosen.network, seed, targets, transform)

    own = read_cached(config, (str(offer["experiment"]), seed, text), read)
    if chosen.settings.decide_on == "held_out" and own.test is None:
        raise MusterError(
            "decide_on: this federation decides on held-out rows, and this client has none"
        )
    return own


def _prepare(
    message: Message, context: Context
) -> tuple[Node, ClientRole, Offer, ClientState, Any]:
    """Return the node, its role, the offer, its state and the precision, for one message."""
    record = message.content.config_records[OFFER]
    chosen = _read_experiment(message, context)
    text, seed, name = str(record["experiment"]), int(str(record["seed"])), str(record["fitted"])
    if chosen.job.privacy is not None and seed != chosen.settings.seed:
        raise MusterError(
            f"seed: {seed}, and {chosen.settings.seed} was agreed on; nothing was done"
        )
    job = chosen.job.with_seed(seed)
    # With its number: a folder that two nodes share by mistake holds the state of neither.
    run = digest(f"{seed} {int(str(record['client']))} {text}{name}")
    where = context.node_config.get("memory-path")
    dtype = get_dtype(chosen.settings.dtype)
    counted = int(str(record["counted"])) if job.has_client_state else UNSTATED
    agreed = digest(str(context.run_config.get(AGREED, text)))
    folder = Path(str(where)) if where else None
    state = ClientState(context.state, run, counted, dtype, folder, agreed)
    transform = state.update_transform(name, carried_transform(message))
    own = _read_data(message, context, chosen, transform)
    held = state.get_model(int(str(record["round"])))
    offer, role = read_offer(message.content, dtype, held, job.scoring.first)
    if MODEL in message.content:
        state.put_model(offer.round, offer.model)

    def build() -> Node:
        fed = divide(assign_role(own, role), chosen, seed)
        if chosen.network.advice and job.needs_requirement:
            losses = RowLosses.of(where, chosen)
            fed = replace(fed, requirement=np.array([losses.get_train_loss(ALONE, seed)]))
        fed = set_requirement(fed, chosen, job, state)
        return Node(job, fed, chosen.settings.compute)

    identity = (role.client, role.priority, role.importance)
    node = get_node(context.node_config, own, (run, identity), build)
    if offer.frozen != node.frozen:
        raise MusterError(
            "model: its frozen parameters differ from the server's, and they do not travel; build "
            "the same model from the same files"
        )
    return node, role, replace(offer, trainable=node.stack.trainable), state, record["precision"]


def divide(fed: Federation, chosen: Experiment, seed: int) -> Federation:
    """Return the data with its rows divided by the seed, where advice asks for that and its
    files have fixed test rows, or none. What an owner requires is no part of advice."""
    if not chosen.network.advice:
        return fed
    fed = replace(fed, requirement=None)
    return fed if fed.varies == "split" else split_again(fed, seed)


def get_node(
    config: Mapping[str, Any], own: Federation, asked: Hashable, build: Callable[[], Node]
) -> Node:
    """Return the node built for an owner's last message, if it was about the same run, in the same
    role, on the same rows; build a new one otherwise. One is cached for each owner."""
    owner = tuple(sorted(config.items()))
    found = _nodes.pop(owner, None)
    if found is None or found[0] != asked or found[1] is not own:
        if found is not None:
            found[2].stack.close()
        found = (asked, own, build())
    _nodes[owner] = found  # the last used is the last
    if len(_nodes) > MAX_CACHED:
        _nodes.pop(next(iter(_nodes)))[2].stack.close()
    return found[2]
