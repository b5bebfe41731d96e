"""Noise: whole numbers with the discrete Gaussian distribution, from the operating system.

`P(x) = exp(-x^2 / (2 s^2)) / sum_y exp(-y^2 / (2 s^2))` for whole x and a whole deviation s.

Drawn by rejection (Karney 2016, algorithm D, for a whole deviation): k from 0 with a chance
proportional to `exp(-k^2 / 2)`, j uniform from 0 to s - 1, a sign; `k s + j` with the sign is
accepted with the chance `exp(-x (2 k + x) / 2)`, `x = j / s`. All numbers are whole but that last
chance and those of k, whose relative error is that of one float64: so every x is drawn with its
probability to 1e-15 of it, in the tails too. No sum of contributions changes which numbers can
come out, as with rounded floats.

Nobody but this module draws noise.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ..base import rng
from ..base.arrays import Bool, Float64, Int64, UInt64
from ..base.checks import check_whole
from .fixed_point import Vectors

Words: TypeAlias = Callable[[int], UInt64]  # so many words of 64 random bits
MOST_K = 13  # beyond 13 deviations nothing is drawn: a chance of 1e-38
MOST = 2**40  # deviations: k s + j and the words' remainder stay within 63 bits


def system_words(n: int) -> UInt64:
    """Return words from the operating system's source of secrets."""
    return np.frombuffer(os.urandom(8 * n), np.uint64)


def seeded_words(seed: int, t: int) -> Words:
    """Return words that repeat, of a run's seed and round: for simulations, not private."""
    draw = rng.generator(seed, "privacy noise", t)
    return lambda n: draw.integers(0, 2**64, n, np.uint64)


def draw_noise(size: int, deviation: int, words: Words = system_words) -> Int64:
    """Return so many independent draws of the discrete Gaussian with this deviation."""
    check_whole("deviation", deviation, 1, MOST)
    drawn = np.empty(size, np.int64)
    missing = np.arange(size)
    while len(missing):
        value, accepted = _propose(len(missing), deviation, words)
        drawn[missing[accepted]] = value[accepted]
        missing = missing[~accepted]
    return drawn


def draw_vectors(shape: tuple[int, ...], deviation: int, words: Words = system_words) -> Vectors:
    """Return draws of this shape as whole numbers modulo 2^32; zeros without a deviation."""
    if deviation == 0:
        return np.zeros(shape, np.uint32)
    drawn = draw_noise(math.prod(shape), deviation, words)
    return drawn.astype(np.uint32).reshape(shape)


def _propose(n: int, deviation: int, words: Words) -> tuple[Int64, Bool]:
    """Return proposals, and which of them are accepted."""
    k = _draw_shell(n, words)
    word = words(n)
    whole = word <= np.uint64(2**64 - 1 - 2**64 % deviation)  # each remainder as often
    j = (word % np.uint64(deviation)).astype(np.int64)
    x = j / deviation
    negative = words(n) < np.uint64(2**63)
    value = k * deviation + j
    accepted = whole & (_uniform(words(n), words(n)) < np.exp(-x * (2 * k + x) / 2))
    accepted &= ~(negative & (value == 0))  # 0 has one sign
    return np.where(negative, -value, value), accepted


def _draw_shell(n: int, words: Words) -> Int64:
    """Return k with a chance proportional to `exp(-k^2 / 2)`."""
    chance = np.exp(-(np.arange(MOST_K + 1) ** 2) / 2.0)
    above = np.cumsum(chance[::-1])[::-1][1:] / math.fsum(chance)  # that k is at least 1, 2, ...
    u = _uniform(words(n), words(n))
    return np.asarray((u[:, None] < above).sum(1), np.int64)


def _uniform(high: UInt64, low: UInt64) -> Float64:
    """Return numbers in (0, 1), of 128 bits: a small one has all the digits of a float."""
    return high * 2.0**-64 + (low + 0.5) * 2.0**-128
