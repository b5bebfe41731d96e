"""Rows of many clients in one array: a client is a span of it, never a separate object.

`RaggedRows` holds rows that belong to clients; `SharedRows` one set of rows that every client sees
in its own mix of labels. So 100,000 clients are two arrays, arrays may be memory-mapped, and a
thousand clients can test on a hundred thousand shared rows without a list of them each.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..base.arrays import Float64, Int64, UInt64
from ..base.errors import MusterError
from ..base.lazy import torch
from ..base.rng import permutations, ramp

if TYPE_CHECKING:
    from torch import Tensor

Pair = tuple[ArrayLike, ArrayLike]

CHECKED = 2**22  # numbers checked together: bounded memory


def features(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return rows as a model takes them: floats in the run's dtype, bytes as pixels in [0, 1],
    integers as tokens.

    Data keeps its stored type until it is used, so uint8 images cost a byte a pixel and a float32
    table is never copied whole.
    """
    if x.dtype == torch.uint8:
        return x.to(dtype).div_(255)
    return x.to(dtype) if x.is_floating_point() else x


@dataclass(frozen=True)
class RowLists:
    """Lists of row numbers: list i is `rows[offsets[i]:offsets[i + 1]]`."""

    offsets: Int64
    rows: Int64

    @cached_property
    def sizes(self) -> Int64:
        """Rows of each list."""
        return np.diff(self.offsets)

    def base(self, positions: Int64) -> Int64:
        """Row numbers at these positions."""
        return self.rows[positions]

    def pick(self, which: Int64) -> RowLists:
        """Some of the lists."""
        sizes = self.sizes[which]
        at = np.repeat(self.offsets[which], sizes) + ramp(sizes)
        return RowLists(_ends(sizes), self.rows[at])

    def split_folds(self, folds: int, key: UInt64) -> RowLists:
        """Return each list as `folds` disjoint folds, nearly equal in size: fold f of list i is
        list `i folds + f` of the result.

        Args:
            key: of each list, from which its shuffle is drawn
        """
        shuffle, _ = permutations(key, self.sizes)
        fold = np.repeat(np.arange(len(self.sizes)) * folds, self.sizes) + ramp(self.sizes) % folds
        at = np.repeat(self.offsets[:-1], self.sizes) + shuffle
        counts = np.bincount(fold, minlength=len(self.sizes) * folds)
        return RowLists(_ends(counts), self.rows[at[np.argsort(fold, kind="stable")]])

    def merge(self, groups: Int64) -> RowLists:
        """Return the lists of each row of `groups`, [list, group member], end to end as one."""
        sizes = self.sizes[groups].sum(1)
        return RowLists(_ends(sizes), self.pick(groups.ravel()).rows)


def _ends(sizes: Int64) -> Int64:
    """Return the offsets of lists of these sizes."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


@dataclass(frozen=True)
class RaggedRows:
    """Rows of many clients in one array: client k owns `offsets[k]:offsets[k + 1]`.

    Attributes:
        x: features, [row, ...]
        y: targets, [row] or [row, ...]
        offsets: first position of each client, and the end, [client + 1]
        rows: row numbers at the positions, so that clients can share rows; None: the positions
            themselves
        weight: weight of each position in its client's mean loss and score (those of a client sum
            to 1); None: rows of a client weigh the same
        content: row hashes (`federation.row_hashes`), where features depend on other rows; None:
            hashes of `x` and `y`
    """

    x: Tensor
    y: Tensor
    offsets: Int64
    rows: Int64 | None = None
    weight: Float64 | None = None
    content: UInt64 | None = None

    @cached_property
    def sizes(self) -> Int64:
        """Number of rows of each client, D_k."""
        return np.diff(self.offsets)

    def positions(self, clients: Int64) -> Int64:
        """Return the positions of these clients' rows, end to end in the given order."""
        sizes = self.sizes[clients]
        return np.repeat(self.offsets[clients], sizes) + ramp(sizes)

    def base(self, positions: Int64) -> Int64:
        """Row numbers in `x` and `y` at these positions."""
        return positions if self.rows is None else self.rows[positions]

    def lists(self, clients: Int64) -> RowLists:
        """Return these clients' rows as lists of row numbers."""
        return RowLists(_ends(self.sizes[clients]), self.base(self.positions(clients)))

    def restrict(self, rows: RowLists) -> RaggedRows:
        """Return these rows with other owners: client i has list i, every row weighing the same."""
        return RaggedRows(self.x, self.y, rows.offsets, rows.rows)

    def client(self, k: int) -> tuple[Tensor, Tensor]:
        """Return one client's rows, as stored."""
        at = torch.from_numpy(self.base(self.positions(np.array([k]))))
        return self.x[at], self.y[at]

    def row_weights(self, positions: Int64) -> Float64 | None:
        """Return the weights of the rows at these positions; None: they weigh the same."""
        return None if self.weight is None else self.weight[positions]

    def label_shares(self, classes: int) -> Float64:
        """Return the share of each class in each client's rows, [client, class]; a client's sum
        to 1, those of one without rows to 0."""
        at = np.arange(self.offsets[-1])
        who = np.repeat(np.arange(len(self.sizes)), self.sizes)
        y = self.y.cpu().numpy()[self.base(at)]
        flat = np.bincount(who * classes + y, self.row_weights(at), len(self.sizes) * classes)
        shares: Float64 = flat.reshape(-1, classes).astype(np.float64)
        total: Float64 = shares.sum(1, keepdims=True)
        return shares / np.where(total > 0, total, 1.0)

    @property
    def nbytes(self) -> int:
        """Bytes of the stored rows, features and labels."""
        return int(sum(t.numel() * t.element_size() for t in (self.x, self.y)))


