"""The clients' side of a run as a round sees it: appraise, join, train, claim, evaluate.

`Clients` is the interface, wherever the clients are: `LocalClients` has their data in this process,
`muster.flower` implements it with messages over a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ..base.arrays import Bool, Float64, Int64
from ..base.lazy import torch
from ..base.params import Params, State
from ..protocol import (
    Answers,
    Appraisal,
    Evaluation,
    ModelFetch,
    Offer,
    Replies,
    Roster,
    RunState,
    Trial,
)
from .evaluation_cache import EvaluationCache


class Clients(Protocol):
    """The clients of a run, wherever they are. `t` is the round of the model."""

    @property
    def name(self) -> str:
        """The engine that runs them."""
        ...

    @property
    def device(self) -> torch.device:
        """The device of the models in their replies."""
        ...

    @property
    def trainable(self) -> tuple[str, ...]:
        """Names of the parameters that train by gradient; the rest are statistics."""
        ...

    @property
    def attackers(self) -> Int64:
        """The numbers of simulated attackers."""
        ...

    def deliver(self, model: Params) -> Params:
        """Return a model as it arrives at the clients."""
        ...

    def max_replies(self, model: Params) -> int:
        """Return how many replies of this model's size fit in memory at once."""
        ...

    def steps(self, clients: Int64) -> Int64:
        """Return the number of steps of `Local` for each."""
        ...

    def appraise(self, t: int, model: Params, clients: Int64) -> Appraisal:
        """Return F_k(w) and the score on the rows of decisions; NaN where there is no reply."""
        ...

    def decide_to_stay(self, clients: Int64, cache: EvaluationCache) -> Bool:
        """Return True for each client that decides to stay in the pool."""
        ...

    def report(self, offer: Offer, clients: Int64, cache: EvaluationCache) -> Appraisal:
        """Return the appraisals that they report for F(w)."""
        ...

    def respond(
        self,
        offer: Offer,
        roster: Roster,
        steps: Int64 | None,
        cache: EvaluationCache,
        memory: State,
    ) -> Answers:
        """Ask them to train. `memory` is their client state, where it is stored here."""
        ...

    def fetch(self, offer: Offer, replies: Replies) -> ModelFetch:
        """Ask for the models that were not sent with these replies."""
        ...

    def try_models(
        self, offer: Offer, models: Sequence[Params], clients: Int64, cache: EvaluationCache
    ) -> Trial:
        """Return these clients' losses of the offer's model and of candidates to follow it."""
        ...

    def evaluate(self, state: RunState) -> Evaluation:
        """Return all clients' evaluation of a state."""
        ...

    def get_requirements(self, clients: Int64) -> Float64:
        """Return the requirement rho_k of each; NaN where it is not known here."""
        ...

    def get_solo_scores(self, clients: Int64) -> Float64 | None:
        """Return the held-out score of each one's solo model; None where it is not known here."""
        ...

    def close(self) -> None:
        """Release processes and memory."""
        ...


def build_no_replies(offer: Offer, roster: Roster) -> Replies:
    """Return replies without any client, in the shape of the offer's model."""
    empty = {name: t.new_empty(0, *t.shape) for name, t in offer.model.items()}
    nobody = roster.pick(np.zeros(len(roster), np.bool_))
    return Replies(nobody, empty, Appraisal.unknown(0), np.empty(0))
