"""What clients make of a model, asked of each at most once.

A round asks for it in several places: who stays, who is invited, what F(w) is, who joins; and
after a round everyone may be asked for a whole view of the model. A `Memo` remembers the answers
for as long as the model is the same one. A deployed client keeps one for itself alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..base.arrays import Int64
from ..base.params import Params
from ..engines.row_results import Split
from ..protocol import Appraisal, Evaluation, RunState

Ask = Callable[[int, Params, Int64], Appraisal]
AskAll = Callable[[RunState], Evaluation]


class Memo:
    """Answers about the model of one state.

    Attributes:
        ask: how clients are asked: for their appraisal of a round's model, and for everyone's view
            of a state
        ask_all: how clients are asked: for their appraisal of a round's model, and for everyone's
            view of a state
        reuse: whether what a view says of the model, on which rows, serves as the clients'
            appraisals too; None: it does not
        consulted: who needed the model to give an answer in this round, asked to train or not
        polled: who told its loss before the invitation was made
    """

    def __init__(self, ask: Ask, ask_all: AskAll, n: int, reuse: Split | None = None) -> None:
        self.ask, self.ask_all, self.n, self.reuse = ask, ask_all, n, reuse
        self.state: RunState | None = None
        self._forget()

    def _forget(self) -> None:
        self._view: Evaluation | None = None
        self.done = np.zeros(self.n, np.bool_)
        self.known = Appraisal.unknown(self.n)
        self.begin()

    def begin(self) -> None:
        """Nobody has been consulted yet in this round."""
        self.consulted = np.zeros(self.n, np.bool_)
        self.polled = np.zeros(self.n, np.bool_)

    def turn(self, state: RunState) -> Memo:
        """To the model of a state; what was known of another one is forgotten."""
        if self.state is None or self.state.round != state.round:
            self._forget()
        self.state = state
        return self

    def put(self, clients: Int64, some: Appraisal) -> None:
        """What these clients make of the model, known from elsewhere."""
        self.known.loss[clients], self.known.score[clients] = some.loss, some.score
        self.done[clients] = True

    def of(self, clients: Int64) -> Appraisal:
        """These clients' appraisals. They need the model for it, asked to train or not: it is
        counted."""
        assert self.state is not None, "no model to appraise"
        self.consulted[clients] = True
        new = clients[~self.done[clients]]
        if len(new):
            self.put(new, self.ask(self.state.round, self.state.model, new))
        return self.known.pick(clients)

    def poll(self, clients: Int64) -> Appraisal:
        """Their appraisals for the invitation: each tells its loss, whether it is then asked or
        not."""
        self.polled[clients] = True
        return self.of(clients)

    def view(self, state: RunState) -> Evaluation:
        """Everyone's view of a state."""
        self.turn(state)
        if self._view is None:
            self._view = self.ask_all(state)
            if self.reuse is not None:
                known = self._view.train if self.reuse == "train" else self._view.test
                if known is not None:
                    self.put(np.arange(self.n), known)
        return self._view
