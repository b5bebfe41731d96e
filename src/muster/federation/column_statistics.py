"""Column statistics of each client, from which scalers and encoders are fitted without rows.

For each column a client reports how many numbers there are, their mean and their spread. From these
the mean and the standard deviation over any set of clients follow exactly. The simulator fits from
the same numbers, client by client, so a federation over a network gets the same features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Bool, Float64, Int64

AT_ONCE = 2**22  # numbers processed together: columns are taken in groups


@dataclass(frozen=True, eq=False)
class ColumnStatistics:
    """Count, mean and spread of each column of each client's training rows, [client, column].

    Attributes:
        rows: number of rows, [client]
        count: number of values; less than the rows where some are missing
        mean: mean of the values; 0 where there are none
        spread: sum of their squared distances from that mean
    """

    rows: Int64
    count: Int64
    mean: Float64
    spread: Float64

    @classmethod
    def of(cls, x: NDArray[Any], sizes: Int64) -> ColumnStatistics:
        """Return the statistics of rows that lie client after client, `sizes` for each; NaN where a
        number is missing. A client's numbers do not depend on other clients, to the bit."""
        x = x.reshape(len(x), -1)
        result = cls(
            np.asarray(sizes, np.int64),
            *(np.zeros((len(sizes), x.shape[1]), kind) for kind in (np.int64, float, float)),
        )
        some = sizes > 0
        starts = (np.cumsum(sizes) - sizes)[some]
        whose = np.repeat(np.arange(some.sum()), sizes[some])
        step = max(1, AT_ONCE // max(1, len(x)))
        for j in range(0, x.shape[1], step):
            few = slice(j, j + step)
            found = moments(np.asarray(x[:, few], np.float64), starts, whose)
            result.count[some, few], result.mean[some, few], result.spread[some, few] = found
        return result

    def pick(self, who: Bool) -> ColumnStatistics:
        """Return the statistics of some of the clients."""
        return ColumnStatistics(self.rows[who], self.count[who], self.mean[who], self.spread[who])

    def combine_some(self, who: Bool) -> ColumnStatistics:
        """Return the statistics of some clients as one client; for a column in which they have no
        value, those of all clients."""
        mine = self.pick(who).combine()
        if (mine.count > 0).all():
            return mine
        everyone = self.combine()

        def either(name: str) -> Any:
            return np.where(mine.count > 0, getattr(mine, name), getattr(everyone, name))

        return ColumnStatistics(mine.rows, either("count"), either("mean"), either("spread"))

    def combine(self) -> ColumnStatistics:
        """Return the statistics of all clients as one (Chan, Golub and LeVeque 1983). With N =
        sum n_k,

            mean = sum n_k mean_k / N,   spread = sum spread_k + n_k (mean_k - mean)^2.

        Sums are exact, so that the order of clients makes no difference; means are counted from
        the lowest, so that a column that never varies keeps its value and has no spread at all.
        """
        there = self.count > 0
        n = self.count.sum(0)
        low = np.where(there, self.mean, np.inf).min(0, initial=np.inf)
        low = np.where(n > 0, low, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            above = np.where(there, self.mean - low, 0.0)
            mean = low + exact_sums(self.count * above) / np.maximum(n, 1)
            off = np.where(there, self.mean - mean, 0.0)
            spread = exact_sums(np.concatenate([self.spread, self.count * off**2]))
        return ColumnStatistics(self.rows.sum(keepdims=True), n[None], mean[None], spread[None])

    @property
    def deviation(self) -> Float64:
        """Standard deviation of each column; 1 for one that never varies."""
        found = np.sqrt(self.spread / np.maximum(self.count, 1))
        return np.where(found > 0, found, 1.0)


def moments(x: Float64, starts: Int64, whose: Int64) -> tuple[Int64, Float64, Float64]:
    """Return count, mean and spread of each client's rows, which begin at `starts`."""
    there = ~np.isnan(x)

    def total(values: NDArray[Any]) -> NDArray[Any]:
        return np.add.reduceat(np.where(there, values, 0), starts, axis=0)

    with np.errstate(over="ignore", invalid="ignore"):  # reported later, with its row
        count: Int64 = total(np.ones(x.shape, np.int64))
        mean = total(x) / np.maximum(count, 1)
        # A second pass removes rounding: the mean of equal numbers is that number.
        mean += total(x - mean[whose]) / np.maximum(count, 1)
        return count, mean, total((x - mean[whose]) ** 2)


def exact_sums(values: NDArray[Any]) -> Float64:
    """Return the sum of each column, rounded once."""

    def total(column: NDArray[Any]) -> float:
        try:
            return math.fsum(column)
        except OverflowError:
            return math.inf

    return np.array([total(column) for column in values.T], np.float64)
