"""Join: a client's own decision to train, or to abstain.

Runs on the client, from the offer and its own appraisal. Those in the objective (importance
above 0; the priority clients) always take part: the model is theirs.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np

from ..base import rng
from ..base.arrays import Bool, Text
from ..base.checks import check_one_of, check_share, check_whole
from ..base.registry import part
from ..protocol import Appraisal, Decision, Offer, Roster

Criterion = Literal["loss", "score", "accuracy"]


class Join(Protocol):
    """A client's own decision to train, or to abstain.

    Write one by inheriting from this class; only `__call__` has no default.
    """

    @property
    def appraises(self) -> bool:
        """True if the rule uses `appraisal`, `offer.loss` or `offer.score`; else these are NaN."""
        return True

    @abstractmethod
    def __call__(self, offer: Offer, roster: Roster, appraisal: Appraisal) -> Decision:
        """Return the decision of each client, with its reason.

        Args:
            offer: what the server sent: `model`, `loss` (F(w)) and `score` on the priority clients,
                `score_name`, `higher` (True if more of it is better), `eps` (eps_t),
                `round`, `rounds`, `seed`
            roster: the clients asked, one entry each: `priority`, `importance` (a_k, above 0 for
                members of the objective), `ids` (which key their randomness), `share` (p_k)
            appraisal: their measure of the offered model: `loss` (F_k(w)), `score`; NaN if unknown

        Returns:
            `Decision(yes, reason)`: a boolean and a short text for each client
        """
        ...


CRITERIA = ("loss", "score", "accuracy")
UNKNOWN = "F(w) unknown"  # why nobody can tell whether it is aligned


def member_reason(roster: Roster) -> Text:
    """Return the reason of clients that are in the objective."""
    return np.where(roster.priority, "priority", "objective")


@part(Join, "always")
@dataclass(frozen=True)
class Always:
    """Everyone who is asked trains."""

    appraises: ClassVar[bool] = False

    def __call__(self, offer: Offer, roster: Roster, appraisal: Appraisal) -> Decision:
        reason = np.where(roster.importance > 0, member_reason(roster), "asked")
        return Decision(np.ones(len(roster), np.bool_), reason)


@part(Join, "aligned")
@dataclass(frozen=True)
class Aligned:
    """A client outside the objective trains only when the model suits it (Algorithm 1, step 3):

    loss   `F_k(w) < F(w) + eps_t`
    score  `s_k(w) > s(w) - eps_t`, the task's score; where less of it is better, `s_k(w) < s(w) +
           eps_t`. `accuracy`, the paper's name, is the same

    Strict, so that eps = 0 admits nobody even where all losses tie (eq. 7, 18).
    """

    criterion: Criterion = "loss"
    appraises: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_one_of("criterion", self.criterion, CRITERIA)

    def __call__(self, offer: Offer, roster: Roster, appraisal: Appraisal) -> Decision:
        if self.criterion == "loss":
            own, model, called, sign = appraisal.loss, offer.loss, "loss", -1.0
        else:
            own, model, called = appraisal.score, offer.score, offer.score_name
            sign = 1.0 if offer.higher else -1.0
        suits = sign * own > sign * model - offer.eps
        member = roster.importance > 0
        too = f"{called} too {'low' if sign > 0 else 'high'}"
        why_not = np.where(np.isnan(own), f"{called} unknown", too)
        if np.isnan(model):
            why_not = np.full(len(roster), UNKNOWN)
        reason = np.where(member, member_reason(roster), np.where(suits, "aligned", why_not))
        return Decision(member | suits, reason)


@part(Join, "available")
@dataclass(frozen=True)
class Available:
    """A client outside the objective is there with a probability (eq. 54); then `then` decides."""

    probability: float
    then: Join = Always()

    def __post_init__(self) -> None:
        check_share("availability", self.probability)

    @property
    def appraises(self) -> bool:
        return self.then.appraises

    def __call__(self, offer: Offer, roster: Roster, appraisal: Appraisal) -> Decision:
        key = rng.keys(offer.seed, "available", offer.round, roster.ids)
        there = (roster.importance > 0) | (rng.uniform(key) < self.probability)
        return only_available(there, self.then(offer, roster, appraisal))


@part(Join, "straggling")
@dataclass(frozen=True)
class Straggling:
    """A client outside the objective is ready only every `period`-th round (eq. 54), at its
    own phase; then `then` decides."""

    period: int
    then: Join = Always()

    def __post_init__(self) -> None:
        check_whole("straggler period", self.period)

    @property
    def appraises(self) -> bool:
        return self.then.appraises

    def __call__(self, offer: Offer, roster: Roster, appraisal: Appraisal) -> Decision:
        phase = rng.keys(offer.seed, "straggling", 0, roster.ids) % np.uint64(self.period)
        ready = phase.astype(np.int64) == offer.round % self.period
        return only_available((roster.importance > 0) | ready, self.then(offer, roster, appraisal))


def only_available(there: Bool, decision: Decision) -> Decision:
    """Return the decision, limited to the clients that are available."""
    return Decision(there & decision.yes, np.where(there, decision.reason, "unavailable"))
