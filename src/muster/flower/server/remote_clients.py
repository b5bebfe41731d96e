"""Clients across a network: every question a round has for them becomes messages on a Flower grid.

Whoever does not answer in time, or answers nonsense, is left out of the round with a reason in
the ledger; nothing a client sends can raise here. A model travels to a client once a round, with
the first message that needs it, and what features are made by once a run.
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
from ...protocol import (
    Answers,
    Appraisal,
    Decision,
    Evaluation,
    Offer,
    Replies,
    Roster,
    RunState,
    Traffic,
    Trial,
)
from ...run.clients import build_no_replies
from ...run.evaluation_cache import EvaluationCache
from ...run.job import Job
from ...tasks.scores import Score
from ..transport.requests import Exchange, exchange, limits_of
from ..transport.wire import (
    PREFIX,
    RAISED,
    SPLITS,
    TRIAL,
    UNSAID,
    Expected,
    Packed,
    Reply,
    Seat,
    as_sent,
    figures_of,
    line,
    pack,
    read_reply,
    write_offer,
)
from .failures import Strikes
from .fit_columns import FITTED, named
from .identities import Registry

SHARE = Score("share", "share")  # what else clients tell lies between 0 and 1
COUNTED = "counted"  # the part of the state that says which replies were counted
ABSENT = "failed: not connected"
TRY = "query.trial"
LOOK_EVERY = 1.0  # seconds between looks for clients that have not come

Say = Callable[[str], None]
Records = Mapping[str, ArrayRecord]


@dataclass
class Counter:
    """Bytes to and from each client since they were last taken down."""

    up: Int64
    down: Int64

    def add(self, came: Exchange) -> None:
        """Count questions and answers."""
        for k, n in came.sent.items():
            self.down[k] += n
        for k, n in came.up.items():
            self.up[k] += n

    def take(self, asked: Int64) -> Traffic:
        """What was counted, and start again."""
        others = np.ones(len(self.up), np.bool_)
        others[asked] = False
        traffic = Traffic(
            self.up[asked],
            self.down[asked],
            int(self.up[others].sum()),
            int(self.down[others].sum()),
        )
        self.up[:], self.down[:] = 0, 0
        return traffic


@dataclass
class Remote:
    """The clients of a federation, asked over a grid.

    Attributes:
        registry: who is at which node now, by public key
        trainable: names of the parameters that move by gradient
        two_rows: True: the module cannot train on a batch of one row
        experiment: the terms of the run that clients must know, as TOML
        fitted: the scaler and encoder of features, as text; "": that is left to clients
        frozen: digest of the frozen parameters, which do not travel
    """

    grid: Grid
    registry: Registry
    population: Population
    job: Job
    trainable: tuple[str, ...]
    two_rows: bool
    network: Network
    experiment: str
    fitted: str = ""
    frozen: str = ""
    counter: Counter = field(init=False)
    events: list[tuple[int, str]] = field(default_factory=list)
    here: dict[int, int] = field(default_factory=dict)  # which round's model each client holds
    told: set[int] = field(default_factory=set)  # who was sent what features are made by
    staying: dict[int, Bool] = field(default_factory=dict)  # who stays, by round
    strangers: set[str] = field(default_factory=set)
    say: Say = print
    strikes: Strikes = field(init=False)

    def __post_init__(self) -> None:
        n = self.population.n
        self.strikes = Strikes(self.network.failures)
        self.counter = Counter(np.zeros(n, np.int64), np.zeros(n, np.int64))

    @property
    def name(self) -> str:
        return "flower"

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def attackers(self) -> Int64:
        """Nobody: who lies in a real federation does not say so."""
        return np.empty(0, np.int64)

    def get_requirements(self, clients: Int64) -> Float64:
        """Not known here: it stays with the client."""
        return np.full(len(clients), np.nan)

    def get_solo_scores(self, clients: Int64) -> Float64 | None:
        """Not known here either."""
        return None

    def close(self) -> None:
        """Nothing to let go of."""

    def max_replies(self, model: Params) -> int:
        """All of them: they train at the same time, wherever they are."""
        return self.population.n

    def steps(self, clients: Int64) -> Int64:
        """How many steps `Local` asks of each, by the rows it counts for where those are fewer
        than it states: what others' work is measured by."""
        role = self.population
        rows = np.minimum(role.sizes, role.rows)[clients]
        return count_steps(rows, self.job.local, self.two_rows)

    def deliver(self, model: Params) -> Params:
        """A model as it arrives: rounded, where it travels in half the bytes."""
        return as_sent(model, self.network.precision)

    def ask(
        self, kind: str, offer: Offer, seats: Iterable[Seat], more: Records | None = None
    ) -> dict[int, Reply]:
        """One request to some clients, and every one's reply, whatever came of it. Clients of the
        objective that failed are asked again, as long as too few of them were heard. `more` is what
        travels with the offer."""
        seats = list(seats)
        replies = self._request(kind, offer, seats, self.strikes.aside(), more)
        for _ in range(self.network.retries):
            lacking = self._lacking(seats, replies)
            if not lacking:
                break
            for seat in lacking:
                self.events.append((seat.client, f"asked again: {replies[seat.client].why}"))
            self._await([seat.client for seat in lacking])
            replies |= self._request(kind, offer, lacking, frozenset(), more)
        for k, reply in replies.items():
            news = self.strikes.note(kind, k, reply.why)
            if news:
                self.events.append((k, news))
                self.say(f"{self.registry.members[k].name} {news}")
        return replies

    def _lacking(self, seats: list[Seat], replies: dict[int, Reply]) -> list[Seat]:
        """Clients of the objective that failed, where those who did not are no quorum."""
        weight = self.population.objective
        total = sum(weight[seat.client] for seat in seats)
        lost = [s for s in seats if weight[s.client] > 0 and replies[s.client].why]
        heard = total - sum(weight[seat.client] for seat in lost)
        return lost if heard < self.network.quorum * total else []

    def _await(self, clients: list[int]) -> None:
        """Wait for these to connect, if they are not; no longer than for an answer."""
        until = time.monotonic() + self.network.timeout
        while time.monotonic() < until:
            if set(clients) <= set(self.registry.connected(self.grid)[0]):
                return
            time.sleep(max(0.0, min(LOOK_EVERY, until - time.monotonic())))

    def _request(
        self,
        kind: str,
        offer: Offer,
        seats: list[Seat],
        unawaited: frozenset[int],
        more: Records | None = None,
    ) -> dict[int, Reply]:
        """Send one request, and again with the model (and what features are made by) to those who
        no longer hold it."""
        nodes, strangers = self.registry.connected(self.grid)
        for name in sorted(strangers - self.strangers):
            self.events.append((-1, f"turned away: key {name} is not registered"))
        self.strangers |= strangers
        replies: dict[int, Reply] = {}
        waiting = seats
        packed = Packed(replace(offer, frozen=self.frozen), self.network.precision)
        name = named(self.fitted) if self.fitted else ""
        for carry_all in (False, True):
            carried, contents, expected = {}, {}, {}
            for seat in waiting:
                k = seat.client
                expected[k] = self._expected(kind, offer, seat)
                if k in nodes:
                    model = carry_all or self.here.get(k) != offer.round
                    content = write_offer(packed, seat, self.experiment, model, name)
                    content.update(more or {})
                    makes = bool(name) and (carry_all or k not in self.told)
                    if makes:
                        content[FITTED] = ConfigRecord({"text": self.fitted})
                    carried[k] = model and (makes or not name)
                    contents[k] = (nodes[k], content)
            limits = {k: limits_of(what) for k, what in expected.items()}
            came = exchange(self.grid, contents, kind, self.network.timeout, limits, unawaited)
            self.counter.add(came)
            again = []
            for seat in waiting:
                k = seat.client
                if k in came.answers:
                    replies[k] = read_reply(came.answers[k], expected[k])
                    if not came.answers[k].has_error():
                        self.here[k] = offer.round
                        self.told.add(k)
                    elif came.answers[k].error.code == RAISED and not carried[k]:
                        again.append(seat)  # it may have been restarted, and hold nothing any more
                elif k in came.refused:
                    replies[k] = Reply(wrong=came.refused[k])
                else:
                    replies[k] = Reply(failed=came.missing.get(k, ABSENT))
            if not again:
                break
            waiting = again
        return replies

    def _expected(self, kind: str, offer: Offer, seat: Seat) -> Expected:
        k = seat.client
        rows, dtype = int(self.population.sizes[k]), next(iter(offer.model.values())).dtype
        asked = int(count_steps(np.array([rows]), self.job.local, self.two_rows)[0])
        steps = asked if seat.steps < 0 else seat.steps
        common = (offer.round, k, rows, dtype, self.network.precision)
        if kind != MessageType.TRAIN:
            return Expected(*common, figures=self._figures)
        shapes = {name: tuple(t.shape) for name, t in offer.model.items()}
        extra = dict.fromkeys(self.job.method.solver.sends, shapes)
        models = {} if self.job.method.serves == "own" else shapes
        return Expected(*common, models, extra, steps, self._figures)

    @property
    def _score(self) -> str:
        return self.job.scoring.first.name

    @property
    def _figures(self) -> tuple[str, ...]:
        return figures_of(self.job.scoring.names)

    def _offer(self, t: int, model: Params) -> Offer:
        population = int((~self.population.unseen).sum())
        return Offer(
            self.job.seed, t, self.job.rounds, self.deliver(model),
            population=population, trainable=self.trainable, score_name=self._score,
        )  # fmt: skip

    def _seat(self, k: int, steps: int = -1, counted: int = UNSAID) -> Seat:
        role = self.population
        return Seat(k, bool(role.priority[k]), float(role.importance[k]), steps, counted)

    def _measure(self, t: int, model: Params, seats: list[Seat]) -> dict[str, Float64]:
        """Every figure of these clients' words on a model; NaN where there is none."""
        n = self.population.n
        replies = self.ask(MessageType.EVALUATE, self._offer(t, model), seats)
        scoring = self.job.scoring
        figures = self._figures
        said = {name: np.full(n, np.nan) for name in figures}
        for k, reply in replies.items():
            if reply.why:
                self.events.append((k, f"did not evaluate: {reply.why}"))
                continue
            for name, values in said.items():
                values[k] = reply.figure(name)
        by_name = {split + score.name: score for split in SPLITS for score in scoring.scores}
        by_name |= dict.fromkeys(("preferred", f"tuned_{scoring.first.name}"), scoring.first)
        for name in (name for name in figures if not name.endswith("loss")):
            values, score = said[name], by_name.get(name, SHARE)
            values[~((values >= score.least) & (values <= score.most))] = np.nan
        # Of the loss alone: whether its score can be was looked at above.
        can, unscored = replace(self.job.possible, undefined=True), np.full(n, np.nan)
        for name in (name for name in figures if name.endswith("loss")):
            values, heard = said[name], ~np.isnan(said[name])
            sound = check_plausible(Appraisal(values, unscored), self.population.priority, can).yes
            for liar in np.flatnonzero(heard & ~sound):
                self.events.append((int(liar), f"impossible {name}"))
            values[~sound] = np.nan
        before = self.staying.get(t, np.zeros(n, np.bool_))
        self.staying = {t: before | (said["stays"] == 1)}
        return said

    def appraise(self, t: int, model: Params, clients: Int64) -> Appraisal:
        """F_k(w) and the score, as they say; NaN where they do not."""
        said = self._measure(t, model, [self._seat(int(k)) for k in clients])
        of = PREFIX[self.job.split]
        return Appraisal(said[f"{of}loss"][clients], said[of + self._score][clients])

    def try_models(
        self, offer: Offer, models: Sequence[Params], clients: Int64, cache: EvaluationCache
    ) -> Trial:
        """What they say of the offer's model and of others; NaN where they do not, or say what
        cannot be."""
        seats = [self._seat(int(k)) for k in clients]
        more = {f"{TRIAL}{i}": pack(m, self.network.precision) for i, m in enumerate(models)}
        replies = self.ask(TRY, offer, seats, more)
        words = np.full((len(models) + 1, len(clients)), np.nan)
        least = self.job.possible.least
        for at, k in enumerate(clients.tolist()):
            told = np.array(replies[k].word.get("trial", []), np.float64)
            if replies[k].why:
                self.events.append((k, f"tried nothing out: {replies[k].why}"))
            elif self.job.possible.silent and np.isnan(told).all():
                pass  # its rows say no loss
            elif len(told) != len(words) or not (np.isfinite(told) & (told >= least)).all():
                self.events.append((k, "impossible trial"))
            else:
                words[:, at] = told
        up, down = self.counter.up[clients], self.counter.down[clients]
        self.counter.up[clients], self.counter.down[clients] = 0, 0
        events, self.events = tuple(self.events), []
        return Trial(words, clients, (up, down), events)

    def decide_to_stay(self, clients: Int64, cache: EvaluationCache) -> Bool:
        """Who said it stays. Who said nothing is not there to stay."""
        cache.appraise(clients)
        (now,) = self.staying.values()
        return now[clients]

    def report(self, offer: Offer, clients: Int64, cache: EvaluationCache) -> Appraisal:
        """What they say of the model."""
        return cache.appraise(clients)

    def evaluate(self, state: RunState) -> Evaluation:
        """What every client that is in the run makes of a state."""
        assert state.clients is not None, "what was counted is remembered from the start"
        n = self.population.n
        counted = counted_of(state.clients.get(np.arange(n)), n)
        inside = np.flatnonzero(self.population.sizes)
        seats = [self._seat(int(k), counted=int(counted[k])) for k in inside]
        said = self._measure(state.round, state.model, seats)

        def told(prefix: str) -> Appraisal:
            first, *names = self.job.scoring.names
            more = {name: said[prefix + name] for name in names}
            return Appraisal(said[f"{prefix}loss"], said[prefix + first], more)

        def pair(prefix: str) -> Appraisal | None:
            appraisal = told(prefix)
            nothing = np.isnan(appraisal.loss).all() and np.isnan(appraisal.score).all()
            return None if nothing else appraisal

        def given(name: str) -> Float64 | None:
            return None if np.isnan(said[name]).all() else said[name]

        return Evaluation(
            told(""), pair("test_"), said["useful"],
            given("meets"), given("meets_test"), given("preferred"),
            pair("own_"), pair("own_test_"), given("meets_tuned"), given(f"tuned_{self._score}"),
            self._score,
        )  # fmt: skip

    def respond(
        self,
        offer: Offer,
        roster: Roster,
        steps: Int64 | None,
        cache: EvaluationCache,
        memory: State,
    ) -> Answers:
        """Ask them to train; those who abstain say so, and whoever fails is left out."""
        asked, n = roster.clients, len(roster)
        counted = counted_of(memory, n)
        seats = [
            self._seat(int(k), -1 if steps is None else int(steps[i]), int(counted[i]))
            for i, k in enumerate(asked)
        ]
        replies = self.ask(MessageType.TRAIN, offer, seats)
        said = [replies[int(k)] for k in asked]
        failed = np.array([bool(r.failed) for r in said], np.bool_)
        sound = np.array([r.model is not None and not r.wrong for r in said], np.bool_)
        joined = ~failed & (sound | np.array([bool(r.wrong) for r in said], np.bool_))
        reason = np.array(
            [r.failed or r.wrong or line(str(r.word.get("reason", ""))) for r in said],
            np.dtypes.StringDType(),
        )
        decision = Decision(joined, reason)
        known = cache.known.pick(asked)
        loss, score = known.loss.copy(), known.score.copy()
        for i in np.flatnonzero(sound):
            if self.job.method.reports:
                loss[i], score[i] = said[i].figure("loss"), said[i].figure(self._score)
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
        heard = [said[i] for i in np.flatnonzero(sound)]
        return replace(
            answers,
            replies=stacked(offer, roster.pick(sound), heard, Appraisal(loss, score).pick(sound)),
            steps=np.array([r.word.get("steps", 0) for r in heard], np.int64),
            state={COUNTED: {"round": torch.full((len(heard),), offer.round + 1)}},
        )


def stacked(offer: Offer, roster: Roster, heard: list[Reply], word: Appraisal) -> Replies:
    """Single replies as a stack. Where clients keep their models, the offer's stands for them."""
    models = {
        name: torch.stack([(r.model or {}).get(name, t) for r in heard])
        for name, t in offer.model.items()
    }
    extra = {
        part: {name: torch.stack([r.extra[part][name] for r in heard]) for name in first}
        for part, first in heard[0].extra.items()
    }
    claim = np.array([r.figure("claim") for r in heard])
    return Replies(roster, models, word, claim, extra)


def counted_of(memory: State, n: int) -> Int64:
    """The last round whose reply of each client was counted, from the run's state."""
    if COUNTED not in memory:
        return np.zeros(n, np.int64)
    return np.asarray(memory[COUNTED]["round"].numpy(), np.int64)


def nothing_counted() -> State:
    """Before the first round no reply has been counted."""
    return {COUNTED: {"round": torch.zeros((), dtype=torch.int64)}}
