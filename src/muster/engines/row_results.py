"""Results of rows under a model, and each client's loss and scores from its own rows.

Losses and scores of rows are averaged over each client's rows. Scores of all rows together (AUC),
and losses that tie rows together (Cox's), are taken from a client's outputs once they are all
there.

Clients' own models are measured in blocks of rows (`row_blocks`): clients with separate rows side
by side, padded to the longest of a few of similar size; clients that share rows on one label's rows
at a time, which are then prepared for the model once for all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Bool, Float64, Int64
from ..base.lazy import torch
from ..federation.ragged_rows import RaggedRows, SharedRows
from ..protocol import Appraisal
from ..tasks.task import Scoring, StandardTask, Task, averages_rows
from .compute import Tables

if TYPE_CHECKING:
    from torch import Tensor


Split = Literal["train", "test"]

CHUNK = 2**21  # numbers of input looked at together: a few MB, so that they stay in cache


class RowResults:
    """The results of n rows: their loss, their scores and, where something is computed from all
    rows together, the outputs themselves."""

    def __init__(self, task: Task, scoring: Scoring, n: int, most: float = np.inf) -> None:
        self.task, self.scoring, self.n, self.most = task, scoring, n, most
        self.loss = np.empty(n)
        self.rows = np.empty((len(scoring.row_scores), n))
        self.alone = averages_rows(task)
        self.z: NDArray[Any] | None = None
        self._lock = threading.Lock()

    def put(self, at: slice | Int64, z: Tensor, y: Tensor, counts: Bool | None = None) -> None:
        """Store the results of a model's outputs `z` for the rows at these places; `counts` is
        False for padding."""

        def flat(values: NDArray[Any]) -> NDArray[Any]:
            return values if counts is None else values[counts]

        losses = [self.task.loss(z, y)] if self.alone else []
        fetched = fetch([*losses, *(of(z, y) for _, of in self.scoring.row_scores)])
        if self.alone:
            loss = flat(fetched.pop(0))
            bounded = self.most < np.inf
            self.loss[at] = (
                np.clip(np.nan_to_num(loss, nan=self.most), 0, self.most) if bounded else loss
            )
        for mine, values in zip(self.rows, fetched, strict=True):
            mine[at] = flat(values)
        if self.alone and not self.scoring.set_scores:
            return
        outputs = flat(z.cpu().numpy())
        with self._lock:
            if self.z is None:
                self.z = np.empty((self.n, *outputs.shape[1:]), outputs.dtype)
        self.z[at] = outputs

    def take(self, at: Int64) -> Tables:
        """Return the results of the rows at these places."""
        tables: Tables = {
            ("rows",): torch.from_numpy(np.stack([v[at] for v in (*self.rows, self.loss)], 1))
        }
        if self.z is not None:
            tables["z",] = torch.from_numpy(self.z[at])
        return tables

    def give(self, at: Int64, tables: Tables) -> None:
        """Fill these places from another rank."""
        values = tables["rows",].numpy().T
        self.rows[:, at], self.loss[at] = values[:-1], values[-1]
        if ("z",) in tables:
            outputs = tables["z",].numpy()
            if self.z is None:
                self.z = np.empty((self.n, *outputs.shape[1:]), outputs.dtype)
            self.z[at] = outputs

    def by_client(
        self, data: RaggedRows, clients: Int64, at: Int64, place: Int64 | None = None
    ) -> Appraisal:
        """Return each client's loss and scores. `at` are the positions of their rows, end to end;
        `place` where each was stored, unless in that order."""
        sizes = data.sizes[clients]
        weight = data.row_weights(at)

        def there(values: NDArray[Any]) -> NDArray[Any]:
            return values if place is None else values[place]

        loss = _means(there(self.loss), sizes, weight)
        found = dict(enumerate(self.scoring.scores))
        scores: dict[int, Float64] = {
            i: self.scoring.from_mean(i, _means(there(values), sizes, weight))
            for (i, _), values in zip(self.scoring.row_scores, self.rows, strict=True)
        }
        if not self.alone or self.scoring.set_scores:
            scores |= {i: np.full(len(clients), np.nan) for i, _ in self.scoring.set_scores}
            if self.z is None:  # nobody has rows
                self.z = np.empty((0, 1))
            z, y = there(self.z), data.y[torch.from_numpy(data.base(at)).to(data.y.device)].cpu()
            ends = np.cumsum(sizes)
            for k, (a, b) in enumerate(zip(ends - sizes, ends, strict=True)):
                w = np.full(b - a, 1.0 / (b - a)) if weight is None else weight[a:b]
                for i, of in self.scoring.set_scores:
                    scores[i][k] = of(z[a:b], y[a:b].numpy(), w)
                if not self.alone:
                    loss[k] = _together(self.task, z[a:b], y[a:b], w)
        more = {found[i].name: values for i, values in sorted(scores.items()) if i > 0}
        return Appraisal(loss, scores[0], more)


def fetch(values: list[Tensor]) -> list[NDArray[Any]]:
    """Return numbers of rows as arrays: from a device in one copy, since each is waited for."""
    if not values or values[0].device.type == "cpu":
        return [t.numpy() for t in values]
    kind = next((t.dtype for t in values if t.is_floating_point()), values[0].dtype)
    return [*torch.stack([t.to(kind) for t in values]).cpu().numpy()]


def _together(task: Task, z: NDArray[Any], y: Tensor, w: Float64) -> float:
    """Return the loss of rows that are tied together; NaN where they have none."""
    assert isinstance(task, StandardTask), "only our own tasks tie rows together"
    if task.has_no_loss(y):
        return float("nan")
    with torch.no_grad():
        outputs = torch.from_numpy(z)
        return float(task.set_loss(outputs, y, torch.from_numpy(w).to(outputs.dtype)))


def _means(values: Float64, sizes: Int64, weight: Float64 | None) -> Float64:
    """Return each client's mean over its rows (weighted, where rows have weights), in float64."""
    starts = np.cumsum(sizes) - sizes
    if weight is None:
        return np.asarray(np.add.reduceat(values, starts) / sizes)
    return np.asarray(np.add.reduceat(values * weight, starts))


