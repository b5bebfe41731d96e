"""Requests to the clients of a federation: one message to each, with a timeout and retries.

A client that does not reply within the timeout, or replies nonsense, has failed, with a reason;
nothing a client sends can raise here. Those whom the objective needs are asked again. A model
travels to a client once a round, with the first message that needs it, and the scaler and encoder
of features once a run; both again to a client that no longer holds them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MessageType
from flwr.serverapp import Grid

from ...config.network import Network
from ...engines.batches import count_steps
from ...federation import Population
from ...protocol import Offer
from ...run.job import Job
from ..transport.keys import KeyRegistry
from ..transport.requests import Failures, TrafficCounter, exchange, reply_limits
from ..transport.sum_wire import UNMASK, expect_vector
from ..transport.wire import (
    APP_RAISED,
    UNSTATED,
    ClientRole,
    ExpectedReply,
    PackedOffer,
    Reply,
    figure_names,
    read_reply,
    write_offer,
)
from .fit_columns import TRANSFORM, Say, hash_transform

ABSENT = "failed: not connected"
FETCH = "query.fetch"
POLL_INTERVAL = 1.0  # seconds between looks for clients that have not connected

Records = Mapping[str, ArrayRecord | ConfigRecord]


@dataclass
class Messenger:
    """Sends the server's requests over a grid, and knows what each client holds.

    Attributes:
        registry: the clients' public keys, by which their nodes are found
        two_rows: True if the module cannot train on a batch of one row
        experiment: the terms of the run that clients must know, as TOML
        transform: the scaler and encoder of features, as text; "": clients choose their own
        frozen: digest of the frozen parameters, which do not travel
        events: what happened besides the replies, for the ledger, as (client, text)
    """

    grid: Grid
    registry: KeyRegistry
    population: Population
    job: Job
    two_rows: bool
    network: Network
    experiment: str
    transform: str = ""
    frozen: str = ""
    events: list[tuple[int, str]] = field(default_factory=list)
    say: Say = print
    counter: TrafficCounter = field(init=False)
    failures: Failures = field(init=False)
    held: dict[int, int] = field(default_factory=dict)  # the round whose model each client holds
    prepared: set[int] = field(default_factory=set)  # clients that hold the transform
    unregistered: set[str] = field(default_factory=set)  # keys that were refused

    def __post_init__(self) -> None:
        n = self.population.n
        self.failures = Failures(self.network.failures)
        self.counter = TrafficCounter(np.zeros(n, np.int64), np.zeros(n, np.int64))

    def take_events(self) -> tuple[tuple[int, str], ...]:
        """Return the events since the last call."""
        events, self.events = tuple(self.events), []
        return events

    def build_role(self, k: int, steps: int = -1, counted: int = UNSTATED) -> ClientRole:
        """Return the role that a request states to a client."""
        p = self.population
        return ClientRole(k, bool(p.priority[k]), float(p.importance[k]), steps, counted)

    def ask(
        self, kind: str, offer: Offer, roles: Iterable[ClientRole], more: Records | None = None
    ) -> dict[int, Reply]:
        """Send one request to some clients and return every one's reply, failed or not. Clients of
        the objective that failed are asked again, as long as too few replied.

        Args:
            more: records that travel with the offer
        """
        roles = list(roles)
        replies = self.request(kind, offer, roles, self.failures.aside, more)
        for _ in range(self.network.retries):
            failed = self._find_failed(roles, replies)
            if not failed:
                break
            for role in failed:
                self.events.append((role.client, f"asked again: {replies[role.client].why}"))
            self.wait_for([role.client for role in failed])
            replies |= self.request(kind, offer, failed, frozenset(), more)
        for k, reply in replies.items():
            event = self.failures.record(kind, k, reply.why)
            if event:
                self.events.append((k, event))
                self.say(f"{self.registry.members[k].name} {event}")
        return replies

    def _find_failed(self, roles: list[ClientRole], replies: dict[int, Reply]) -> list[ClientRole]:
        """Return the clients of the objective that failed, where the others are no quorum."""
        weight = self.population.objective
        total = sum(weight[role.client] for role in roles)
        failed = [r for r in roles if weight[r.client] > 0 and replies[r.client].why]
        replied = total - sum(weight[role.client] for role in failed)
        return failed if replied < self.network.quorum * total else []

    def wait_for(self, clients: list[int]) -> None:
        """Wait for clients to connect, no longer than for a reply."""
        until = time.monotonic() + self.network.timeout
        while time.monotonic() < until:
            if set(clients) <= set(self.registry.find_nodes(self.grid)[0]):
                return
            time.sleep(max(0.0, min(POLL_INTERVAL, until - time.monotonic())))

    def request(
        self,
        kind: str,
        offer: Offer,
        roles: list[ClientRole],
        no_wait: frozenset[int],
        more: Records | None = None,
    ) -> dict[int, Reply]:
        """Send one request, and again with the model (and the transform) to those who no longer
        hold it."""
        nodes, unregistered = self.registry.find_nodes(self.grid)
        for name in sorted(unregistered - self.unregistered):
            self.events.append((-1, f"turned away: key {name} is not registered"))
        self.unregistered |= unregistered
        replies: dict[int, Reply] = {}
        waiting = roles
        packed = PackedOffer(replace(offer, frozen=self.frozen), self.network.precision)
        name = hash_transform(self.transform) if self.transform else ""
        for carry_all in (False, True):
            carried, contents, expected = {}, {}, {}
            for role in waiting:
                k = role.client
                expected[k] = self._expect_reply(kind, offer, role, more or {})
                if k in nodes:
                    model = carry_all or self.held.get(k) != offer.round
                    content = write_offer(packed, role, self.experiment, model, name)
                    content.update(more or {})
                    prepare = bool(name) and (carry_all or k not in self.prepared)
                    if prepare:
                        content[TRANSFORM] = ConfigRecord({"text": self.transform})
                    carried[k] = model and (prepare or not name)
                    contents[k] = (nodes[k], content)
            limits = {k: reply_limits(what) for k, what in expected.items()}
            done = exchange(self.grid, contents, kind, self.network.timeout, limits, no_wait)
            self.counter.add(done)
            again = []
            for role in waiting:
                k = role.client
                if k in done.replies:
                    replies[k] = read_reply(done.replies[k], expected[k])
                    if not done.replies[k].has_error():
                        self.held[k] = offer.round
                        self.prepared.add(k)
                    elif done.replies[k].error.code == APP_RAISED and not carried[k]:
                        again.append(role)  # it may have been restarted and hold nothing
                elif k in done.refused:
                    replies[k] = Reply(wrong=done.refused[k])
                else:
                    replies[k] = Reply(failed=done.missing.get(k, ABSENT))
            if not again:
                break
            waiting = again
        return replies

    def _expect_reply(
        self, kind: str, offer: Offer, role: ClientRole, more: Records
    ) -> ExpectedReply:
        """Return what a sound reply to this request consists of."""
        k, figures = role.client, figure_names(self.job.scoring.names)
        rows, dtype = int(self.population.sizes[k]), next(iter(offer.model.values())).dtype
        asked = int(count_steps(np.array([rows]), self.job.local, self.two_rows)[0])
        steps = asked if role.steps < 0 else role.steps
        steps *= self.job.method.trainings(role.importance > 0)
        common = (offer.round, k, rows, dtype, self.network.precision)
        if kind not in (MessageType.TRAIN, FETCH, UNMASK):
            return ExpectedReply(*common, figures=figures)
        if self.job.protects_clients:
            return expect_vector(ExpectedReply(*common), self.job.count_numbers(offer.model), more)
        shapes = {name: tuple(t.shape) for name, t in offer.model.items()}
        if kind == FETCH:
            return ExpectedReply(*common, shapes, {}, 0, figures)
        models, extra = self.job.method.reply_shapes(shapes, role.importance > 0, offer.trainable)
        models = {} if self.job.method.serves == "own" else models
        return ExpectedReply(*common, models, extra, steps, figures)
