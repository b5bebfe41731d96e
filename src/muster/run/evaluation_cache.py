"""A cache of clients' evaluations of one model: each client is asked at most once.

A round needs them in several places: who stays, who is invited, what F(w) is, who joins; and
after a round everyone may be asked for a whole view of the model. An `EvaluationCache` stores the
answers for as long as the model is the same. A deployed client has one for itself alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..base.arrays import Int64
from ..base.params import Params
from ..engines.row_results import Split
from ..protocol import Appraisal, Evaluation, RunState

Appraise = Callable[[int, Params, Int64], Appraisal]
Evaluate = Callable[[RunState], Evaluation]


class EvaluationCache:
    """Appraisals and views of the model of one state.

    Attributes:
        known: the appraisals so far, NaN where there is none
        done: True for clients whose appraisal is known
        consulted: True for clients that needed the model to answer in this round, asked to train
            or not
        polled: True for clients that reported their loss before the invitation

    Arrays have an entry for each of n clients; only entries that were used are reset, so that a
    round among a million costs what its own clients cost.
    """

    def __init__(
        self, appraise: Appraise, evaluate: Evaluate, n: int, reuse: Split | None = None
    ) -> None:
        """Store what clients answer.

        Args:
            appraise: asks clients for their appraisal of a round's model
            evaluate: asks all clients for their view of a state
            n: the number of clients
            reuse: the split whose losses in a view serve as appraisals too; None: a view serves
                for itself only
        """
        self._appraise, self._evaluate, self.n, self.reuse = appraise, evaluate, n, reuse
        self.state: RunState | None = None
        self._view: Evaluation | None = None
        self.done, self.consulted, self.polled = (np.zeros(n, np.bool_) for _ in range(3))
        self.known = Appraisal.unknown(n)
        self._stored: list[Int64] = []  # clients whose appraisal is known
        self._asked: list[Int64] = []  # clients consulted in this round
        self._count = 0  # and their number

    def _clear(self) -> None:
        self._view = None
        for clients in self._stored:
            self.done[clients] = False
            self.known.loss[clients] = self.known.score[clients] = np.nan
        self._stored = []
        self.begin_round()

    def begin_round(self) -> None:
        """Reset the counts of who was consulted and polled."""
        for clients in self._asked:
            self.consulted[clients] = self.polled[clients] = False
        self._asked, self._count = [], 0

    def count_consulted(self, asked: Int64) -> int:
        """Return the number of clients that were consulted, and are not among those asked."""
        return self._count - int(self.consulted[asked].sum())

    def use(self, state: RunState) -> EvaluationCache:
        """Turn to the model of a state, and drop what is stored of another one."""
        if self.state is None or self.state.round != state.round:
            self._clear()
        self.state = state
        return self

    def store(self, clients: Int64, appraisals: Appraisal) -> None:
        """Store appraisals that are known from elsewhere."""
        self.known.loss[clients], self.known.score[clients] = appraisals.loss, appraisals.score
        self.done[clients] = True
        self._stored.append(clients)

    def appraise(self, clients: Int64) -> Appraisal:
        """Return these clients' appraisals, and count the clients as consulted."""
        assert self.state is not None, "no model to appraise"
        self._count += len(clients) - int(self.consulted[clients].sum())
        self.consulted[clients] = True
        self._asked.append(clients)
        new = clients[~self.done[clients]]
        if len(new):
            self.store(new, self._appraise(self.state.round, self.state.model, new))
        return self.known.pick(clients)

    def poll(self, clients: Int64) -> Appraisal:
        """Return their appraisals for the invitation: each reports its loss, invited or not."""
        self.polled[clients] = True
        return self.appraise(clients)

    def evaluate(self, state: RunState) -> Evaluation:
        """Return all clients' view of a state."""
        self.use(state)
        if self._view is None:
            self._view = self._evaluate(state)
            if self.reuse is not None:
                known = self._view.train if self.reuse == "train" else self._view.test
                if known is not None:
                    self.store(np.arange(self.n), known)
        return self._view