class RowSelection:
    """The rows of some clients, each measured once, and each client's results.

    Attributes:
        rows: which rows of the data; None: the first n as they lie
    """

    def __init__(
        self,
        data: RaggedRows,
        clients: Int64,
        split: Split,
        task: Task,
        scoring: Scoring,
        most: float = np.inf,
    ) -> None:
        self.data, self.clients, self.split = data, clients, split
        self.rows: Int64 | None
        if isinstance(data, SharedRows):
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
        self.results = RowResults(task, scoring, self.n, most)

    def by_client(self) -> Appraisal:
        """Return each client's loss and scores on its rows, weighted where rows have weights."""
        if isinstance(self.data, SharedRows):
            results = self.results
            if results.alone and not results.scoring.set_scores:
                return self._by_mix(self.data)
            assert self.rows is not None, "shared rows are listed"
            place = np.zeros(len(self.data.y), np.int64)
            place[self.rows] = np.arange(self.n)
            at = self.data.positions(self.clients)
            return results.by_client(self.data, self.clients, at, place[self.data.base(at)])
        listed = self.data.base(self.at) if self.shared else None
        return self.results.by_client(self.data, self.clients, self.at, listed)

    def _by_mix(self, data: SharedRows) -> Appraisal:
        """Return each client's mix of the labels' means."""
        mix = data.mix[self.clients]
        count = data.count[self.labels]
        starts = np.cumsum(count) - count
        scoring = self.results.scoring

        def mix_labels(values: Float64) -> Float64:
            mean = np.zeros(mix.shape[1])
            mean[self.labels] = np.add.reduceat(values, starts) / count
            # Summed over all labels, seen or not, so that it does not depend on who else is asked.
            return np.asarray((mix * mean).sum(axis=1))

        scores = [
            scoring.from_mean(i, mix_labels(values))
            for (i, _), values in zip(scoring.row_scores, self.results.rows, strict=True)
        ]
        more = dict(zip(scoring.names[1:], scores[1:], strict=True))
        return Appraisal(mix_labels(self.results.loss), scores[0], more)


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
