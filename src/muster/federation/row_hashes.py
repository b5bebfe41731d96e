"""What is in a row, as one number: rows of the same features and target have the same, in whatever
federation, seed or client they lie.

By it one tells whether two federations share rows, and chooses rows in a way that no seed changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..base import rng
from ..base.arrays import Bool, UInt64
from .ragged_rows import RaggedRows, SharedRows

if TYPE_CHECKING:
    from torch import Tensor

WORDS = 2**18  # 8-byte words that are hashed together: they stay in the cache


def hash_rows(x: NDArray[Any], y: NDArray[Any]) -> UInt64:
    """A 64-bit hash of each row. Zeros are alike whatever their sign, and so are missing numbers.

    >>> a, b, c = hashes(np.array([[1.0, 0.0], [1.0, -0.0], [1.0, 0.0]]), np.array([0, 0, 1]))
    >>> bool(a == b), bool(a == c)
    (True, False)
    """
    found = np.zeros(len(y), np.uint64)
    for values, what in ((x, "features"), (y, "target")):
        flat = values.reshape(len(values), -1)
        words = -(-flat.shape[1] * flat.itemsize // 8)
        key = rng.keys(0, f"content {what}", client=np.arange(words))
        together = max(1, WORDS // max(words, 1))
        for start in range(0, len(flat), together):
            some = as_words(flat[start : start + together], words)
            with np.errstate(over="ignore"):  # sums are meant to wrap
                found[start : start + together] += rng.fold(key, some).sum(1, dtype=np.uint64)
    return rng.fold(found, 0)


def as_words(rows: NDArray[Any], words: int) -> UInt64:
    """The bytes of rows as 8-byte words, the last one filled up with zeros."""
    if rows.dtype.kind == "f":
        rows = np.where(np.isnan(rows), np.array(np.nan, rows.dtype), rows + rows.dtype.type(0))
    room = np.zeros((len(rows), words * 8), np.uint8)
    room[:, : rows.shape[1] * rows.itemsize] = np.ascontiguousarray(rows).view(np.uint8)
    return room.view(np.uint64)


def get_hashes(data: RaggedRows) -> UInt64:
    """The hash of every row in `x` and `y`, whoever holds it."""
    if data.content is not None:
        return data.content
    return hash_rows(as_array(data.x), as_array(data.y))


def as_array(t: Tensor) -> NDArray[Any]:
    """A tensor's numbers, without copying them where they lie on the cpu."""
    array: NDArray[Any] = t.detach().cpu().numpy()
    return array


def get_held_hashes(data: RaggedRows) -> UInt64:
    """The hashes of the rows that some client holds, each once and in order."""
    found = get_hashes(data)
    if not isinstance(data, SharedRows):
        found = found[data.base(np.arange(data.offsets[-1]))]
    return np.unique(found)


def select_by_hash(found: UInt64, share: float) -> Bool:
    """About this share of rows, by what is in them alone: the same rows in every federation, and
    copies of a row together. A larger share has those of a smaller one among it."""
    return np.asarray(rng.uniform(found) < share)
