"""Keyed randomness: every draw is a function of (seed, purpose, round, client), nothing else.

There is no global generator. A key is a 64-bit hash of those four values, so a draw does not
depend on the engine, the number of processes, the order of clients, or whether the run was
interrupted and resumed. Keys of many clients are computed at once, over a leading client axis.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Float64, Int64, UInt64
from .checks import check_whole
from .errors import MusterError
from .lazy import torch

MOST = 2**63 - 1  # the largest seed
LAST = np.uint64(2**64 - 1)  # the largest word


def _mix(z: UInt64) -> UInt64:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection that spreads every bit."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def fold(key: UInt64, values: ArrayLike) -> UInt64:
    """Fold integers into keys, with numpy broadcasting: a new key for each combination."""
    with np.errstate(over="ignore"):
        v = np.asarray(values).astype(np.uint64)
        return _mix(key ^ _mix(v + np.uint64(0x9E3779B97F4A7C15)))


def keys(seed: int, purpose: str, round: int = 0, client: ArrayLike = 0) -> UInt64:
    """Return the key of (seed, purpose, round, client); `client` may be an array.

    >>> keys(0, "batches", 3, [1, 2]).shape
    (2,)
    >>> bool(keys(0, "batches", 3, 1) == keys(0, "invite", 3, 1))
    False
    """
    return fold(fold(_purpose_key(int(seed), purpose), round), client)


@lru_cache
def _purpose_key(seed: int, purpose: str) -> UInt64:
    """Return the key of (seed, purpose), which all rounds of a run share."""
    check_whole("seed", seed, 0, MOST)
    return fold(fold(np.zeros((), np.uint64), seed), zlib.crc32(purpose.encode()))


def generator(seed: int, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
    """Return a numpy generator for one key."""
    return np.random.Generator(np.random.Philox(key=int(keys(seed, purpose, round, client))))


def torch_seed(key: UInt64) -> int:
    """Return a seed for torch's generators, which take 63 bits of a key's 64."""
    return int(key) >> 1


def seed_torch(seed: int, device: str = "cpu") -> None:
    """Seed torch's global random numbers, on the processor and on this kind of device.
    `torch.manual_seed` would seed those that nothing runs on too, which takes milliseconds."""
    torch.default_generator.manual_seed(seed)
    if device == "cuda":
        torch.cuda.manual_seed_all(seed)


def uniform(key: UInt64) -> Float64:
    """Return one number in [0, 1) for each key."""
    return (fold(key, 0) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutations(key: UInt64, size: ArrayLike) -> tuple[Int64, Int64]:
    """Draw a uniform permutation of `range(size[i])` for each key, end to end in one array.

    Returns `(values, offsets)`: permutation i is `values[offsets[i]:offsets[i + 1]]`.

    Each position gets a hash of (key, position) whose low bits are replaced by the position
    itself; sorting these 64-bit words sorts positions by their hash, with no separate argsort.
    """
    sizes = np.asarray(size, np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    values = np.empty(int(offsets[-1]), np.int64)
    # Rows of similar length are sorted together, padded to a power of two.
    width = np.left_shift(1, np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64))
    for w in set(width.tolist()):
        rows = np.flatnonzero(width == w)
        lengths, low = sizes[rows], np.uint64(w - 1)
        position = np.arange(w, dtype=np.uint64)
        words = (fold(key[rows, None], position[None, :]) & ~low) | position
        # Padding sorts last: all ones, which no real word exceeds. Only the tail can be padding.
        short = int(lengths.min())
        padding = np.arange(short, w)[None, :] >= lengths[:, None]
        words[:, short:][padding] = LAST
        words.sort(axis=1)
        drawn = (words & low).astype(np.int64)
        if short == int(lengths.max()):
            target = offsets[rows, None] + np.arange(short)
            values[target] = drawn[:, :short]
        else:
            keep = np.arange(w)[None, :] < lengths[:, None]
            values[np.repeat(offsets[rows], lengths) + ramp(lengths)] = drawn[keep]
    return values, offsets


def ramp(lengths: Int64) -> Int64:
    """`[0..lengths[0]), [0..lengths[1]), ...` end to end: positions within ragged rows.

    >>> ramp(np.array([2, 3]))
    array([0, 1, 0, 1, 2])
    """
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def as_seeds(seeds: int | Iterable[int]) -> tuple[int, ...]:
    """Return the seeds of a comparison, from a count or a list."""
    if not isinstance(seeds, Iterable):
        check_whole("seeds", seeds)
        return tuple(range(seeds))
    every = tuple(seeds)
    for seed in every:
        check_whole("seeds", seed, 0, MOST)
    if not every or len(set(every)) < len(every):
        raise MusterError(f"seeds: {list(every)}; give a count, or different seeds")
    return tuple(int(seed) for seed in every)
