"""Verdicts for each client: join, help, stay out, or cannot tell, from paired held-out losses.

A *way* is one way to take part: with one other client, with everyone, by a method. Its gain for a
client is the client's held-out loss alone less that of the way, seed by seed, after as many local
steps. Holm's procedure (1979) is over the whole table, every way of every client: the chance that
any gain or harm is called clear that is none stays below 5 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ..base.arrays import Float64
from ..base.checks import check_whole
from ..base.errors import MusterError
from ..report.intervals import Interval

VerdictName = Literal["join", "help", "stay out", "cannot tell"]
JOIN: VerdictName = "join"
HELP: VerdictName = "help"
STAY_OUT: VerdictName = "stay out"
CANNOT_TELL: VerdictName = "cannot tell"
LEAST = 0.05  # share of the loss alone: a gain below it counts as none
LEAST_SEEDS = 3
MOST_SEEDS = 10  # times as many seeds as there are; beyond that, more rows are advised
Cell = tuple[str, int]  # a way and a client


@dataclass(frozen=True)
class Trials:
    """Held-out losses of all clients, alone and by every way, on the same seeds.

    Attributes:
        alone: [seed, client]
        ways: the same by name of the way; NaN where it is not open to a client
        ratio: [client]: correction for seeds that split the same rows again (`Variation.ratio`)
        rows: [client]: rows of each client, for training and test
        partners: the other client's number, for each way with one other client
    """

    alone: Float64
    ways: Mapping[str, Float64]
    ratio: Float64
    rows: Sequence[int]
    partners: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_whole("seeds", len(self.alone), LEAST_SEEDS)
        if not np.isfinite(self.alone).all():
            k = int(np.flatnonzero(~np.isfinite(self.alone).all(axis=0))[0])
            raise MusterError(
                f"client {k}: training alone gave no finite loss on its held-out rows; take a "
                "smaller local.lr, or give it rows to test on"
            )

    @property
    def gains(self) -> dict[Cell, Float64]:
        """The gains of each cell, one per seed, without those that diverged or are not open."""
        found = {
            (way, k): self.alone[:, k] - losses[:, k]
            for way, losses in self.ways.items()
            for k in range(self.alone.shape[1])
        }
        return {cell: gain for cell, gain in found.items() if np.isfinite(gain).all()}


@dataclass(frozen=True)
class Verdict:
    """The verdict for one client.

    Attributes:
        verdict: join, help, stay out or cannot tell
        way: the way advised, or else the one with the largest mean gain; "" if there is none
        gain: its gain, at the level of Holm's procedure: it excludes 0 where it is called clear
        helps: numbers of the clients that clearly gain by training with this one
        none: True if every way is shown to gain less than `LEAST` of the loss alone
        seeds: number of seeds that would tell, if the estimates hold
        rows: number of rows that would tell, where more seeds would not
    """

    verdict: VerdictName
    way: str
    gain: Interval
    helps: tuple[int, ...] = ()
    none: bool = False
    seeds: int | None = None
    rows: int | None = None


def holm_intervals(gains: Mapping[Cell, Float64], ratio: Float64) -> dict[Cell, Interval]:
    """Return the interval of each cell, at the level at which Holm's procedure tests it.

    Cells are tested from the largest |t| down, the i-th of m at 5 % / (m - i + 1), until one fails;
    the rest have the level of that one. So an interval excludes 0 exactly if the cell passes.
    """
    plain = {cell: Interval.of(gain, ratio=ratio[cell[1]]) for cell, gain in gains.items()}
    left = len(plain)
    found: dict[Cell, Interval] = {}
    stopped = False
    for cell in sorted(plain, key=lambda cell: -strength(plain[cell])):
        found[cell] = Interval.of(gains[cell], left, ratio[cell[1]])
        stopped = stopped or not found[cell].excludes_zero
        left -= not stopped
    return found


def strength(gain: Interval) -> float:
    """Return |t| up to a factor that is the same for all cells."""
    if gain.mean == 0.0:
        return 0.0
    return abs(gain.mean) / gain.half if gain.half > 0 else float("inf")


def decide(trials: Trials) -> tuple[list[Verdict], dict[Cell, Interval]]:
    """Return the verdict for each client, and the interval of every cell.

    join: some way clearly gains; advised is the clear one with the largest mean. help: none does,
    and another client clearly gains by training with this one. stay out: neither, and every way is
    shown to gain less than `LEAST` of the loss alone: the upper end of its own 95 % interval, since
    all of them must be. cannot tell: anything else.
    """
    gains = trials.gains
    intervals = holm_intervals(gains, trials.ratio)
    n = trials.alone.shape[1]
    helps: list[list[int]] = [[] for _ in range(n)]
    for (way, k), gain in intervals.items():
        if way in trials.partners and gain.excludes_zero and gain.mean > 0:
            helps[trials.partners[way]].append(k)
    return [decide_one(trials, gains, intervals, k, tuple(helps[k])) for k in range(n)], intervals


def decide_one(
    trials: Trials,
    gains: Mapping[Cell, Float64],
    intervals: Mapping[Cell, Interval],
    k: int,
    helps: tuple[int, ...],
) -> Verdict:
    """Return the verdict for client k."""
    mine = {way: gain for (way, client), gain in intervals.items() if client == k}
    if not mine:
        return Verdict(HELP if helps else CANNOT_TELL, "", Interval(np.nan, np.nan), helps)
    clear = {way: gain for way, gain in mine.items() if gain.excludes_zero and gain.mean > 0}
    best = max(clear or mine, key=lambda way: mine[way].mean)
    if clear:
        return Verdict(JOIN, best, mine[best], helps)
    margin = LEAST * float(trials.alone[:, k].mean())
    ratio = float(trials.ratio[k])
    own = {way: Interval.of(gains[way, k], ratio=ratio) for way in mine}
    none = all(gain.mean + gain.half < margin for gain in own.values())
    if helps or none:
        return Verdict(HELP if helps else STAY_OUT, best, mine[best], helps, none)
    if mine[best].mean > margin / 2:
        more = (mine[best].half / mine[best].mean) ** 2
    else:  # all of them are to be excluded
        room = min((margin - gain.mean) / gain.half for gain in own.values() if gain.half > 0)
        more = room**-2 if room > 0 else np.inf
    seeds, rows = find_need(more, len(trials.alone), ratio, trials.rows[k])
    return Verdict(CANNOT_TELL, best, mine[best], helps, seeds=seeds, rows=rows)


def find_need(more: float, n: int, ratio: float, rows: int) -> tuple[int | None, int | None]:
    """Return the number of seeds, or else of rows, with which the variance of a mean, `s^2 (1/n +
    ratio)`, is `more` times smaller; two Nones where neither is within reach.

    >>> find_need(2.0, 10, 0.0, 100), find_need(2.0, 10, 1.0, 100)
    ((20, None), (None, 200))
    """
    if not np.isfinite(more):
        return None, None
    rest = (1 / n + ratio) / more - ratio
    if rest > 1 / (MOST_SEEDS * n):
        return max(n + 1, int(np.ceil(1 / rest - 1e-9))), None
    return None, max(rows + 1, int(np.ceil(rows * more)))
