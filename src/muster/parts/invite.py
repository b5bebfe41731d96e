"""Invite: which clients are asked this round, and the share each of them stands for.

An invitation is drawn from a pool of clients (everyone, or only the objective's during warm-up)
and returns the clients asked with the share each reply will count by. Usually that is p_k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .. import rng
from ..arrays import Float64, Int64
from ..errors import MusterError
from ..federation import Federation
from ..protocol import Roster

Losses = Callable[[Int64], Float64]


class Invite(Protocol):
    """Who is asked."""

    def __call__(
        self, fed: Federation, pool: Int64, seed: int, round: int, losses: Losses
    ) -> Roster:
        """The roster of asked clients, in increasing order of client.

        `losses(clients)` asks clients for F_k(w) before they are chosen, at the price of sending
        them the model.
        """
        ...


@dataclass(frozen=True)
class Full:
    """Everyone in the pool."""

    def __call__(
        self, fed: Federation, pool: Int64, seed: int, round: int, losses: Losses
    ) -> Roster:
        return Roster.of(fed, pool)


@dataclass(frozen=True)
class Sample:
    """m clients, uniformly without replacement; the whole pool when it is smaller."""

    m: int

    def __post_init__(self) -> None:
        if self.m < 1:
            raise MusterError(f"invite m: {self.m}; ask at least 1 client a round")

    def __call__(
        self, fed: Federation, pool: Int64, seed: int, round: int, losses: Losses
    ) -> Roster:
        draw = rng.generator(seed, "invite", round)
        m = min(self.m, len(pool))
        # For a small m numpy draws in O(m), whatever the size of the pool.
        at = draw.choice(len(pool), m, replace=False, shuffle=False)
        return Roster.of(fed, pool[np.sort(at)])


@dataclass(frozen=True)
class Fraction:
    """A uniform fraction of the pool, priority or not (supplement D.4)."""

    fraction: float

    def __post_init__(self) -> None:
        if not 0.0 < self.fraction <= 1.0:
            raise MusterError(f"invite fraction: {self.fraction}; allowed: above 0.0, up to 1.0")

    def __call__(
        self, fed: Federation, pool: Int64, seed: int, round: int, losses: Losses
    ) -> Roster:
        m = max(1, int(np.floor(self.fraction * len(pool) + 0.5)))
        return Sample(m)(fed, pool, seed, round, losses)


@dataclass(frozen=True)
class WithReplacement:
    """K draws among the objective's clients with probabilities a_k p_k, each counting 1/K, and
    every other client of the pool at its p_k (supplement A.4, eq. 55).

    A client drawn c times stands for c/K, so that averaging with these shares is
    `1/(1 + S) (1/K sum_draws w_k + sum_admitted p_k w_k)`, an unbiased estimate of the full round.
    """

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise MusterError(f"invite k: {self.k}; draw at least 1 priority client a round")

    def __call__(
        self, fed: Federation, pool: Int64, seed: int, round: int, losses: Losses
    ) -> Roster:
        member = fed.importance[pool] > 0
        chances = fed.objective[pool] * member
        draws = np.zeros(len(pool), np.int64)
        if member.any():
            draw = rng.generator(seed, "invite", round)
            draws = draw.multinomial(self.k, chances / chances.sum())
        asked = (draws > 0) | ~member
        # By a_k, because it is admitted by a_k again (or in full, while it is aligned).
        drawn = draws / (self.k * np.where(member, fed.importance[pool], 1.0))
        share = np.where(member, drawn, fed.share[pool])
        return Roster.of(fed, pool[asked], share[asked])


@dataclass(frozen=True)
class PowerOfChoice:
    """The m clients of highest loss among d drawn by data share without replacement (Cho et al.
    2020, pow-d)."""

    m: int
    d: int

    def __post_init__(self) -> None:
        if not 1 <= self.m <= self.d:
            raise MusterError(f"power of choice: m={self.m}, d={self.d}; allowed: 1 <= m <= d")

    def __call__(
        self, fed: Federation, pool: Int64, seed: int, round: int, losses: Losses
    ) -> Roster:
        chances = fed.train.sizes[pool] / fed.train.sizes[pool].sum()
        draw = rng.generator(seed, "invite", round)
        candidates = draw.choice(pool, min(self.d, len(pool)), replace=False, p=chances)
        worst = np.argsort(-losses(candidates), kind="stable")[: self.m]
        return Roster.of(fed, np.sort(candidates[worst]))


INVITES: dict[str, type] = {
    "full": Full,
    "sample": Sample,
    "fraction": Fraction,
    "with_replacement": WithReplacement,
    "power_of_choice": PowerOfChoice,
}
