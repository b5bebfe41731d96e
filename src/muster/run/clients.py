"""The clients' half of a run, written once: appraise, join, train, claim, judge.

`Clients` is what a round asks of them, wherever they are. `Stack` is clients whose data is at
hand, over a leading client axis: everyone in a simulation, one in a deployed client. A federation
over a network puts its messages behind the same interface.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from ..base import params
from ..base.arrays import Bool, Float64, Int64
from ..base.lazy import torch
from ..base.params import Params, State
from ..engines.base import Assignment, Engine
from ..federation import Federation
from ..local import Local
from ..parts.solvers import SGD
from ..parts.threats.attacks import Adversary
from ..protocol import (
    Answers,
    Appraisal,
    Evaluation,
    HonestReplies,
    Offer,
    Replies,
    Roster,
    RunState,
    Trial,
)
from . import evaluate
from .evaluation_cache import Memo
from .job import Job

REPLIES = 2**30  # bytes of models held at once


class Clients(Protocol):
    """The clients of a run, wherever they are. `t` is the round whose model is meant."""

    @property
    def name(self) -> str:
        """How they are run."""
        ...

    @property
    def device(self) -> torch.device:
        """Where models are when they come back."""
        ...

    @property
    def trainable(self) -> tuple[str, ...]:
        """Names of the parameters that move by gradient; the rest are statistics."""
        ...

    @property
    def attackers(self) -> Int64:
        """Those of them that lie, where that is simulated."""
        ...

    def arriving(self, model: Params) -> Params:
        """A model as it arrives at the clients."""
        ...

    def at_once(self, model: Params) -> int:
        """How many replies of this model's size may be asked for, and held, at once."""
        ...

    def steps(self, clients: Int64) -> Int64:
        """How many steps `Local` asks of each."""
        ...

    def appraise(self, t: int, model: Params, clients: Int64) -> Appraisal:
        """F_k(w) and the score on the rows they decide by; NaN where there is no answer."""
        ...

    def stays(self, clients: Int64, memo: Memo) -> Bool:
        """Who stays in the pool, by its own judgement."""
        ...

    def report(self, offer: Offer, clients: Int64, memo: Memo) -> Appraisal:
        """What they say of the model for F(w)."""
        ...

    def respond(
        self,
        offer: Offer,
        roster: Roster,
        steps: Int64 | None,
        memo: Memo,
        memory: State,
    ) -> Answers:
        """Ask them to train. `memory` is what those asked remember, where it is kept here."""
        ...

    def trial(self, offer: Offer, models: Sequence[Params], clients: Int64, memo: Memo) -> Trial:
        """What these clients say of the offer's model and of others that might follow it."""
        ...

    def view(self, state: RunState) -> Evaluation:
        """What every client makes of a state."""
        ...

    def requirement(self, clients: Int64) -> Float64:
        """What each of these requires, where that is known here; NaN elsewhere."""
        ...

    def alone(self, clients: Int64) -> Float64 | None:
        """The held-out score of each one's own model; None where that is not known here."""
        ...

    def close(self) -> None:
        """Let go of processes and memory."""
        ...


