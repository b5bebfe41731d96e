"""Verdicts for each client: join, help, stay out, or cannot tell, from paired held-out losses.

A *way* is one way to take part: with one other client, with everyone, by a method. Its gain for a
client is the client's held-out loss alone less that of the way, after as many local steps, row by
row: of each row the mean over the seeds that held it out. These are the units of an interval (Bayle
et al. 2020: such means over rows are normal around the error of the models trained, if no single
row changes a model much). Where clients' rows are not the same in every seed, units are seeds. Of
the units only their number, mean and deviation are used, which is what nodes of a real federation
tell.

Holm's procedure (1979), in its form with weights, is over the whole table, every way of every
client: the chance that any gain is called clear that is none stays below 5 %, and the chance that
any harm is, too. A few ways are asked about first (`Trials.first`): each has as much of the 5 % as
`WEIGHT` others, so that many pairs do not hide a gain that is plain with everyone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ..base.arrays import Float64
from ..report.intervals import Interval, SampleMoments

VerdictName = Literal["join", "help", "stay out", "cannot tell"]
JOIN: VerdictName = "join"
HELP: VerdictName = "help"
STAY_OUT: VerdictName = "stay out"
CANNOT_TELL: VerdictName = "cannot tell"
LEAST = 0.05  # share of the loss alone: a gain below it counts as none
WEIGHT = 10.0  # share of the 5 % for a way that is asked about first, in those of any other way
MOST_SEEDS = 10  # times as many seeds as there are; beyond that, more rows are advised
Cell = tuple[str, int]  # a way and a client


@dataclass(frozen=True)
class Trials:
    """Gains of every way for every client, over units: a client's rows, or seeds.

    Attributes:
        alone: [client]: mean held-out loss alone
        gains: the gains of a way for a client, over its units; a way that is not open to a client,
            or diverged, is left out
        ratio: [client]: correction for seeds that split the same rows again (`Variation.ratio`); 0
            where units are rows
        rows: [client]: rows of each client, for training and test
        partners: the other client's number, for each way with one other client
        by_row: True if units are rows, of which more seeds would not give more
        thin: clients with hardly any row outside their most frequent class: their losses are of one
            kind of row, and of what is rare say nothing, so that nothing is tested for them
        first: ways that are asked about first
    """

    alone: Float64
    gains: Mapping[Cell, SampleMoments]
    ratio: Float64
    rows: Sequence[int]
    partners: Mapping[str, int] = field(default_factory=dict)
    by_row: bool = True
    thin: frozenset[int] = frozenset()
    first: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ClientVerdict:
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


def holm_intervals(
    gains: Mapping[Cell, SampleMoments], ratio: Float64, first: frozenset[str] = frozenset()
) -> dict[Cell, Interval]:
    """Return the interval of each cell, at the level at which Holm's procedure tests it: of a mean
    above 0 as a gain, of any other as a harm. So an interval excludes 0 exactly if the cell passes,
    and each of its ends holds at 95 % together with those of all other cells."""
    weight = {cell: WEIGHT if cell[0] in first else 1.0 for cell in gains}
    harms = step_down(gains, ratio, weight, -1.0)
    found = step_down(gains, ratio, weight, 1.0)
    return {cell: gain if gain.mean > 0 else harms[cell] for cell, gain in found.items()}


def step_down(
    gains: Mapping[Cell, SampleMoments], ratio: Float64, weight: Mapping[Cell, float], sign: float
) -> dict[Cell, Interval]:
    """Return the interval of each cell at the level of Holm's procedure for means on one side of 0.

    Cells are tested from the smallest p / w up, each at 5 % w / (the sum of the weights left),
    until one fails; the rest have the level that they would have had next.
    """
    share = {
        cell: gain.chance(float(ratio[cell[1]]), sign) / weight[cell]
        for cell, gain in gains.items()
    }
    left = sum(weight.values())
    found: dict[Cell, Interval] = {}
    stopped = False
    for cell in sorted(share, key=lambda cell: share[cell]):
        # One side has the 5 % that an interval divides over two.
        found[cell] = gains[cell].interval(left / weight[cell] / 2, float(ratio[cell[1]]))
        stopped = stopped or not (found[cell].excludes_zero and sign * found[cell].mean > 0)
        left -= 0.0 if stopped else weight[cell]
    return found


def decide(trials: Trials) -> tuple[list[ClientVerdict], dict[Cell, Interval]]:
    """Return the verdict for each client, and the interval of every cell.

    join: some way clearly gains, and by at least `LEAST` of the loss alone; advised is the one with
    the largest mean. help: none does, and another client gains so by training with this one. stay
    out: neither, and every way is shown to gain less than that: the upper end of its own 95 %
    interval, without a correction, since all of them must be. cannot tell: anything else, and
    clients that are thin.
    """
    gains = {cell: gain for cell, gain in trials.gains.items() if cell[1] not in trials.thin}
    intervals = holm_intervals(gains, trials.ratio, trials.first)
    n = len(trials.alone)
    helps: list[list[int]] = [[] for _ in range(n)]
    for (way, k), gain in intervals.items():
        if way in trials.partners and is_gain(gain, LEAST * float(trials.alone[k])):
            helps[trials.partners[way]].append(k)
    return [decide_one(trials, intervals, k, tuple(helps[k])) for k in range(n)], intervals


def is_gain(gain: Interval, margin: float) -> bool:
    """Return True if a gain is clear, and large enough to count."""
    return gain.excludes_zero and gain.mean >= margin > 0


def decide_one(
    trials: Trials, intervals: Mapping[Cell, Interval], k: int, helps: tuple[int, ...]
) -> ClientVerdict:
    """Return the verdict for client k."""
    mine = {way: gain for (way, client), gain in intervals.items() if client == k}
    if not mine:
        return ClientVerdict(HELP if helps else CANNOT_TELL, "", Interval(np.nan, np.nan), helps)
    margin = LEAST * float(trials.alone[k])
    clear = {way: gain for way, gain in mine.items() if is_gain(gain, margin)}
    best = max(clear or mine, key=lambda way: mine[way].mean)
    if clear:
        return ClientVerdict(JOIN, best, mine[best], helps)
    ratio = float(trials.ratio[k])
    own = {way: trials.gains[way, k].interval(ratio=ratio) for way in mine}
    none = all(gain.mean + gain.half < margin for gain in own.values())
    if helps or none:
        return ClientVerdict(HELP if helps else STAY_OUT, best, mine[best], helps, none)
    if mine[best].mean >= margin > 0:
        more = (mine[best].half / mine[best].mean) ** 2
    else:  # all of them are to be excluded
        room = min((margin - gain.mean) / gain.half for gain in own.values() if gain.half > 0)
        more = room**-2 if room > 0 else np.inf
    units = next(iter(trials.gains.values())).count
    seeds, rows = find_need(more, None if trials.by_row else units, ratio, trials.rows[k])
    return ClientVerdict(CANNOT_TELL, best, mine[best], helps, seeds=seeds, rows=rows)


def find_need(
    more: float, seeds: int | None, ratio: float, rows: int
) -> tuple[int | None, int | None]:
    """Return the number of seeds, or else of rows, with which the variance of a mean, `s^2 (1/n +
    ratio)` over n seeds, is `more` times smaller; two Nones where neither is within reach.

    >>> find_need(2.0, 10, 0.0, 100), find_need(2.0, None, 0.0, 100)
    ((20, None), (None, 200))
    """
    if not np.isfinite(more):
        return None, None
    if seeds is not None:
        rest = (1 / seeds + ratio) / more - ratio
        if rest > 1 / (MOST_SEEDS * seeds):
            return max(seeds + 1, int(np.ceil(1 / rest - 1e-9))), None
    return None, max(rows + 1, int(np.ceil(rows * more)))
