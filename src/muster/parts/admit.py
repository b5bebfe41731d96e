"""Admit: the server's rule for how far each reply counts, from 0 (refused) to 1 (in full).

Runs on the server, from the offer it made and the appraisal each client reports.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from ..base.arrays import Float64
from ..base.checks import check_one_of
from ..base.registry import part
from ..protocol import Appraisal, Offer, Roster
from .join import CRITERIA, Criterion


class Admit(Protocol):
    """The server's rule that decides how far each reply counts.

    Write one by inheriting from this class; only `__call__` has no default.
    """

    @property
    def appraises(self) -> bool:
        """True if the rule uses `appraisal`, `offer.loss` or `offer.score`; else these are NaN."""
        return True

    @property
    def reason(self) -> str:
        """The reason the ledger gives for a refused reply."""
        return "refused"

    @abstractmethod
    def __call__(self, offer: Offer, roster: Roster, appraisal: Appraisal) -> Float64:
        """Return the extent to which each reply is admitted.

        Args:
            offer: what the server sent: `model`, `loss` (F(w)) and `score` on the priority clients,
                `eps` (eps_t), `round`, `rounds`, `seed`, `lr`
            roster: the clients that replied, one entry each: `clients` (places in the population),
                `priority`, `importance` (a_k), `share` (p_k), `ids`
            appraisal: what each of them reports of the offered model: `loss` (F_k(w)), `score`

        Returns:
            one number for each reply, from 0 (refused) to 1 (in full)
        """
        ...


@part(Admit, "everyone")
@dataclass(frozen=True)
class Everyone:
    """Admits every reply in full."""

    appraises: ClassVar[bool] = False
    reason: ClassVar[str] = "refused"

    def __call__(self, offer: Offer, roster: Roster, appraisal: Appraisal) -> Float64:
        return np.ones(len(roster))


@part(Admit, "objective")
@dataclass(frozen=True)
class Objective:
    """Admits every reply by its importance a_k: FedAvg on the objective, whatever it is."""

    appraises: ClassVar[bool] = False
    reason: ClassVar[str] = "not in the objective"

    def __call__(self, offer: Offer, roster: Roster, appraisal: Appraisal) -> Float64:
        return roster.importance


@part(Admit, "band")
@dataclass(frozen=True)
class Band:
    """Admits a reply in full when the client's measure lies within eps_t of the priority clients'
    (Algorithm 1, step 4; eq. 7, 18), otherwise by its importance a_k, which is 1 for priority
    clients:

    loss   `|F_k(w) - F(w)| < eps_t`
    score  `|s_k(w) - s(w)| < eps_t`, the task's score; `accuracy`, the paper's name, is the same

    With importance between 0 and 1 this is generalized PFL (section 5): the client is always in
    the objective with a_k, and counts in full while it is aligned.
    """

    criterion: Criterion = "loss"
    appraises: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_one_of("criterion", self.criterion, CRITERIA)

    @property
    def reason(self) -> str:
        return f"{self.criterion} outside the band"

    def __call__(self, offer: Offer, roster: Roster, appraisal: Appraisal) -> Float64:
        if self.criterion == "loss":
            own, model = appraisal.loss, offer.loss
        else:
            own, model = appraisal.score, offer.score
        aligned = (own > model - offer.eps) & (own < model + offer.eps)
        return np.where(aligned, 1.0, roster.importance)
