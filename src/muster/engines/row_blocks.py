"""Blocks of rows in which clients measure their own models: the rows, and the clients together.

Clients with separate rows are measured side by side, padded to the longest of a few of similar
size. Clients that share rows are measured on one label's rows at a time, which are then prepared
for the model once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..base.arrays import Bool, Int64
from ..federation.ragged_rows import RaggedRows, SharedRows
from .engine import CHUNK


@dataclass(frozen=True)
class ClientGroup:
    """Clients measured together.

    Attributes:
        who: their places in the list of clients
        at: [client, row] where each row's result is stored
        counts: [client, row] True for rows, False for padding
    """

    who: Int64
    at: Int64
    counts: Bool


@dataclass(frozen=True)
class RowBlock:
    """Rows [client, row] of one group, or rows [row] that several groups use in turn."""

    rows: Int64
    groups: list[ClientGroup]


def row_blocks(data: RaggedRows, clients: Int64) -> Iterator[RowBlock]:
    """Yield every row of each of these clients; results are stored end to end in their order."""
    width = max(1, int(np.prod(data.x.shape[1:])))
    return (
        _by_label(data, clients, width)
        if isinstance(data, SharedRows)
        else _own(data, clients, width)
    )


def _own(data: RaggedRows, clients: Int64, width: int) -> Iterator[RowBlock]:
    """Yield clients of similar size together, as many as fit a chunk when padded to the longest."""
    sizes = data.sizes[clients]
    before = np.cumsum(sizes) - sizes
    order = np.argsort(sizes, kind="stable")
    start = 0
    while start < len(order):
        end = start + 1
        while (
            end < len(order)
            and (end + 1 - start) * int(sizes[order[end]]) * width <= CHUNK
            and sizes[order[end]] <= 2 * sizes[order[start]]
        ):
            end += 1
        who = order[start:end]
        n = sizes[who]
        slots = np.minimum(np.arange(n.max()), n[:, None] - 1)
        rows = data.base(data.offsets[clients[who], None] + slots)
        counts = np.arange(n.max()) < n[:, None]
        yield RowBlock(rows, [ClientGroup(who, before[who][:, None] + slots, counts)])
        start = end


def _by_label(data: SharedRows, clients: Int64, width: int) -> Iterator[RowBlock]:
    """Yield the rows of each label, a chunk at a time, and all clients that see them."""
    sees = data.mix[clients] > 0
    sizes = data.sizes[clients]
    lengths = np.where(sees, data.count, 0)
    # A client's results are stored label after label.
    first = (np.cumsum(sizes) - sizes)[:, None] + np.cumsum(lengths, 1) - lengths
    together = max(1, CHUNK // width)
    for label in np.flatnonzero(sees.any(0) & (data.count > 0)).tolist():
        rows, who = data.rows_of_labels(np.array([label])), np.flatnonzero(sees[:, label])
        for start in range(0, len(rows), together):
            part = rows[start : start + together]
            slots = start + np.arange(len(part))
            many = max(1, together // len(part))
            groups = [who[i : i + many] for i in range(0, len(who), many)]
            places = [first[some, label][:, None] + slots for some in groups]
            every = np.ones((many, len(part)), np.bool_)
            pairs = zip(groups, places, strict=True)
            yield RowBlock(part, [ClientGroup(some, at, every[: len(some)]) for some, at in pairs])