@dataclass(frozen=True)
class SharedRows(RaggedRows):
    """One set of rows, seen by each client in its own mix of labels.

    Attributes:
        mix: [client, label]: weight of each label for each client; a client's sum to 1
        codes: [row]: the label of each row

    Client k sees the rows of every label it has in its mix, and a row of label c counts
    `mix[k, c] / count[c]`. Rows and weights of a client are computed on demand;
    its mean over them is the mix's mean over the labels' means, for which no list is needed.
    """

    mix: Float64 = field(default_factory=lambda: np.empty((0, 0)))
    codes: Int64 = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of(cls, x: Tensor, y: Tensor, mix: Float64, codes: Int64) -> SharedRows:
        """Build rows that clients share, each with its mix."""
        count = np.bincount(codes, minlength=mix.shape[1])
        offsets = np.concatenate([[0], np.cumsum((mix > 0) @ count)]).astype(np.int64)
        return cls(x, y, offsets, mix=mix, codes=codes)

    def label_shares(self, classes: int) -> Float64:
        """Return the share of each class for each client: its mix."""
        label = np.zeros(self.mix.shape[1], np.int64)
        label[self.codes] = self.y.cpu().numpy()
        shares = np.zeros((len(self.mix), classes))
        np.add.at(shares.T, label, (self.mix * (self.count > 0)).T)
        return shares

    @cached_property
    def count(self) -> Int64:
        """Number of rows of each label."""
        return np.asarray(np.bincount(self.codes, minlength=self.mix.shape[1]), np.int64)

    @cached_property
    def _by_label(self) -> Int64:
        return np.argsort(self.codes, kind="stable")

    @cached_property
    def _spans(self) -> tuple[Int64, Int64, Float64]:
        """Spans of labels, client after client: first position, first row among the rows by label,
        and weight of a row."""
        k, c = np.nonzero(self.mix > 0)
        lengths = self.count[c]
        first = np.cumsum(self.count) - self.count
        return np.cumsum(lengths) - lengths, first[c], self.mix[k, c] / np.maximum(lengths, 1)

    def _span_of(self, positions: Int64) -> Int64:
        starts, _, _ = self._spans
        return np.asarray(np.searchsorted(starts, positions, side="right") - 1, np.int64)

    def base(self, positions: Int64) -> Int64:
        """Row numbers in `x` and `y` at these positions."""
        starts, first, _ = self._spans
        span = self._span_of(positions)
        rows: Int64 = self._by_label[first[span] + positions - starts[span]]
        return rows

    def row_weights(self, positions: Int64) -> Float64:
        """Return the weights of the rows at these positions."""
        return self._spans[2][self._span_of(positions)]

    def rows_of_labels(self, labels: Int64) -> Int64:
        """Return the rows that have one of these labels, label after label."""
        first = np.cumsum(self.count) - self.count
        lengths = self.count[labels]
        return self._by_label[np.repeat(first[labels], lengths) + ramp(lengths)]


def as_tensor(a: Any, what: str) -> Tensor:
    """Return an array as a tensor without a copy; a tensor as it is."""
    if isinstance(a, torch.Tensor):
        return a.detach()
    try:
        array = np.asarray(a)
    except ValueError:
        raise MusterError(f"{what} is ragged; give numbers in a rectangular array") from None
    if array.dtype == object or array.dtype.kind not in "fiub":
        raise MusterError(f"{what} has type {array.dtype}; give numbers in a rectangular array")
    if array.dtype.byteorder not in "=|" or any(s < 0 for s in array.strides):
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    with warnings.catch_warnings():
        # Read-only memory maps are fine: nothing here writes to data.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def as_targets(y: Any, what: str) -> Tensor:
    """Return labels (whole numbers from 0) as int64; other targets as they are."""
    targets = as_tensor(y, what)
    if targets.is_floating_point() and not bool(torch.isfinite(targets).all()):
        raise MusterError(f"{what} holds nan or inf; targets must be finite")
    if targets.is_floating_point() and (targets.dim() > 1 or not are_labels(targets)):
        return targets
    return targets.to(torch.int64)


def are_labels(y: Tensor) -> bool:
    """Return True if targets are classes: one whole number from 0 for each row."""
    return y.dim() == 1 and bool(((y == y.round()) & (y >= 0)).all())


