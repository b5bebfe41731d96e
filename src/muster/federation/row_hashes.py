"""Row hashes: rows of the same features and target have the same hash, in any federation, seed or
client.

They show whether two federations share rows, and select rows independently of the seed.
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

WORDS = 2**18  # 8-byte words hashed together: they fit in the cache


def hash_rows(x: NDArray[Any], y: NDArray[Any]) -> UInt64:
    """Return a 64-bit hash of each row; 0.0 and -0.0 hash the same way, and so do all NaN.

    >>> a, b, c = hash_rows(np.array([[1.0, 0.0], [1.0, -0.0], [1.0, 0.0]]), np.array([0, 0, 1]))
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
    """Return the bytes of rows as 8-byte words, the last one padded with zeros."""
    if rows.dtype.kind == "f":
        rows = np.where(np.isnan(rows), np.array(np.nan, rows.dtype), rows + rows.dtype.type(0))
    padded = np.zeros((len(rows), words * 8), np.uint8)
    padded[:, : rows.shape[1] * rows.itemsize] = np.ascontiguousarray(rows).view(np.uint8)
    return padded.view(np.uint64)


def get_hashes(data: RaggedRows) -> UInt64:
    """Return the hash of every row in `x` and `y`, whichever client holds it."""
    if data.content is not None:
        return data.content
    return hash_rows(as_array(data.x), as_array(data.y))


def as_array(t: Tensor) -> NDArray[Any]:
    """Return a tensor's numbers, without a copy where they are on the CPU."""
    array: NDArray[Any] = t.detach().cpu().numpy()
    return array


def get_held_hashes(data: RaggedRows) -> UInt64:
    """Return the hashes of the rows that some client holds, each once and in order."""
    found = get_hashes(data)
    if not isinstance(data, SharedRows):
        found = found[data.base(np.arange(data.offsets[-1]))]
    return np.unique(found)


def select_by_hash(found: UInt64, share: float) -> Bool:
    """Return a mask of about this share of rows, by their hashes alone: the same rows in every
    federation, copies of a row together. A larger share includes the rows of a smaller one."""
    return np.asarray(rng.uniform(found) < share)
