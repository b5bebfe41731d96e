"""Clients whose data is in this process, over a leading client axis.

All of them in a simulation, one in a deployed client. What the server asks of them is in
`clients.Clients`; here are their answers, computed by an engine from their rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..base import params
from ..base.arrays import Bool, Float64, Int64
from ..base.lazy import torch
from ..base.params import Params, State
from ..engines.engine import Assignment, Engine
from ..federation import Federation
from ..local import Local
from ..parts.sketch import SKETCH, project
from ..parts.solvers import SGD, Work
from ..parts.threats.adversary import Adversary
from ..privacy.row_noise import NoiseSource
from ..protocol import (
    Answers,
    Appraisal,
    Decision,
    Evaluation,
    HonestReplies,
    ModelFetch,
    Offer,
    Replies,
    Roster,
    RunState,
    Trial,
)
from . import evaluate
from .clients import build_no_replies
from .evaluation_cache import EvaluationCache
from .folds import report_spread, train_with_spread
from .job import Job
from .track_training import FoldRows, train_tracks

REPLIES = 2**28  # bytes of models in memory at once


@dataclass(frozen=True)
class LocalClients:
    """Clients whose data is in this process: all of them, or the one of a node."""

    fed: Federation
    job: Job
    engine: Engine
    adversary: Adversary = Adversary()

    @property
    def name(self) -> str:
        return self.engine.name

    @property
    def device(self) -> torch.device:
        return self.engine.device

    @property
    def trainable(self) -> tuple[str, ...]:
        return self.engine.trainable

    @property
    def attackers(self) -> Int64:
        return self.adversary.clients

    def close(self) -> None:
        """Close the engine."""
        self.engine.close()

    def deliver(self, model: Params) -> Params:
        """Return the model itself: nothing is sent."""
        return model

    def apply_attack(
        self, offer: Offer, clients: Int64, appraisal: Appraisal, requirement: Float64
    ) -> Appraisal:
        """Return the appraisals that these clients report: their own, or those of an attack."""
        if self.adversary.attack is None:
            return appraisal
        return self.adversary.report(offer, clients, appraisal, requirement)

    def max_replies(self, model: Params) -> int:
        """Return how many replies fit in a quarter of a gigabyte."""
        return REPLIES // max(1, params.nbytes(model))

    def get_requirements(self, clients: Int64) -> Float64:
        """Return the requirement rho_k of each; NaN where it has none."""
        rho = self.fed.requirement
        return np.full(len(clients), np.nan) if rho is None else rho[clients]

    def get_solo_scores(self, clients: Int64) -> Float64 | None:
        """Return the held-out score of each one's solo model, where it has trained one."""
        return None if self.fed.solo_score is None else self.fed.solo_score[clients]

    def get_decision_requirements(self, clients: Int64) -> Float64:
        """Return the requirement of each on the rows of decisions; NaN where it has none."""
        if self.fed.requirement is None:
            return np.full(len(clients), np.nan)
        return evaluate.get_requirements(self.fed, clients, self.job.split)

    def steps(self, clients: Int64) -> Int64:
        """Return the number of steps of `Local` for each."""
        return self.engine.steps(clients)

    def appraise(self, t: int, model: Params, clients: Int64) -> Appraisal:
        """Return F_k(w) and the score on the rows of decisions; where rows are protected, a
        released F_k and no score."""
        product, noise = self.job.method.product(model), self.engine.row_noise
        if noise is None:
            return self.engine.appraise(product, clients, self.job.split)
        mean = self.engine.appraise(product, clients, self.job.split, most=noise.most_loss).loss
        rows, ids = self.engine.data(self.job.split).sizes[clients], self.engine.ids(clients)
        source = NoiseSource(noise.seeded, "loss noise", self.job.seed, t, ids)
        released = noise.release_losses(mean, rows, clients, source)
        return Appraisal(released, np.full(len(clients), np.nan))

    def decide_to_stay(self, clients: Int64, cache: EvaluationCache) -> Bool:
        """Return True for clients that stay by the participation rule, and for attackers whose
        attack makes them stay."""
        attack = self.adversary.attack
        staying = self.would_stay(clients, cache)
        if attack is not None and attack.stays:
            staying = staying | np.isin(clients, self.attackers)
        return staying

    def would_stay(self, clients: Int64, cache: EvaluationCache) -> Bool:
        """Return True for clients that would stay by the participation rule, if there is one."""
        if self.job.participation is None:
            return np.ones(len(clients), np.bool_)
        return self.job.participation(
            cache.appraise(clients).loss, self.get_decision_requirements(clients)
        )

    def report(self, offer: Offer, clients: Int64, cache: EvaluationCache) -> Appraisal:
        """Return what they measured; of attackers, what their attack reports."""
        return self.apply_attack(
            offer, clients, cache.appraise(clients), self.get_decision_requirements(clients)
        )

    def respond(
        self,
        offer: Offer,
        roster: Roster,
        steps: Int64 | None,
        cache: EvaluationCache,
        memory: State,
    ) -> Answers:
        """Let each client decide whether to join; those who do, train and reply. The others train
        nothing and send nothing."""
        method, asked = self.job.method, roster.clients
        true = cache.appraise(asked) if method.appraises else cache.known.pick(asked)
        reported = self.apply_attack(offer, asked, true, self.get_decision_requirements(asked))
        decision = self.decide_to_join(offer, roster, reported)
        nobody = np.zeros(len(roster), np.bool_)
        joined, appraisal = roster.pick(decision.yes), reported.pick(decision.yes)
        if len(joined) == 0:
            none = build_no_replies(offer, roster)
            return Answers(decision, none, true, np.empty(0, np.int64), {}, nobody)
        own = memory
        if not decision.yes.all():
            own = {part: params.select(table, decision.yes) for part, table in memory.items()}
        asked_steps = None if steps is None else steps[decision.yes]
        work, taken, claim = self.train(offer, joined, own, asked_steps)
        rho = self.get_decision_requirements(joined.clients)
        tuned = self.appraise_after_tuning(offer, joined.clients, true.pick(decision.yes))
        honest_claim = claim
        if method.claim.needs_requirement:
            honest_claim = method.claim(tuned, rho)
            claim = method.claim(self.apply_attack(offer, joined.clients, tuned, rho), rho)
        sent = work.models
        if self.adversary.attack is not None:
            sent = self.adversary.send(offer, joined.clients, sent)
        extra = work.extra
        if method.sketch:
            sketches = project(sent, offer, method.sketch).to(next(iter(sent.values())))
            extra = {**extra, SKETCH: {SKETCH: sketches}}
        replies = Replies(joined, sent, appraisal, claim, extra, offer.trainable)
        truth = None
        if len(self.attackers) and np.isin(joined.clients, self.attackers).any():
            honest = true.pick(decision.yes)
            joins = self.decide_to_join(offer, joined, honest).yes
            if self.job.may_leave(offer.round):
                joins = joins & self.would_stay(joined.clients, cache)
            truth = HonestReplies(joins, honest, honest_claim)
        return Answers(decision, replies, true, taken, work.memory, nobody, truth)

    def decide_to_join(self, offer: Offer, roster: Roster, appraisal: Appraisal) -> Decision:
        """Return who joins by the method's rule; where `trust` needs witnesses, whatever their
        loss."""
        if self.job.needs_witnesses(offer):
            offer = replace(offer, eps=math.inf)
        return self.job.method.join(offer, roster, appraisal)

    def train(
        self, offer: Offer, roster: Roster, state: State, steps: Int64 | None
    ) -> tuple[Work, Int64, Float64]:
        """Train these clients; return their work, steps, and what training lets them claim."""
        method, clients = self.job.method, roster.clients
        nothing = np.full(len(roster), np.nan)
        if method.held_out:
            rest = self.divide_rows(offer.seed, roster).without(1)
            assignment = Assignment(steps, rows=rest, ids=roster.ids)
            work, taken = self.engine.train(method.solver, offer, clients, state, assignment)
            return work, taken, nothing
        if method.tracks is None and not method.folds:
            work, taken = self.engine.train(method.solver, offer, clients, state, Assignment(steps))
            return work, taken, nothing
        wanted = self.steps(clients) if steps is None else steps
        if method.tracks is not None:
            rows = self.fed.train.lists(clients)
            work, taken, claim = train_tracks(
                self.engine, rows, self.job, offer, roster, state, wanted
            )
            return work, taken, claim if method.folds else nothing
        work, taken, spread = train_with_spread(
            self.engine,
            None,
            self.job.local,
            method.solver,
            offer,
            roster,
            state,
            wanted,
            method.folds,
        )
        work, claim = report_spread(work, spread)
        return work, taken, claim

    def fetch(self, offer: Offer, replies: Replies) -> ModelFetch:
        """Return the models of the replies: they are here."""
        n = len(replies.roster)
        nothing = np.zeros(n, np.int64)
        missing = np.full(n, "", np.str_)
        return ModelFetch(replies.models, missing, nothing, nothing)

    def try_models(
        self, offer: Offer, models: Sequence[Params], clients: Int64, cache: EvaluationCache
    ) -> Trial:
        """Return what they measure, on held-out rows where the method judges by them; of attackers,
        what their attack reports."""
        if self.job.method.held_out:
            roster = Roster.of(self.fed, clients)
            held = self.divide_rows(offer.seed, roster).fold(1)
            every = [self.engine.appraise(m, clients, rows=held) for m in (offer.model, *models)]
        else:
            every = [self.appraise(offer.round, model, clients) for model in models]
            every = [cache.appraise(clients), *every]
        losses = np.stack([self.rate_losses(some.loss, clients) for some in every])
        if self.adversary.attack is not None:
            losses = self.adversary.vote(offer, clients, losses)
        return Trial(losses, clients)

    def divide_rows(self, seed: int, roster: Roster) -> FoldRows:
        """Return these clients' rows with the fold that those of the objective hold out."""
        rows = self.fed.train.lists(roster.clients)
        return FoldRows(rows, roster, seed, self.job.method.held_out)

    def rate_losses(self, loss: Float64, clients: Int64) -> Float64:
        """Return the value of a loss to each client, lower being better: the loss itself or, where
        clients weigh by their requirement (MaxFL eq. 3), `sigmoid(F_k - rho_k)`, which no report
        can drive beyond 0 and 1."""
        if not self.job.method.claim.needs_requirement:
            return loss
        gap = torch.from_numpy(loss - self.get_requirements(clients))
        return np.asarray(torch.sigmoid(gap).numpy(), np.float64)

    def appraise_after_tuning(
        self, offer: Offer, clients: Int64, appraisal: Appraisal
    ) -> Appraisal:
        """Return the appraisals for the claims: after a few local steps, where the method has them
        (MaxFL, step 7), otherwise the given ones."""
        steps = self.job.method.tune_steps
        if steps == 0:
            return appraisal
        offer = replace(offer, model=self.job.method.product(offer.model))
        models = self.take_local_steps(offer, clients, steps, "tune")
        return self.engine.appraise_each(models, clients, self.job.split)

    def take_local_steps(self, offer: Offer, clients: Int64, steps: int, purpose: str) -> Params:
        """Return each client's model after this many local steps from the offer's model."""
        local = replace(self.job.local, steps=steps, epochs=None, lr_counts="rounds")
        work, _ = self.engine.train(SGD(), offer, clients, {}, Assignment(None, local, purpose))
        return work.models

    def evaluate(self, state: RunState) -> Evaluation:
        """Return all clients' evaluation of a state."""
        memories, get_own = state.clients, None
        if memories is not None and "own" in memories.table.start:
            get_own = lambda who: memories.get(who)["own"]  # noqa: E731
        model, everyone = self.job.method.product(state.model), np.arange(self.fed.n)
        view = self.evaluate_model(model, get_own, everyone)
        return self.add_tuning(view, state.round, model, everyone)

    def add_tuning(self, view: Evaluation, t: int, model: Params, clients: Int64) -> Evaluation:
        """Add to these clients' view their evaluation of the model after t rounds and a few local
        steps more, where the job has `tuned_steps`. Nothing else depends on these steps."""
        job = self.job
        if t == 0 or job.tuned_steps == 0 or job.method.serves == "own":
            return view  # the starting model is not measured after tuning
        lr = job.local.rate(t - 1, job.rounds)  # of the round that trained the model
        offer = Offer(job.seed, t, job.rounds, model, lr=lr, trainable=self.trainable)
        train, test = self.appraise_own(
            lambda who: self.take_local_steps(offer, who, job.tuned_steps, "tuned"),
            clients,
            self.max_replies(model),
        )
        return evaluate.add_tuning(self.fed, clients, view, train, test)

    def evaluate_model(
        self, model: Params, get_own: Callable[[Int64], Params] | None, clients: Int64
    ) -> Evaluation:
        """Return these clients' evaluation of a model and of their own models: those in their
        state, or those that the method has them adapt from it."""
        engine, tested = self.engine, self.fed.test is not None
        own = own_test = None
        if get_own is None and self.job.method.solver.adapts:
            get_own = lambda who: self.adapt(model, who)  # noqa: E731
        if get_own is not None:
            own, own_test = self.appraise_own(get_own, clients, self.max_replies(model))
        if self.job.method.serves == "own":
            assert own is not None, "a method that serves each client's own model has one"
            train, test, own, own_test = own, own_test, None, None
        else:
            train = engine.appraise(model, clients)
            test = engine.appraise(model, clients, "test") if tested else None
        thresholds, score = self.useful_thresholds[clients], self.job.scoring.first.name
        return evaluate.build_evaluation(
            self.fed, clients, thresholds, train, test, own, own_test, score
        )

    def adapt(self, model: Params, clients: Int64) -> Params:
        """Return the models after the one step that a method such as Per-FedAvg trains for."""
        step = self.job.method.solver.adapts
        offer = Offer(0, 0, 1, model, lr=step, trainable=self.trainable)
        local = Local(steps=1, batch_size=None, lr=step)
        work, _ = self.engine.train(SGD(), offer, clients, {}, Assignment(None, local, "adapt"))
        return work.models

    def appraise_own(
        self, get_own: Callable[[Int64], Params], clients: Int64, most: int
    ) -> tuple[Appraisal, Appraisal | None]:
        """Return clients' appraisals of their own models, at most `most` in memory at once."""
        train, test = [], []
        for start in range(0, len(clients), max(1, most)):
            some = clients[start : start + max(1, most)]
            models = get_own(some)
            train.append(self.engine.appraise_each(models, some))
            if self.fed.test is not None:
                test.append(self.engine.appraise_each(models, some, "test"))
            del models  # or they would stay while the next ones are fetched
        return Appraisal.concat(train), Appraisal.concat(test) if test else None

    @cached_property
    def useful_thresholds(self) -> Float64:
        """Losses below which the model is useful to each client."""
        return evaluate.compute_useful_thresholds(self.fed, np.arange(self.fed.n), self.job.task)
