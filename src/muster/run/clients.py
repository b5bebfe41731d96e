"""The clients' half of a run, written once: appraise, join, train, claim, judge.

`Clients` is what a round asks of them, wherever they are. `Stack` is clients whose data is at
hand, over a leading client axis: everyone in a simulation, one in a deployed client. A federation
over a network puts its messages behind the same interface.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch

from .. import params
from ..arrays import Bool, Float64, Int64
from ..engines.base import Assignment, Engine
from ..federation import Federation
from ..local import Local
from ..methods import Method
from ..params import Memory, Params
from ..parts.attacks import Adversary
from ..parts.participation import Participation
from ..parts.solvers import SGD
from ..protocol import Answers, Appraisal, Offer, Replies, Roster, State, View
from .opinion import bar, opinion


class Measured(Protocol):
    """Appraisals of the round's model, each client's taken at most once."""

    @property
    def known(self) -> Appraisal:
        """Everyone's, as far as they were taken."""
        ...

    def of(self, clients: Int64) -> Appraisal:
        """These clients', taken now where they were not."""
        ...


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

    def arriving(self, model: Params) -> Params:
        """A model as it arrives at the clients."""
        ...

    def steps(self, clients: Int64) -> Int64:
        """How many steps `Local` asks of each."""
        ...

    def appraise(self, t: int, model: Params, clients: Int64) -> Appraisal:
        """F_k(w) and accuracy on their training rows; NaN where there is no answer."""
        ...

    def stays(self, clients: Int64, measured: Measured) -> Bool:
        """Who stays in the pool, by its own judgement."""
        ...

    def report(self, offer: Offer, clients: Int64, measured: Measured) -> Appraisal:
        """What they say of the model for F(w)."""
        ...

    def respond(
        self,
        offer: Offer,
        roster: Roster,
        steps: Int64 | None,
        measured: Measured,
        memory: Memory,
    ) -> Answers:
        """Ask them to train. `memory` is what those asked remember, where it is kept here."""
        ...

    def view(self, state: State) -> View:
        """What every client makes of a state."""
        ...

    def close(self) -> None:
        """Let go of processes and memory."""
        ...


@dataclass(frozen=True)
class Stack:
    """Clients whose data is here: all of them, or only those whose rows `fed` holds."""

    fed: Federation
    method: Method
    engine: Engine
    local: Local
    participation: Participation | None = None
    adversary: Adversary = Adversary()
    bars: dict[bytes, Float64] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The engine's."""
        return self.engine.name

    @property
    def device(self) -> torch.device:
        """The engine's."""
        return self.engine.device

    def close(self) -> None:
        """Let go of the engine."""
        self.engine.close()

    def arriving(self, model: Params) -> Params:
        """As it is."""
        return model

    def requirement(self, clients: Int64) -> Float64:
        """What each of these clients requires; NaN where it requires nothing."""
        rho = self.fed.requirement
        return np.full(len(clients), np.nan) if rho is None else rho[clients]

    def steps(self, clients: Int64) -> Int64:
        """How many steps `Local` asks of each."""
        return self.engine.steps(clients)

    def appraise(self, t: int, model: Params, clients: Int64) -> Appraisal:
        """F_k(w) and accuracy on their training rows."""
        return self.engine.appraise(model, clients)

    def stays(self, clients: Int64, measured: Measured) -> Bool:
        """Who stays in the pool: everyone, or those whom the rule lets stay."""
        if self.participation is None:
            return np.ones(len(clients), np.bool_)
        return self.participation(measured.of(clients).loss, self.requirement(clients))

    def report(self, offer: Offer, clients: Int64, measured: Measured) -> Appraisal:
        """What they measured; attackers, whatever serves them."""
        return self.adversary.say(offer, clients, measured.of(clients), self.requirement(clients))

    def respond(
        self,
        offer: Offer,
        roster: Roster,
        steps: Int64 | None,
        measured: Measured,
        memory: Memory,
    ) -> Answers:
        """Each decides whether to join; those who do, train and reply. A silent client trains
        nothing and sends nothing."""
        asked = roster.clients
        true = measured.of(asked) if self.method.appraises else measured.known.pick(asked)
        said = self.adversary.say(offer, asked, true, self.requirement(asked))
        decision = self.method.join(offer, roster, said)
        nobody = np.zeros(len(roster), np.bool_)
        joined, word = roster.pick(decision.yes), said.pick(decision.yes)
        if len(joined) == 0:
            return Answers(
                decision, no_replies(offer, roster), true, np.empty(0, np.int64), {}, nobody
            )
        own = {part: params.select(table, decision.yes) for part, table in memory.items()}
        assignment = Assignment(None if steps is None else steps[decision.yes])
        work, taken = self.engine.train(self.method.solver, offer, joined.clients, own, assignment)
        judged = self.tuned(offer, joined.clients, word)
        claim = self.method.claim(judged, self.requirement(joined.clients))
        sent = self.adversary.send(offer, joined.clients, work.models)
        replies = Replies(joined, sent, word, claim, work.extra)
        return Answers(decision, replies, true, taken, work.memory, nobody)

    def tuned(self, offer: Offer, clients: Int64, appraisal: Appraisal) -> Appraisal:
        """How clients judge the model for their claim: after a few local steps, where the method
        says so (MaxFL, step 7), otherwise as it is."""
        if self.method.tune_steps == 0:
            return appraisal
        local = replace(self.local, steps=self.method.tune_steps, epochs=None)
        work, _ = self.engine.train(SGD(), offer, clients, {}, Assignment(None, local, "tune"))
        judged = self.engine.appraise_each(work.models, clients)
        return self.adversary.say(offer, clients, judged, self.requirement(clients))

    def view(self, state: State) -> View:
        """What every client makes of a state."""
        return self.views(state.model, state.clients, np.arange(self.fed.n))

    def views(self, model: Params, memory: Memory, clients: Int64) -> View:
        """What these clients make of a model, from it and what they remember."""
        engine, tested = self.engine, self.fed.test is not None
        own = own_test = None
        if "own" in memory:
            own = engine.appraise_each(memory["own"], clients)
            own_test = engine.appraise_each(memory["own"], clients, "test") if tested else None
        if self.method.serves == "own":
            assert own is not None, "a method that serves each client's own model keeps one"
            train, test, own, own_test = own, own_test, None, None
        else:
            train = engine.appraise(model, clients)
            test = engine.appraise(model, clients, "test") if tested else None
        return opinion(self.fed, clients, self.bar(clients), train, test, own, own_test)

    def bar(self, clients: Int64) -> Float64:
        """The loss below which the model is useful to each of these clients, worked out once."""
        key = clients.tobytes()
        if key not in self.bars:
            self.bars[key] = bar(self.fed, clients)
        return self.bars[key]


def no_replies(offer: Offer, roster: Roster) -> Replies:
    """The replies of nobody, in the shape of the offer's model."""
    empty = {name: t.new_empty(0, *t.shape) for name, t in offer.model.items()}
    nobody = roster.pick(np.zeros(len(roster), np.bool_))
    return Replies(nobody, empty, Appraisal.unknown(0), np.empty(0))
