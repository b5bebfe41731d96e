"""Invite: the clients asked in a round, and the share that each stands for.

An invitation is drawn from a pool of clients (everyone, or only the objective's during warm-up)
and returns the clients asked with the share each reply will count by. Usually that is p_k.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..base import rng
from ..base.arrays import Float64, Int64
from ..base.checks import check_whole, is_number, is_whole, require
from ..base.registry import part
from ..federation import Population
from ..protocol import Roster

Losses = Callable[[Int64], Float64]


class Invite(Protocol):
    """The server's choice of the clients that it asks in a round.

    Write one by inheriting from this class; only `__call__` has no default.
    """

    @abstractmethod
    def __call__(
        self, population: Population, pool: Int64, seed: int, round: int, losses: Losses
    ) -> Roster:
        """Return the roster of asked clients, in increasing order of client.

        Args:
            population: every client, one entry each: `rows` (of training data), `share` (p_k),
                `priority`, `importance` (a_k), `objective` (a_k p_k), `ids`
            pool: the clients that may be asked, as places in the population: all that take part, or
                during warm-up those of the objective
            seed: the run's seed: draw with `muster.base.rng.generator(seed, "invite", round)`
            round: the round, from 0
            losses: `losses(clients)` asks clients for F_k(w) before they are chosen, which
                costs sending them the model

        Returns:
            `Roster.of(population, clients)`, with `share` and `full` where replies are to count by
            something else than p_k
        """
        ...

    def max_clients(self, n: int) -> int:
        """Return the largest number of clients asked of a pool of n, to estimate memory."""
        return n


@part(Invite, "full")
@dataclass(frozen=True)
class Full:
    """Everyone in the pool."""

    def max_clients(self, n: int) -> int:
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
        check_whole("invite m", self.m)

    def max_clients(self, n: int) -> int:
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

    def max_clients(self, n: int) -> int:
        return max(1, int(np.floor(self.fraction * n + 0.5)))

    def __call__(
        self, population: Population, pool: Int64, seed: int, round: int, losses: Losses
    ) -> Roster:
        return Sample(self.max_clients(len(pool)))(population, pool, seed, round, losses)


@part(Invite, "apart")
@dataclass(frozen=True)
class Apart:
    """Priority clients and the others drawn apart, each group uniformly without replacement, by a
    count (a whole number) or a fraction of those in the pool (1.0: all of them). No round is
    without a priority client while there is one.

    Each client asked stands for those of its group that were not: of n clients m are asked, and it
    counts by `p_k n / m`. `Apart(K, 1.0)` is A.4's K of the priority clients without replacement,
    S, plus all others (Li et al. 2020):

    `|P|/K sum_S p_k w_k + sum_admitted p_k w_k`, whose mean over all S is the full round's sum

    The full round divides it by `1 + sum_admitted p_k`. `Average` divides by what the weights sum
    to, which is the same where priority clients have the same number of rows, and otherwise makes
    the round a slightly biased estimate of the full one. `Estimate` is unbiased.

    With fewer than all others, S is an estimate too: who of those not asked would be admitted, only
    they can say. `sum_k v_k (w_k - w)` is still unbiased, and so is `1 + S`, but their ratio, the
    round, is not: a ratio estimate, whose bias falls like `1/m - 1/n` with m of n others asked.

    Which priority clients are asked depends on the seed, the round and who of them is there, not on
    the others: methods that differ in whom else they ask, and rounds of the warm-up, ask the same.
    """

    priority: int | float
    others: int | float = 1.0

    def __post_init__(self) -> None:
        for name, least in (("priority", 1), ("others", 0)):
            value = getattr(self, name)
            ok = is_whole(value) and value >= least
            if not is_whole(value) and is_number(value):
                ok = 0.0 < value <= 1.0 or value == least
            fractions = "above 0.0, up to 1.0" if least else "from 0.0 to 1.0"
            allowed = f"a whole number from {least}, or a fraction {fractions}"
            require(ok, f"invite {name}", value, allowed)

    def max_clients(self, n: int) -> int:
        counts = [int(v) for v in (self.priority, self.others) if is_whole(v)]
        fractions = [float(v) for v in (self.priority, self.others) if not is_whole(v)]
        return min(n, sum(counts) + int(np.ceil(max(fractions, default=0.0) * n)))

    def __call__(
        self, population: Population, pool: Int64, seed: int, round: int, losses: Losses
    ) -> Roster:
        first = population.priority[pool]
        asked, standing = [], []
        for name, group in (("priority", pool[first]), ("others", pool[~first])):
            m, n = count_clients(getattr(self, name), len(group)), len(group)
            draw = rng.generator(seed, f"invite {name}", round)
            at = draw.choice(n, m, replace=False, shuffle=False) if m else np.empty(0, np.int64)
            asked.append(group[at])
            standing.append(np.full(m, n / max(m, 1)))
        clients = np.concatenate(asked)
        order = np.argsort(clients)
        clients, scale = clients[order], np.concatenate(standing)[order]
        share = population.share[clients] * scale
        return Roster.of(population, clients, share, share)


def count_clients(part: int | float, n: int) -> int:
    """Return a number of clients, at most n: a count, or a fraction of n (at least 1 unless 0).

    >>> [count_clients(part, 18) for part in (5, 0.3, 0.01, 1.0)]
    [5, 5, 1, 18]
    """
    if is_whole(part) or part == 0 or n == 0:
        return min(int(part), n)
    return Fraction(part).max_clients(n)


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
        check_whole("invite k", self.k)

    def max_clients(self, n: int) -> int:
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
        check_whole("power of choice d", self.d)
        check_whole("power of choice m", self.m, most=self.d)

    def max_clients(self, n: int) -> int:
        return min(self.m, n)

    def __call__(
        self, population: Population, pool: Int64, seed: int, round: int, losses: Losses
    ) -> Roster:
        chances = population.rows[pool] / population.rows[pool].sum()
        draw = rng.generator(seed, "invite", round)
        candidates = draw.choice(pool, min(self.d, len(pool)), replace=False, p=chances)
        worst = np.argsort(-losses(candidates), kind="stable")[: self.m]
        return Roster.of(population, np.sort(candidates[worst]))
