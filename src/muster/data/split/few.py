"""Few: some clients with only some of the rows they would have.

Those for whom a federation is made may have little data of their own, while others have plenty.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...base import rng
from ...base.arrays import Int64
from ...base.checks import check_whole
from ...base.registry import part
from .partition import IID, Partition
from .portions import Portions


@part(Partition, "few")
@dataclass(frozen=True)
class Few:
    """Another partition whose first clients keep at most some of their rows, drawn at random; the
    rest of theirs is nobody's. Where `priority` is a number, the first are the priority clients.

    Attributes:
        of: who would get which rows
        first: how many clients keep few
        rows: how many rows each of them keeps

    >>> import numpy as np
    >>> parts = Few(of=IID(), first=2, rows=5).split(np.zeros(40, np.int64), clients=4, seed=0)
    >>> [len(part) for part in parts]
    [5, 5, 10, 10]
    """

    of: Partition = IID()
    first: int = 1
    rows: int = 20

    def __post_init__(self) -> None:
        check_whole("few first", self.first)
        check_whole("few rows", self.rows)

    def split(self, y: Int64, clients: int, seed: int) -> Portions:
        """The other partition's parts, the first of them cut short."""
        parts = self.of.split(y, clients, seed)
        check_whole("few first", self.first, 1, clients)
        draw = rng.generator(seed, "partition few")
        # The same order however many rows are kept: more rows are those and others.
        first = [draw.permutation(parts[k])[: self.rows] for k in range(self.first)]
        return Portions.of([*first, *(parts[k] for k in range(self.first, clients))])
