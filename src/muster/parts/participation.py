"""Participation: the pool of clients that the server may ask, when clients are free to leave.

Any method can run with clients who leave when the model no longer meets their requirement and
come back when it does.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ..base.arrays import Bool, Float64
from ..base.checks import check_whole, is_whole
from ..base.registry import part
from ..schedules import Count, count_rounds


@runtime_checkable
class Participation(Protocol):
    """The rule by which clients leave the pool that the server may ask, and return to it.

    Write one by inheriting from this class; only `__call__` has no default.
    """

    def starts(self, rounds: int) -> int:
        """Return the first round (from 0) in which clients are free to leave.

        Args:
            rounds: the number of rounds of the run
        """
        return 0

    @abstractmethod
    def __call__(self, loss: Float64, requirement: Float64) -> Bool:
        """Return True for each client that stays in the pool; called again in every round.

        Args:
            loss: F_k(w), each client's loss of the round's model
            requirement: rho_k, the loss that a model must beat to be of use to it
        """
        ...


@part(Participation, "flexible")
@dataclass(frozen=True)
class Flexible:
    """From a round on, the pool is `{k : F_k(w) < rho_k}`, judged again each round (MaxFL,
    section 3). Before it everyone is available: 5 % of the rounds, 10 of 200 in the paper, but no
    fewer than `grace` of them, however short the run: nobody can judge a model that has hardly been
    trained. `grace` has no effect where `from_round` is a whole number."""

    from_round: Count = 0.05
    grace: int = 5

    def __post_init__(self) -> None:
        count_rounds(self.from_round, 100, "from_round")
        check_whole("grace", self.grace, 0)

    def starts(self, rounds: int) -> int:
        first = count_rounds(self.from_round, rounds, "from_round")
        return first if is_whole(self.from_round) else min(rounds, max(first, self.grace))

    def __call__(self, loss: Float64, requirement: Float64) -> Bool:
        return loss < requirement
