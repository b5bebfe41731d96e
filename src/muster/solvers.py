"""Solvers: how a client trains, written over a leading client axis.

A solver never loops over clients or batches. It asks the `Cohort` it is given (the clients at
work this round, however the engine runs them) to descend, or hands it an update of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from . import params
from .errors import MusterError
from .params import Params
from .protocol import Offer
from .rng import Int64

Gradient = Callable[[Params], Params]
Memory = dict[str, Params]


class Cohort(Protocol):
    """Some clients at work: their batches, over a leading client axis."""

    lr: float
    steps: Int64

    def descend(
        self,
        stack: Params,
        pull: float = 0.0,
        anchor: Params | None = None,
        correction: Params | None = None,
    ) -> Params:
        """All local steps of corrected SGD, `w <- w - lr (g + pull (w - anchor) + correction)`.

        `anchor` and `correction` may be one model or a stack. Takes `stack` over.
        """
        ...

    def iterate(self, stack: Params, update: Callable[[Params, Gradient], Params]) -> Params:
        """All local steps of an update of one's own: `update(w, grad)` returns the next w, where
        `grad(v)` is each client's gradient on this step's batch at v. Takes `stack` over."""
        ...


class Solver(Protocol):
    """A local solver."""

    def memory(self, model: Params) -> Memory:
        """What a client remembers between rounds, before its first one (usually nothing)."""
        ...

    def __call__(self, cohort: Cohort, offer: Offer, memory: Memory) -> tuple[Params, Memory]:
        """The trained stack and the clients' new memory, from the offer and their memory."""
        ...


@dataclass(frozen=True)
class SGD:
    """Minibatch SGD from the broadcast model; with `prox` > 0, FedProx:

    `w_k <- w_k - lr (g_k(w_k) + prox (w_k - w))`  (Li et al. 2018).
    """

    prox: float = 0.0

    def __post_init__(self) -> None:
        if not self.prox >= 0.0:
            raise MusterError(f"prox: {self.prox}; allowed: 0.0 (plain SGD) and above")

    def memory(self, model: Params) -> Memory:
        return {}

    def __call__(self, cohort: Cohort, offer: Offer, memory: Memory) -> tuple[Params, Memory]:
        start = params.expand(offer.model, len(cohort.steps))
        return cohort.descend(start, pull=self.prox, anchor=offer.model), memory


@dataclass(frozen=True)
class Solo:
    """Each client goes on training a model of its own, which nobody else sees."""

    def memory(self, model: Params) -> Memory:
        return {"own": model}

    def __call__(self, cohort: Cohort, offer: Offer, memory: Memory) -> tuple[Params, Memory]:
        own = cohort.descend({name: t.clone() for name, t in memory["own"].items()})
        return own, {"own": own}
