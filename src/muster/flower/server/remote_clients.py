"""Clients across a network: what a round asks of them becomes requests, and replies its answers.

The `Messenger` sends the requests. A client that fails to reply is left out of the round with a
reason in the ledger; what the others report is checked here before it counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from flwr.app import MessageType

from ...base.arrays import Bool, Float64, Int64
from ...base.params import Params, State
from ...engines.batches import count_steps
from ...parts.guard import check_plausible
from ...parts.tracks import ACROSS, Tracks, restore_sent
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
from ...tasks.scores import Score
from ..transport.wire import (
    PREFIX,
    SPLITS,
    TRIAL,
    ClientRole,
    Reply,
    apply_precision,
    clean_line,
    figure_names,
    pack,
)
from .messenger import FETCH, Messenger

SHARE = Score("share", "share")  # all other figures lie between 0 and 1
COUNTED = "counted"  # the part of the state with the last counted reply of each client
TRY = "query.trial"


class RemoteClients:
    """The clients of a federation, asked over a grid.

    Attributes:
        trainable: names of the parameters that move by gradient
        staying: True for who stays, by round
    """

    def __init__(self, messenger: Messenger, trainable: tuple[str, ...]) -> None:
        self.messenger, self.trainable = messenger, trainable
        self.job, self.population = messenger.job, messenger.population
        self.precision = messenger.network.precision
        self.staying: dict[int, Bool] = {}

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
        return count_steps(rows, self.job.local, self.messenger.two_rows)

    def deliver(self, model: Params) -> Params:
        """Return a model as it arrives: rounded, where it travels in half the bytes."""
        return apply_precision(model, self.precision)

    @property
    def _score(self) -> str:
        return self.job.scoring.first.name

    @property
    def _figures(self) -> tuple[str, ...]:
        return figure_names(self.job.scoring.names)

    def _offer(self, t: int, model: Params) -> Offer:
        population = len(self.population.participants)
        return Offer(
            self.job.seed,
            t,
            self.job.rounds,
            self.deliver(model),
            population=population,
            trainable=self.trainable,
            score_name=self._score,
        )

    def _measure(self, t: int, model: Params, roles: list[ClientRole]) -> dict[str, Float64]:
        """Return every figure of these clients' reports on a model; NaN where there is none."""
        n = self.population.n
        replies = self.messenger.ask(MessageType.EVALUATE, self._offer(t, model), roles)
        scoring = self.job.scoring
        names = self._figures
        figures = {name: np.full(n, np.nan) for name in names}
        for k, reply in replies.items():
            if reply.why:
                self.messenger.events.append((k, f"did not evaluate: {reply.why}"))
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
            values, given = figures[name], ~np.isnan(figures[name])
            sound = check_plausible(Appraisal(values, unscored), self.population.priority, can).yes
            for liar in np.flatnonzero(given & ~sound):
                self.messenger.events.append((int(liar), f"impossible {name}"))
            values[~sound] = np.nan
        before = self.staying.get(t, np.zeros(n, np.bool_))
        self.staying = {t: before | (figures["stays"] == 1)}
        return figures

    def appraise(self, t: int, model: Params, clients: Int64) -> Appraisal:
        """Return F_k(w) and the score, as clients report them; NaN where they do not."""
        figures = self._measure(t, model, [self.messenger.build_role(int(k)) for k in clients])
        of = PREFIX[self.job.split]
        return Appraisal(figures[f"{of}loss"][clients], figures[of + self._score][clients])

    def try_models(
        self, offer: Offer, models: Sequence[Params], clients: Int64, cache: EvaluationCache
    ) -> Trial:
        """Return clients' losses at the offer's model and at others; NaN where they report none, or
        an impossible one."""
        roles = [self.messenger.build_role(int(k)) for k in clients]
        more = {f"{TRIAL}{i}": pack(m, self.precision) for i, m in enumerate(models)}
        replies = self.messenger.ask(TRY, offer, roles, more)
        trials = np.full((len(models) + 1, len(clients)), np.nan)
        least = self.job.possible.least
        for at, k in enumerate(clients.tolist()):
            losses = np.array(replies[k].report.get("trial", []), np.float64)
            if replies[k].why:
                self.messenger.events.append((k, f"tried nothing out: {replies[k].why}"))
            elif self.job.possible.silent and np.isnan(losses).all():
                pass  # its rows have no loss
            elif len(losses) != len(trials) or not (np.isfinite(losses) & (losses >= least)).all():
                self.messenger.events.append((k, "impossible trial"))
            else:
                trials[:, at] = losses
        traffic = self.messenger.counter.take_some(clients)
        return Trial(trials, clients, traffic, self.messenger.take_events())

    def fetch(self, offer: Offer, replies: Replies) -> ModelFetch:
        """Ask for the models that were not sent with these replies. One that does not come, or not
        in shape, is missing: its sender does not count."""
        clients = replies.roster.clients
        got = self.messenger.ask(FETCH, offer, [self.messenger.build_role(int(k)) for k in clients])
        sent = [got[int(k)] for k in clients]
        models = {
            name: torch.stack([(r.model or offer.model)[name] for r in sent])
            for name in offer.model
        }
        missing = np.array([r.why for r in sent], np.dtypes.StringDType())
        return ModelFetch(models, missing, *self.messenger.counter.take_some(clients))

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
        roles = [self.messenger.build_role(int(k), counted=int(counted[k])) for k in inside]
        figures = self._measure(state.round, state.model, [] if self.job.hides_clients else roles)

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
            self.messenger.build_role(
                int(k), -1 if steps is None else int(steps[i]), int(counted[i])
            )
            for i, k in enumerate(asked)
        ]
        replies = self.messenger.ask(MessageType.TRAIN, offer, roles)
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
        answers = Answers(
            decision,
            build_no_replies(offer, roster),
            Appraisal(loss, score),
            np.empty(0, np.int64),
            {},
            failed,
            traffic=self.messenger.counter.take(asked),
            events=self.messenger.take_events(),
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