@dataclass(frozen=True)
class Stack:
    """Clients whose data is here: all of them, or the one at a node."""

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
        """Let go of the engine."""
        self.engine.close()

    def arriving(self, model: Params) -> Params:
        """As it is: nothing travels."""
        return model

    def said(
        self, offer: Offer, clients: Int64, appraisal: Appraisal, requirement: Float64
    ) -> Appraisal:
        """What these clients say of the model: the truth, unless they attack."""
        if self.adversary.attack is None:
            return appraisal
        return self.adversary.say(offer, clients, appraisal, requirement)

    def at_once(self, model: Params) -> int:
        """As many as fit in a gigabyte."""
        return REPLIES // max(1, params.nbytes(model))

    def requirement(self, clients: Int64) -> Float64:
        """What each of these clients requires; NaN where it requires nothing."""
        rho = self.fed.requirement
        return np.full(len(clients), np.nan) if rho is None else rho[clients]

    def alone(self, clients: Int64) -> Float64 | None:
        """The held-out score of each one's own model, where it has trained one."""
        return None if self.fed.solo_score is None else self.fed.solo_score[clients]

    def required(self, clients: Int64) -> Float64:
        """What each of these requires on the rows it decides by; NaN where it requires nothing."""
        if self.fed.requirement is None:
            return np.full(len(clients), np.nan)
        return evaluate.required(self.fed, clients, self.job.split)

    def steps(self, clients: Int64) -> Int64:
        """How many steps `Local` asks of each."""
        return self.engine.steps(clients)

    def appraise(self, t: int, model: Params, clients: Int64) -> Appraisal:
        """F_k(w) and the score on the rows they decide by."""
        return self.engine.appraise(model, clients, self.job.split)

    def stays(self, clients: Int64, memo: Memo) -> Bool:
        """Who stays in the pool: those the rule lets stay, and attackers who are not there for
        the model."""
        attack = self.adversary.attack
        staying = self.content(clients, memo)
        if attack is not None and attack.stays:
            staying = staying | np.isin(clients, self.attackers)
        return staying

    def content(self, clients: Int64, memo: Memo) -> Bool:
        """Who would stay for the model's sake: everyone, or those the rule lets stay."""
        if self.job.participation is None:
            return np.ones(len(clients), np.bool_)
        return self.job.participation(memo.of(clients).loss, self.required(clients))

    def report(self, offer: Offer, clients: Int64, memo: Memo) -> Appraisal:
        """What they measured; attackers, whatever serves them."""
        return self.said(offer, clients, memo.of(clients), self.required(clients))

    def respond(
        self,
        offer: Offer,
        roster: Roster,
        steps: Int64 | None,
        memo: Memo,
        memory: State,
    ) -> Answers:
        """Each decides whether to join; those who do, train and reply. A silent client trains
        nothing and sends nothing."""
        method, asked = self.job.method, roster.clients
        true = memo.of(asked) if method.appraises else memo.known.pick(asked)
        said = self.said(offer, asked, true, self.required(asked))
        decision = method.join(offer, roster, said)
        nobody = np.zeros(len(roster), np.bool_)
        joined, word = roster.pick(decision.yes), said.pick(decision.yes)
        if len(joined) == 0:
            return Answers(
                decision, no_replies(offer, roster), true, np.empty(0, np.int64), {}, nobody
            )
        own = {part: params.select(table, decision.yes) for part, table in memory.items()}
        work, taken = self.engine.train(
            method.solver, offer, joined.clients, own,
            Assignment(None if steps is None else steps[decision.yes]),
        )  # fmt: skip
        rho = self.required(joined.clients)
        judged = self.tuned(offer, joined.clients, true.pick(decision.yes))
        claim = np.full(len(joined), np.nan)
        if method.claim.needs_requirement:
            claim = method.claim(self.said(offer, joined.clients, judged, rho), rho)
        sent = work.models
        if self.adversary.attack is not None:
            sent = self.adversary.send(offer, joined.clients, sent)
        replies = Replies(joined, sent, word, claim, work.extra)
        truth = None
        if np.isin(joined.clients, self.attackers).any():
            honest = true.pick(decision.yes)
            joins = method.join(offer, joined, honest).yes
            if self.job.leaving(offer.round):
                joins = joins & self.content(joined.clients, memo)
            truth = HonestReplies(joins, honest, method.claim(judged, rho))
        return Answers(decision, replies, true, taken, work.memory, nobody, truth)

    def trial(self, offer: Offer, models: Sequence[Params], clients: Int64, memo: Memo) -> Trial:
        """What they measure; attackers, whatever serves them."""
        heard = [memo.of(clients), *(self.appraise(offer.round, m, clients) for m in models)]
        words = np.stack([self.worth(some.loss, clients) for some in heard])
        if self.adversary.attack is not None:
            words = self.adversary.vote(offer, clients, words)
        return Trial(words, clients)

    def worth(self, loss: Float64, clients: Int64) -> Float64:
        """What a loss is to a client, lower being better: the loss itself or, where clients weigh
        by their requirement (MaxFL eq. 3), `sigmoid(F_k - rho_k)`, which nobody's word drives
        beyond 0 and 1."""
        if not self.job.method.claim.needs_requirement:
            return loss
        gap = torch.from_numpy(loss - self.requirement(clients))
        return np.asarray(torch.sigmoid(gap).numpy(), np.float64)

    def tuned(self, offer: Offer, clients: Int64, appraisal: Appraisal) -> Appraisal:
        """How clients judge the model for their claim: after a few local steps, where the method
        says so (MaxFL, step 7), otherwise as it is."""
        steps = self.job.method.tune_steps
        if steps == 0:
            return appraisal
        models = self.after_steps(offer, clients, steps, "tune")
        return self.engine.appraise_each(models, clients, self.job.split)

    def after_steps(self, offer: Offer, clients: Int64, steps: int, purpose: str) -> Params:
        """The offer's model as each client has it after this many local steps of its own."""
        local = replace(self.job.local, steps=steps, epochs=None, lr_counts="rounds")
        work, _ = self.engine.train(SGD(), offer, clients, {}, Assignment(None, local, purpose))
        return work.models

    def view(self, state: RunState) -> Evaluation:
        """What every client makes of a state."""
        memories, own_of = state.clients, None
        if memories is not None and "own" in memories.table.start:
            own_of = lambda who: memories.get(who)["own"]  # noqa: E731
        view = self.views(state.model, own_of, np.arange(self.fed.n))
        return self.with_tuned(view, state.round, state.model, np.arange(self.fed.n))

    def with_tuned(self, view: Evaluation, t: int, model: Params, clients: Int64) -> Evaluation:
        """These clients' view with what they would make of the model after t rounds if they first
        took a few steps of their own from it, where the job says so. Nothing of it is kept."""
        job = self.job
        if t == 0 or job.tuned_steps == 0 or job.method.serves == "own":
            return view  # a round makes a model to be measured, the start is none
        lr = job.local.rate(t - 1, job.rounds)  # of the round that made the model
        offer = Offer(job.seed, t, job.rounds, model, lr=lr, trainable=self.trainable)
        train, test = self.of_own(
            lambda who: self.after_steps(offer, who, job.tuned_steps, "tuned"),
            clients,
            self.at_once(model),
        )
        return evaluate.tuned(self.fed, clients, view, train, test)

    def views(
        self, model: Params, own_of: Callable[[Int64], Params] | None, clients: Int64
    ) -> Evaluation:
        """What these clients make of a model and of their own: one that they keep, or the one
        that the method has them make of it."""
        engine, tested = self.engine, self.fed.test is not None
        own = own_test = None
        if own_of is None and self.job.method.solver.adapts:
            own_of = lambda who: self.adapted(model, who)  # noqa: E731
        if own_of is not None:
            own, own_test = self.of_own(own_of, clients, self.at_once(model))
        if self.job.method.serves == "own":
            assert own is not None, "a method that serves each client's own model keeps one"
            train, test, own, own_test = own, own_test, None, None
        else:
            train = engine.appraise(model, clients)
            test = engine.appraise(model, clients, "test") if tested else None
        return evaluate.opinion(
            self.fed, clients, self.bars[clients], train, test, own, own_test,
            self.job.scoring.first.name,
        )  # fmt: skip

    def adapted(self, model: Params, clients: Int64) -> Params:
        """The model after the one step that a method such as Per-FedAvg prepares it for."""
        step = self.job.method.solver.adapts
        offer = Offer(0, 0, 1, model, lr=step, trainable=self.trainable)
        local = Local(steps=1, batch_size=None, lr=step)
        work, _ = self.engine.train(SGD(), offer, clients, {}, Assignment(None, local, "adapt"))
        return work.models

    def of_own(
        self, own_of: Callable[[Int64], Params], clients: Int64, most: int
    ) -> tuple[Appraisal, Appraisal | None]:
        """What clients make of their own models, of which no more than `most` are held at once."""
        train, test = [], []
        for start in range(0, len(clients), max(1, most)):
            some = clients[start : start + max(1, most)]
            models = own_of(some)
            train.append(self.engine.appraise_each(models, some))
            if self.fed.test is not None:
                test.append(self.engine.appraise_each(models, some, "test"))
        return Appraisal.concat(train), Appraisal.concat(test) if test else None

    @cached_property
    def bars(self) -> Float64:
        """The loss below which the model is useful to each client."""
        return evaluate.bar(self.fed, np.arange(self.fed.n), self.job.task)


def no_replies(offer: Offer, roster: Roster) -> Replies:
    """The replies of nobody, in the shape of the offer's model."""
    empty = {name: t.new_empty(0, *t.shape) for name, t in offer.model.items()}
    nobody = roster.pick(np.zeros(len(roster), np.bool_))
    return Replies(nobody, empty, Appraisal.unknown(0), np.empty(0))
