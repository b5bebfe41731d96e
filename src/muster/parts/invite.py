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
from ..checks import require, whole
from ..federation import Population
from ..protocol import Roster
from ..registry import part

Losses = Callable[[Int64], Float64]


class Invite(Protocol):
    """Chooses the clients that are asked in a round, from those in the pool."""

    def __call__(
        self, population: Population, pool: Int64, seed: int, round: int, losses: Losses
    ) -> Roster:
        """The roster of asked clients, in increasing order of client.

        `losses(clients)` asks clients for F_k(w) before they are chosen, at the price of sending
        them the model.
        """
        ...

    def most_asked(self, n: int) -> int:
        """How many of n clients are asked at the most."""
        ...


@part(Invite, "full")
@dataclass(frozen=True)
class Full:
    """Everyone in the pool."""

    def most_asked(self, n: int) -> int:
        return n

    def __call__(
        self, population: Population, pool: Int64, seed: int, round: int, losses: Losses
    ) -> Roster:
        return Roster.of(population, pool)


@part(Invite, "sample")
@dataclass(frozen=True)
class Sample:
    """m clients, uniformly without replacement; the whole pool when it is smaller."""

    m: int

    def __post_init__(self) -> None:
        whole("invite m", self.m)

    def most_asked(self, n: int) -> int:
        return min(self.m, n)

    def __call__(
        self, population: Population, pool: Int64, seed: int, round: int, losses: Losses
    ) -> Roster:
        draw = rng.generator(seed, "invite", round)
        m = min(self.m, len(pool))
        # For a small m numpy draws in O(m), whatever the size of the pool.
        at = draw.choice(len(pool), m, replace=False, shuffle=False)
        return Roster.of(population, pool[np.sort(at)])


@part(Invite, "fraction")
@dataclass(frozen=True)
class Fraction:
    """A uniform fraction of the pool, priority or not (supplement D.4)."""

    fraction: float

    def __post_init__(self) -> None:
        require(
            0.0 < self.fraction <= 1.0, "invite fraction", self.fraction, "above 0.0, up to 1.0"
        )

    def most_asked(self, n: int) -> int:
        return max(1, int(np.floor(self.fraction * n + 0.5)))

    def __call__(
        self, population: Population, pool: Int64, seed: int, round: int, losses: Losses
    ) -> Roster:
        return Sample(self.most_asked(len(pool)))(population, pool, seed, round, losses)


@part(Invite, "with_replacement")
@dataclass(frozen=True)
class WithReplacement:
    """K draws among the objective's clients with probabilities a_k p_k, each counting 1/K, and
    every other client of the pool at its p_k (supplement A.4, eq. 55).

    A client drawn c times stands for c/K of the objective. Whoever is not wholly in it (a_k < 1)
    is asked in any case and counts `(extent_k - a_k) p_k` on top while it is aligned, so that the
    average is `1/(1 + S) (1/K sum_draws w_k + sum_k (extent_k - a_k) p_k w_k)`: an unbiased
    estimate of the full round.
    """

    k: int

    def __post_init__(self) -> None:
        whole("invite k", self.k)

    def most_asked(self, n: int) -> int:
        return n

    def __call__(
        self, population: Population, pool: Int64, seed: int, round: int, losses: Losses
    ) -> Roster:
        importance = population.importance[pool]
        chances = population.objective[pool]
        draws = np.zeros(len(pool), np.int64)
        if chances.sum() > 0:
            draw = rng.generator(seed, "invite", round)
            draws = draw.multinomial(self.k, chances / chances.sum())
        # Whoever is not wholly in the objective may be aligned, and counts then beyond its draws.
        asked = (draws > 0) | (importance < 1)
        drawn = draws / (self.k * np.where(importance > 0, importance, 1.0))
        share = np.where(importance > 0, drawn, population.share[pool])
        return Roster.of(population, pool[asked], share[asked])


@part(Invite, "power_of_choice")
@dataclass(frozen=True)
class PowerOfChoice:
    """The m clients of highest loss among d drawn by data share without replacement (Cho et al.
    2020, pow-d)."""

    m: int
    d: int

    def __post_init__(self) -> None:
        whole("power of choice d", self.d)
        whole("power of choice m", self.m, most=self.d)

    def most_asked(self, n: int) -> int:
        return min(self.m, n)

    def __call__(
        self, population: Population, pool: Int64, seed: int, round: int, losses: Losses
    ) -> Roster:
        chances = population.rows[pool] / population.rows[pool].sum()
        draw = rng.generator(seed, "invite", round)
        candidates = draw.choice(pool, min(self.d, len(pool)), replace=False, p=chances)
        worst = np.argsort(-losses(candidates), kind="stable")[: self.m]
        return Roster.of(population, np.sort(candidates[worst]))
