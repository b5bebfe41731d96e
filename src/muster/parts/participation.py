"""Participation: who is in the pool the server may ask, when clients are free to leave.

Any method can run with clients who leave when the model no longer meets their requirement and
come back when it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ..base.arrays import Bool, Float64
from ..base.checks import check_whole, is_whole
from ..base.registry import part
from ..schedules import Count, count_rounds


@runtime_checkable
class Participation(Protocol):
    """Decides who stays in the pool, from each client's own judgement of the model."""

    def starts(self, rounds: int) -> int:
        """The first round (from 0) in which clients are free to leave."""
        ...

    def __call__(self, loss: Float64, requirement: Float64) -> Bool:
        """Which clients are in the pool, from their F_k(w) and rho_k."""
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