def from_pairs(pairs: Sequence[Pair], split: str) -> RaggedRows:
    """Join the (x, y) of every client into one ragged array, checking each."""
    xs: list[Tensor] = []
    ys: list[Tensor] = []
    for k, pair in enumerate(pairs):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise MusterError(f"{split}[{k}] must be a pair (x, y); got {type(pair).__name__}")
        if isinstance(pair[0], (tuple, dict)) and not _is_rows(pair[0]):
            raise MusterError(
                f"{split}[{k}] x: several inputs; join them to one array with "
                "muster.models.MultiInput, which also takes it apart for the module"
            )
        x = as_tensor(pair[0], f"{split}[{k}] x")
        y = as_targets(pair[1], f"{split}[{k}] y")
        if y.dim() < 1 or x.dim() < 1 or len(x) != len(y):
            raise MusterError(
                f"{split}[{k}]: x has shape {tuple(x.shape)} and y {tuple(y.shape)}; "
                "give one label for each row of x"
            )
        if ys and y.shape[1:] != ys[0].shape[1:]:
            raise MusterError(
                f"{split}[{k}]: targets have shape {tuple(y.shape[1:])}, those of client 0 "
                f"{tuple(ys[0].shape[1:])}; every client needs the same targets"
            )
        if x.dim() < 2:
            raise MusterError(
                f"{split}[{k}]: x has shape {tuple(x.shape)}; give rows of features, such as "
                f"({len(x)}, 1)"
            )
        if xs and x.shape[1:] != xs[0].shape[1:]:
            raise MusterError(
                f"{split}[{k}]: rows have shape {tuple(x.shape[1:])}, those of client 0 "
                f"{tuple(xs[0].shape[1:])}; every client needs the same features"
            )
        xs.append(x)
        ys.append(y)
    if not xs:
        raise MusterError(f"{split} is empty; give at least one client's (x, y)")
    offsets = np.concatenate([[0], np.cumsum([len(y) for y in ys])]).astype(np.int64)
    return RaggedRows(_concat(xs), _concat(ys), offsets)


def _is_rows(x: tuple[Any, ...] | dict[str, Any]) -> bool:
    """Return True if a tuple holds rows, not several inputs."""
    return isinstance(x, tuple) and not any(np.ndim(part) > 1 for part in x)


def _concat(arrays: Sequence[Tensor]) -> Tensor:
    """Return one array after another, in a type that holds them all."""
    dtype = arrays[0].dtype
    for a in arrays:
        dtype = torch.promote_types(dtype, a.dtype)
    return torch.cat([a.to(dtype) for a in arrays])


def check(data: RaggedRows, split: str, classes: int | None) -> None:
    """Refuse empty clients, values that are not finite, and labels out of range, and name
    the client.

    Args:
        classes: number of classes; 0: targets are any numbers; None: labels from 0
    """
    empty = np.flatnonzero(data.sizes == 0)
    if len(empty):
        raise MusterError(f"{split}: client {empty[0]} is empty; every client needs a row")

    def place(row: int) -> str:
        if isinstance(data, SharedRows):
            return f"row {row}"
        at = row if data.rows is None else int(np.flatnonzero(data.rows == row)[0])
        k = int(np.searchsorted(data.offsets, at, side="right")) - 1
        return f"client {k}, row {at - int(data.offsets[k])}"

    used = None
    if data.rows is not None:
        # Rows in use, in order: marked rather than sorted, as clients may share a test set.
        mark = np.zeros(len(data.y), np.bool_)
        mark[data.rows] = True
        used = torch.from_numpy(np.flatnonzero(mark))
    y = data.y if used is None else data.y[used]
    if classes == 0 and y.is_floating_point():
        finite = torch.isfinite(y).flatten(1).all(1) if y.dim() > 1 else torch.isfinite(y)
        if not bool(finite.all()):
            first = int((~finite).nonzero()[0, 0])
            row = first if used is None else int(used[first])
            raise MusterError(
                f"{split}: the target of {place(row)} is not finite; clean or drop that row"
            )
    if classes and bool((bad := (y < 0) | (y >= classes)).any()):
        first = int(bad.nonzero()[0, 0])
        row = first if used is None else int(used[first])
        raise MusterError(
            f"{split}: label {int(y[first])} of {place(row)} is out of range; allowed: 0 to "
            f"{classes - 1}"
        )
    if not data.x.is_floating_point():
        return
    together = max(1, CHECKED // max(1, data.x[:1].numel()))
    for start in range(0, len(y), together):
        span = slice(start, start + together)
        part = (data.x[span] if used is None else data.x[used[span]]).flatten(1)
        if not bool(torch.isfinite(part).all()):
            i, j = (int(v) for v in (~torch.isfinite(part)).nonzero()[0])
            row = start + i if used is None else int(used[start + i])
            raise MusterError(
                f"{split}: {place(row)}, column {j} is {float(part[i, j])}; "
                "features must be finite: clean or drop that row"
            )
