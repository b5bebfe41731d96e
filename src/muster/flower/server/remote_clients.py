"""Clients across a network: every request of a round becomes messages on a Flower grid.

A client that does not reply within the timeout, or replies nonsense, is left out of the round with
a reason in the ledger; nothing a client sends can raise here. Those whom the objective needs are
asked again (retries). A model travels to a client once a round, with the first message that needs
it, and the scaler and encoder of features once a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, MessageType
from flwr.serverapp import Grid

from ...base.arrays import Bool, Float64, Int64
from ...base.params import Params, State
from ...config.network import Network
from ...engines.batches import count_steps
from ...federation import Population
from ...parts.guard import check_plausible
from ...parts.tracks import ACROSS, Tracks, restore_sent
from ...privacy.contributions import CONTRIBUTION, Contributions
from ...privacy.fixed_point import Vectors, add, centre
from ...protocol import (
    Answers,
    Appraisal,
    Decision,
    Evaluation,
    ModelFetch,
    Offer,
    Replies,
    Roster,
    RunState,
    Trial,
)
from ...run.clients import build_no_replies
from ...run.evaluation_cache import EvaluationCache
from ...run.job import Job
from ...tasks.scores import Score
from ..transport.keys import KeyRegistry
from ..transport.requests import Failures, TrafficCounter, exchange, reply_limits
from ..transport.sum_wire import UNMASK, expect_vector
from ..transport.wire import (
    APP_RAISED,
    PREFIX,
    SPLITS,
    TRIAL,
    UNSTATED,
    ClientRole,
    ExpectedReply,
    PackedOffer,
    Reply,
    apply_precision,
    clean_line,
    figure_names,
    pack,
    read_reply,
    write_offer,
)
from .fit_columns import TRANSFORM, Say, hash_transform
from .remote_sum import RemoteSum

SHARE = Score("share", "share")  # all other figures lie between 0 and 1
COUNTED = "counted"  # the part of the state with the last counted reply of each client
ABSENT = "failed: not connected"
TRY, FETCH = "query.trial", "query.fetch"
POLL_INTERVAL = 1.0  # seconds between looks for clients that have not connected

Records = Mapping[str, ArrayRecord | ConfigRecord]


@dataclass
class RemoteClients:
    """The clients of a federation, asked over a grid.

    Attributes:
        registry: the clients' public keys, by which their nodes are found
        trainable: names of the parameters that move by gradient
        two_rows: True if the module cannot train on a batch of one row
        experiment: the terms of the run that clients must know, as TOML
        transform: the scaler and encoder of features, as text; "": clients choose their own
        frozen: digest of the frozen parameters, which do not travel
        sums: the server's half of secure sums; None: they are not
    """

    grid: Grid
    registry: KeyRegistry
    population: Population
    job: Job
    trainable: tuple[str, ...]
    two_rows: bool
    network: Network
    experiment: str
    transform: str = ""
    frozen: str = ""
    sums: RemoteSum | None = None
    counter: TrafficCounter = field(init=False)
    events: list[tuple[int, str]] = field(default_factory=list)
    held: dict[int, int] = field(default_factory=dict)  # the round whose model each client holds
    prepared: set[int] = field(default_factory=set)  # clients that hold the transform
    staying: dict[int, Bool] = field(default_factory=dict)  # True for who stays, by round
    unregistered: set[str] = field(default_factory=set)  # keys that were refused
    say: Say = print
    failures: Failures = field(init=False)

    def __post_init__(self) -> None:
        n = self.population.n
        self.failures = Failures(self.network.failures)
        self.counter = TrafficCounter(np.zeros(n, np.int64), np.zeros(n, np.int64))

    @property
    def name(self) -> str:
        return "flower"

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def attackers(self) -> Int64:
        """Nobody: attackers of a real federation are not known."""
        return np.empty(0, np.int64)

    def get_requirements(self, clients: Int64) -> Float64:
        """Return NaN: requirements stay with the clients."""
        return np.full(len(clients), np.nan)

    def get_solo_scores(self, clients: Int64) -> Float64 | None:
        """Return None: it stays with the clients too."""
        return None

    def close(self) -> None:
        """Release nothing."""

    def max_replies(self, model: Params) -> int:
        """Return the number of all clients: they train at the same time."""
        return self.population.n

    def steps(self, clients: Int64) -> Int64:
        """Return the steps that `Local` asks of each, by the rows it counts for where those are
        fewer than it states: other clients' work is measured by them."""
        population = self.population
        rows = np.minimum(population.sizes, population.rows)[clients]
        return count_steps(rows, self.job.local, self.two_rows)

    def deliver(self, model: Params) -> Params:
        """Return a model as it arrives: rounded, where it travels in half the bytes."""
        return apply_precision(model, self.network.precision)

    def ask(
        self, kind: str, offer: Offer, roles: Iterable[ClientRole], more: Records | None = None
    ) -> dict[int, Reply]:
        """Send one request to some clients and return every one's reply, failed or not. Clients of
        the objective that failed are asked again, as long as too few replied.

        Args:
            more: records that travel with the offer
        """
        roles = list(roles)
        replies = self._request(kind, offer, roles, self.failures.aside, more)
        for _ in range(self.network.retries):
            failed = self._find_failed(roles, replies)
            if not failed:
                break
            for role in failed:
                self.events.append((role.client, f"asked again: {replies[role.client].why}"))
            self._wait_for([role.client for role in failed])
            replies |= self._request(kind, offer, failed, frozenset(), more)
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
        heard = total - sum(weight[role.client] for role in failed)
        return failed if heard < self.network.quorum * total else []

    def _wait_for(self, clients: list[int]) -> None:
        """Wait for clients to connect, no longer than for a reply."""
        until = time.monotonic() + self.network.timeout
        while time.monotonic() < until:
            if set(clients) <= set(self.registry.find_nodes(self.grid)[0]):
                return
            time.sleep(max(0.0, min(POLL_INTERVAL, until - time.monotonic())))

    def _request(
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
                expected[k] = self._expect_reply(kind, offer, role)
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

    def _expect_reply(self, kind: str, offer: Offer, role: ClientRole) -> ExpectedReply:
        k = role.client
        rows, dtype = int(self.population.sizes[k]), next(iter(offer.model.values())).dtype
        asked = int(count_steps(np.array([rows]), self.job.local, self.two_rows)[0])
        steps = asked if role.steps < 0 else role.steps
        steps *= self.job.method.trainings(role.importance > 0)
        common = (offer.round, k, rows, dtype, self.network.precision)
        if kind not in (MessageType.TRAIN, FETCH, UNMASK):
            return ExpectedReply(*common, figures=self._figures)
        if self.job.protects_clients:
            return expect_vector(ExpectedReply(*common), self.job.count_numbers(offer.model), kind)
        shapes = {name: tuple(t.shape) for name, t in offer.model.items()}
        if kind == FETCH:
            return ExpectedReply(*common, shapes, {}, 0, self._figures)
        models, extra = self.job.method.reply_shapes(shapes, role.importance > 0)
        models = {} if self.job.method.serves == "own" else models
        return ExpectedReply(*common, models, extra, steps, self._figures)

    @property
    def _score(self) -> str:
        return self.job.scoring.first.name

    @property
    def _figures(self) -> tuple[str, ...]:
        return figure_names(self.job.scoring.names)

    def _offer(self, t: int, model: Params) -> Offer:
        population = int((~self.population.unseen).sum())
        return Offer(
            self.job.seed,
            t,
            self.job.rounds,
            self.deliver(model),
            population=population,
            trainable=self.trainable,
            score_name=self._score,
        )

    def _role(self, k: int, steps: int = -1, counted: int = UNSTATED) -> ClientRole:
        p = self.population
        return ClientRole(k, bool(p.priority[k]), float(p.importance[k]), steps, counted)

    def _measure(self, t: int, model: Params, roles: list[ClientRole]) -> dict[str, Float64]:
        """Return every figure of these clients' reports on a model; NaN where there is none."""
        n = self.population.n
        replies = self.ask(MessageType.EVALUATE, self._offer(t, model), roles)
        scoring = self.job.scoring
        names = self._figures
        figures = {name: np.full(n, np.nan) for name in names}
        for k, reply in replies.items():
            if reply.why:
                self.events.append((k, f"did not evaluate: {reply.why}"))
                continue
            for name, values in figures.items():
                values[k] = reply.figure(name)
        by_name = {split + score.name: score for split in SPLITS for score in scoring.scores}
        by_name |= dict.fromkeys(("preferred", f"tuned_{scoring.first.name}"), scoring.first)
        for name in (name for name in names if not name.endswith("loss")):
            values, score = figures[name], by_name.get(name, SHARE)
            values[~((values >= score.least) & (values <= score.most))] = np.nan
        # Only the loss: the scores were checked above.
        can, unscored = replace(self.job.possible, undefined=True), np.full(n, np.nan)
        for name in (name for name in names if name.endswith("loss")):
            values, heard = figures[name], ~np.isnan(figures[name])
            sound = check_plausible(Appraisal(values, unscored), self.population.priority, can).yes
            for liar in np.flatnonzero(heard & ~sound):
                self.events.append((int(liar), f"impossible {name}"))
            values[~sound] = np.nan
        before = self.staying.get(t, np.zeros(n, np.bool_))
        self.staying = {t: before | (figures["stays"] == 1)}
        return figures

    def appraise(self, t: int, model: Params, clients: Int64) -> Appraisal:
        """Return F_k(w) and the score, as clients report them; NaN where they do not."""
        figures = self._measure(t, model, [self._role(int(k)) for k in clients])
        of = PREFIX[self.job.split]
        return Appraisal(figures[f"{of}loss"][clients], figures[of + self._score][clients])

    def try_models(
        self, offer: Offer, models: Sequence[Params], clients: Int64, cache: EvaluationCache
    ) -> Trial:
        """Return clients' losses at the offer's model and at others; NaN where they report none, or
        an impossible one."""
        roles = [self._role(int(k)) for k in clients]
        more = {f"{TRIAL}{i}": pack(m, self.network.precision) for i, m in enumerate(models)}
        replies = self.ask(TRY, offer, roles, more)
        trials = np.full((len(models) + 1, len(clients)), np.nan)
        least = self.job.possible.least
        for at, k in enumerate(clients.tolist()):
            losses = np.array(replies[k].report.get("trial", []), np.float64)
            if replies[k].why:
                self.events.append((k, f"tried nothing out: {replies[k].why}"))
            elif self.job.possible.silent and np.isnan(losses).all():
                pass  # its rows have no loss
            elif len(losses) != len(trials) or not (np.isfinite(losses) & (losses >= least)).all():
                self.events.append((k, "impossible trial"))
            else:
                trials[:, at] = losses
        up, down = self.counter.up[clients], self.counter.down[clients]
        self.counter.up[clients], self.counter.down[clients] = 0, 0
        events, self.events = tuple(self.events), []
        return Trial(trials, clients, (up, down), events)

    def fetch(self, offer: Offer, replies: Replies) -> ModelFetch:
        """Ask for the models that were not sent with these replies. One that does not come, or not
        in shape, is missing: its sender does not count."""
        clients = replies.roster.clients
        got = self.ask(FETCH, offer, [self._role(int(k)) for k in clients])
        sent = [got[int(k)] for k in clients]
        up, down = self.counter.up[clients].copy(), self.counter.down[clients].copy()
        self.counter.up[clients], self.counter.down[clients] = 0, 0
        models = {
            name: torch.stack([(r.model or offer.model)[name] for r in sent])
            for name in offer.model
        }
        missing = np.array([r.why for r in sent], np.dtypes.StringDType())
        return ModelFetch(models, missing, up, down)

    def decide_to_stay(self, clients: Int64, cache: EvaluationCache) -> Bool:
        """Return True for each client that reported that it stays."""
        cache.appraise(clients)
        (now,) = self.staying.values()
        return now[clients]

    def report(self, offer: Offer, clients: Int64, cache: EvaluationCache) -> Appraisal:
        """Return what clients report of the model."""
        return cache.appraise(clients)

    def evaluate(self, state: RunState) -> Evaluation:
        """Return the evaluation of a state by every client in the run; nobody is asked where the
        server is to see sums alone."""
        assert state.clients is not None, "the state has the counted rounds from the start"
        n = self.population.n
        counted = get_counted(state.clients.get(np.arange(n)), n)
        inside = np.flatnonzero(self.population.sizes)
        roles = [self._role(int(k), counted=int(counted[k])) for k in inside]
        figures = self._measure(state.round, state.model, [] if self.sums else roles)

        def appraisal(prefix: str) -> Appraisal:
            first, *names = self.job.scoring.names
            more = {name: figures[prefix + name] for name in names}
            return Appraisal(figures[f"{prefix}loss"], figures[prefix + first], more)

        def optional(prefix: str) -> Appraisal | None:
            found = appraisal(prefix)
            nothing = np.isnan(found.loss).all() and np.isnan(found.score).all()
            return None if nothing else found

        def figure(name: str) -> Float64 | None:
            return None if np.isnan(figures[name]).all() else figures[name]

        return Evaluation(
            appraisal(""),
            optional("test_"),
            figures["useful"],
            figure("meets"),
            figure("meets_test"),
            figure("preferred"),
            optional("own_"),
            optional("own_test_"),
            figure("meets_tuned"),
            figure(f"tuned_{self._score}"),
            self._score,
        )

    def contribute(
        self, offer: Offer, roster: Roster, given: Int64, cache: EvaluationCache, memory: State
    ) -> Contributions:
        """Ask clients for their contributions, and sum those that are no longer than the clip.
        Nodes count their own contributions; an answer that is missing or malformed adds nothing."""
        asked, n = roster.clients, len(roster)
        replies = self.ask(MessageType.TRAIN, offer, self._contributors(roster, memory))
        received = [replies[int(k)] for k in asked]
        total = np.zeros(self.job.count_numbers(offer.model), np.uint32)
        yes = np.zeros(n, np.bool_)
        reason = np.array([r.why or "abstained" for r in received], np.dtypes.StringDType())
        for i, r in enumerate(received):
            if r.why or r.model is None:
                continue
            vector = r.model[CONTRIBUTION].numpy()
            yes[i] = is_within_clip(vector, roster.share[i] * self.job.scale(offer))
            reason[i] = "contributed" if yes[i] else "malformed: longer than the clip"
            total = add(np.stack([total, vector])) if yes[i] else total
        return self._record_contributions(offer, roster, total, Decision(yes, reason), received)

    def contribute_securely(
        self,
        offer: Offer,
        roster: Roster,
        given: Int64,
        cache: EvaluationCache,
        memory: State,
        charge: Callable[[], None],
    ) -> Contributions:
        """Ask clients for masked contributions, and the committee for the sum of the masks. All
        that is known of a client is that it answered."""
        assert self.sums is not None, "the terms of a secure run have its parties"
        roles = self._contributors(roster, memory)

        def ask_some(members: list[int], more: Records) -> dict[int, Reply]:
            self._wait_for(members)
            some = [self._role(k) for k in members]
            return self._request(UNMASK, offer, some, frozenset(), more)

        def log(line: str) -> None:
            self.events.append((-1, line))
            self.say(line)

        done, replies = self.sums.sum(
            offer,
            lambda more: self.ask(MessageType.TRAIN, offer, roles, more),
            ask_some,
            charge,
            log,
        )
        inside = [] if done is None else done.clients
        yes = np.isin(roster.clients, inside)
        received = [replies[int(k)] for k in roster.clients]
        why = [r.why or ("answered" if yes[i] else "no sum") for i, r in enumerate(received)]
        decision = Decision(yes, np.array(why, np.dtypes.StringDType()))
        total = None if done is None else done.total
        return self._record_contributions(offer, roster, total, decision, received)

    def _contributors(self, roster: Roster, memory: State) -> list[ClientRole]:
        counted = get_counted(memory, len(roster))
        return [
            replace(self._role(int(k), counted=int(counted[i])), share=float(roster.share[i]))
            for i, k in enumerate(roster.clients)
        ]

    def _record_contributions(
        self,
        offer: Offer,
        roster: Roster,
        total: Vectors | None,
        decision: Decision,
        received: Sequence[Reply],
    ) -> Contributions:
        """Return what the server knows after it asked for contributions."""
        n, yes = len(roster), decision.yes
        events, self.events = tuple(self.events), []
        unknown = np.full(n, np.nan)
        return Contributions(
            total,
            decision,
            Appraisal.unknown(n),
            np.where(yes, unknown, 0.0),
            unknown,
            np.zeros(n, np.int64),
            {COUNTED: {"round": torch.full((int(yes.sum()),), offer.round + 1)}},
            np.array([bool(r.failed) for r in received], np.bool_),
            self.counter.take(roster.clients),
            events,
        )

    def respond(
        self,
        offer: Offer,
        roster: Roster,
        steps: Int64 | None,
        cache: EvaluationCache,
        memory: State,
    ) -> Answers:
        """Ask clients to train; those who abstain reply so, and those who fail are left out."""
        asked, n = roster.clients, len(roster)
        counted = get_counted(memory, n)
        roles = [
            self._role(int(k), -1 if steps is None else int(steps[i]), int(counted[i]))
            for i, k in enumerate(asked)
        ]
        replies = self.ask(MessageType.TRAIN, offer, roles)
        received = [replies[int(k)] for k in asked]
        failed = np.array([bool(r.failed) for r in received], np.bool_)
        sound = np.array([r.model is not None and not r.wrong for r in received], np.bool_)
        joined = ~failed & (sound | np.array([bool(r.wrong) for r in received], np.bool_))
        reason = np.array(
            [r.failed or r.wrong or clean_line(str(r.report.get("reason", ""))) for r in received],
            np.dtypes.StringDType(),
        )
        decision = Decision(joined, reason)
        known = cache.known.pick(asked)
        loss, score = known.loss.copy(), known.score.copy()
        for i in np.flatnonzero(sound):
            if self.job.method.reports:
                loss[i], score[i] = received[i].figure("loss"), received[i].figure(self._score)
        events, self.events = tuple(self.events), []
        answers = Answers(
            decision,
            build_no_replies(offer, roster),
            Appraisal(loss, score),
            np.empty(0, np.int64),
            {},
            failed,
            traffic=self.counter.take(asked),
            events=events,
        )
        if not sound.any():
            return answers
        sent = [received[i] for i in np.flatnonzero(sound)]
        return replace(
            answers,
            replies=stack_replies(
                offer,
                roster.pick(sound),
                sent,
                Appraisal(loss, score).pick(sound),
                self.job.method.tracks,
            ),
            steps=np.array([r.report.get("steps", 0) for r in sent], np.int64),
            state={COUNTED: {"round": torch.full((len(sent),), offer.round + 1)}},
        )


def is_within_clip(vector: Vectors, most: float) -> bool:
    """Return True if a contribution's length is at most this: a check of one reply alone."""
    whole = centre(vector).astype(np.float64)
    return float(np.sqrt((whole * whole).sum())) <= most * (1 + 1e-9)


def stack_replies(
    offer: Offer,
    roster: Roster,
    sent: list[Reply],
    appraisal: Appraisal,
    tracks: Tracks | None = None,
) -> Replies:
    """Stack single replies. Where clients keep their models, or some tracks of them, the offer's
    stand for them; where they send no part of their extras, zeros do."""
    member = (roster.importance > 0).tolist()
    whole = [
        restore_sent(tracks, who, offer.model, r.model or offer.model)
        for who, r in zip(member, sent, strict=True)
    ]
    models = {name: torch.stack([m[name] for m in whole]) for name in offer.model}
    extra: State = {}
    for part in {part: None for r in sent for part in r.extra}:
        tables = [r.extra.get(part, {}) for r in sent]
        zeros = {n: torch.zeros_like(t) for n, t in next(t for t in tables if t).items()}
        if part not in ACROSS and tracks is not None:
            zeros = {n: torch.zeros_like(t) for n, t in offer.model.items()}
            tables = [
                restore_sent(tracks, who, zeros, table)
                for who, table in zip(member, tables, strict=True)
            ]
        extra[part] = {
            n: torch.stack([table.get(n, t) for table in tables]) for n, t in zeros.items()
        }
    claim = np.array([r.figure("claim") for r in sent])
    return Replies(roster, models, appraisal, claim, extra, offer.trainable)


def get_counted(memory: State, n: int) -> Int64:
    """Return the last round whose reply was counted, for each client, from the run's state."""
    if COUNTED not in memory:
        return np.zeros(n, np.int64)
    return np.asarray(memory[COUNTED]["round"].numpy(), np.int64)


def init_counted() -> State:
    """Return the state before the first round: no reply has been counted."""
    return {COUNTED: {"round": torch.zeros((), dtype=torch.int64)}}
