"""Measuring: which rows some clients look at, and each client's mean over its own."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..arrays import Float64, Int64
from ..federation.ragged import Ragged, Shared
from ..protocol import Appraisal

Split = Literal["train", "test"]


class Seen:
    """The rows some clients look at, each once, with its loss and score; and each client's mean
    over its own.

    rows  which rows of the data; None: the first n as they lie
    """

    def __init__(self, data: Ragged, clients: Int64, split: Split) -> None:
        self.data, self.clients, self.split = data, clients, split
        self.rows: Int64 | None
        if isinstance(data, Shared):
            # Every row of a label these clients see.
            self.labels = np.flatnonzero((data.mix[clients] > 0).any(0))
            self.rows = data.rows_of_labels(self.labels)
            self.n = len(self.rows)
        else:
            self.at = data.positions(clients)
            everyone = np.array_equal(clients, np.arange(len(data.sizes)))
            # Where clients share rows, looking at each row of the data once may be less.
            self.shared = data.rows is not None and len(self.at) > len(data.y)
            whole = self.shared or (everyone and data.rows is None)
            self.rows = None if whole else data.base(self.at)
            self.n = len(data.y) if self.shared else len(self.at)
        self.loss, self.score = np.empty(self.n), np.empty(self.n)

    def by_client(self) -> Appraisal:
        """Each client's mean over its rows, weighted where rows have weights."""
        if isinstance(self.data, Shared):
            return self._by_mix(self.data)
        loss, score = self.loss, self.score
        if self.shared:
            at = self.data.base(self.at)
            loss, score = loss[at], score[at]
        return means(self.data, self.clients, self.at, loss, score)

    def _by_mix(self, data: Shared) -> Appraisal:
        """Each client's mix of the labels' means."""
        mix = data.mix[self.clients]
        count = data.count[self.labels]
        starts = np.cumsum(count) - count
        of = np.zeros((2, mix.shape[1]))
        for mean, values in zip(of, (self.loss, self.score), strict=True):
            mean[self.labels] = np.add.reduceat(values, starts) / count
        # Summed over all labels, seen or not, so that it does not depend on who else is asked.
        return Appraisal(*((mix * mean).sum(axis=1) for mean in of))


def means(data: Ragged, clients: Int64, at: Int64, loss: Float64, score: Float64) -> Appraisal:
    """Each client's mean over its rows (weighted, where rows have weights), in float64."""
    sizes = data.sizes[clients]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    weight = data.counts_by(at)
    if weight is None:
        return Appraisal(
            np.add.reduceat(loss, starts) / sizes, np.add.reduceat(score, starts) / sizes
        )
    return Appraisal(
        np.add.reduceat(loss * weight, starts), np.add.reduceat(score * weight, starts)
    )
