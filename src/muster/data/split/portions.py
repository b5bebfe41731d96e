"""Portions: the rows of every client as two flat arrays, which is what a partition returns.

`Portions` reads like a list of arrays, one of row numbers for each client, but holds no object for
each: 100,000 clients are `rows` and `offsets`, and a client's part is a view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from ...base import rng
from ...base.arrays import Int64
from ...base.checks import check_whole, require
from ...base.errors import plural


@dataclass(frozen=True, eq=False, repr=False)
class Portions(Sequence[Int64]):
    """Row numbers of all clients end to end: client k has `rows[offsets[k]:offsets[k + 1]]`.

    >>> parts = Portions.of([np.array([4, 0]), np.array([2])])
    >>> len(parts), parts[0], parts.sizes
    (2, array([4, 0]), array([2, 1]))
    """

    rows: Int64
    offsets: Int64

    @classmethod
    def of(cls, parts: Sequence[Int64]) -> Portions:
        """Convert any sequence of row numbers, one array for each client."""
        if isinstance(parts, Portions):
            return parts
        if not len(parts):
            return cls.cut(np.empty(0, np.int64), np.empty(0, np.int64))
        sizes = np.fromiter(map(len, parts), np.int64, len(parts))
        return cls.cut(np.concatenate(parts).astype(np.int64, copy=False), sizes)

    @classmethod
    def cut(cls, rows: Int64, sizes: Int64) -> Portions:
        """Cut rows that lie client after client into parts of these sizes."""
        return cls(rows, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))

    @property
    def sizes(self) -> Int64:
        """The number of rows of each client."""
        return np.diff(self.offsets)

    def take(self, clients: Int64) -> Portions:
        """Return the parts of these clients, in this order."""
        sizes = self.sizes[clients]
        return Portions.cut(
            self.rows[np.repeat(self.offsets[clients], sizes) + rng.ramp(sizes)], sizes
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, k: int) -> Int64: ...
    @overload
    def __getitem__(self, k: slice) -> Portions: ...
    def __getitem__(self, k: int | slice) -> Int64 | Portions:
        if isinstance(k, slice):
            return self.take(np.arange(*k.indices(len(self))))
        if not -len(self) <= k < len(self):
            raise IndexError(f"client {k} of {len(self)}")
        k %= len(self)
        return self.rows[self.offsets[k] : self.offsets[k + 1]]

    def __repr__(self) -> str:
        return f"Portions({plural(len(self), 'client')}, {plural(len(self.rows), 'row')})"


def check_split(y: Int64, clients: int) -> None:
    """Refuse a split that must leave a client without rows."""
    check_whole("clients", clients)
    require(clients <= len(y), "clients", clients, f"at most one per row, so {len(y)}")


def sort_by_class(y: Int64, draw: np.random.Generator) -> tuple[Int64, Int64]:
    """Return all row numbers by label, shuffled within a label, and the count of each label."""
    rows = draw.permutation(len(y))
    _, counts = np.unique(y, return_counts=True)
    return rows[np.argsort(y[rows], kind="stable")], counts


def deal(rows: Int64, counts: Int64, wanted: Int64) -> Portions:
    """Deal rows that lie class after class (`counts` of each) by numbers `wanted[class, client]`.

    Each class is dealt from its first row on, client after client; what nobody wants is unused.
    """
    taken = wanted.sum(axis=1)
    used = np.repeat(np.cumsum(counts) - counts, taken) + rng.ramp(taken)
    owner = np.repeat(np.tile(np.arange(wanted.shape[1]), len(counts)), wanted.ravel())
    return Portions.cut(rows[used[np.argsort(owner, kind="stable")]], wanted.sum(axis=0))
