"""Row-level privacy in a client (DP-SGD, Abadi et al. 2016): the noise of its gradients and losses.

A client's rows meet its training in one place only, the gradient of a batch. There each row's
gradient is shortened to C, the sum is released with Normal(0, (z C)^2 I), and divided by a public
number of rows. Whatever follows (solver, optimizer, the server, other clients) computes from
released gradients and public numbers, which costs nothing more. A client's loss F_k is released in
the same way, each row counting up to B.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..base import rng
from ..base.arrays import Float64, Int64
from .noise import Words, draw_noise, system_words

# Rows are shortened to a little less than C: by more than the rounding of float32 sums, and that of
# sums to whole numbers, can add.
MARGIN = 1.0 - 1e-3
UNITS = 2**30  # whole numbers to a deviation of the noise


@dataclass(frozen=True)
class RowNoise:
    """The noise that protects each row of every client.

    Attributes:
        clip: C, the largest norm of a row's gradient
        noise: z of each client: the deviation of a gradient sum's noise, in units of C
        most_loss: B, the largest loss of a row that counts in a released F_k
        loss_noise: of each client: the deviation of a loss sum's noise, in units of B
        seeded: True: noise and samples come from the run's seed; they repeat, and protect nobody
    """

    clip: float
    noise: Float64
    most_loss: float
    loss_noise: Float64
    seeded: bool = False

    def release_losses(
        self, mean: Float64, rows: Int64, clients: Int64, source: NoiseSource
    ) -> Float64:
        """Return clients' mean losses, of rows that count up to B each, with noise of deviation
        `loss_noise B / rows`; and back within 0 and B, as any such mean is."""
        deviation = self.loss_noise[clients] * self.most_loss / rows
        value = release(mean[:, None], deviation, source)[:, 0]
        return np.asarray(np.clip(value, 0.0, self.most_loss), np.float64)


class NoiseSource:
    """Noise for some clients: from the operating system or, where a simulation asks for it, from a
    stream of each client's own key."""

    def __init__(self, seeded: bool, purpose: str, seed: int, t: int, ids: Int64) -> None:
        self.streams: list[Words] | None = None
        if seeded:
            self.streams = [_stream(seed, purpose, t, int(k)) for k in ids]

    def draw(self, clients: int, size: int) -> Int64:
        """Return `[clients, size]` whole numbers of deviation `UNITS` for the first clients."""
        if self.streams is None:
            return draw_noise(clients * size, UNITS, system_words).reshape(clients, size)
        drawn = [draw_noise(size, UNITS, words) for words in self.streams[:clients]]
        return np.stack(drawn) if drawn else np.empty((0, size), np.int64)


def _stream(seed: int, purpose: str, t: int, client: int) -> Words:
    draw = rng.generator(seed, purpose, t, client)
    return lambda n: draw.integers(0, 2**64, n, np.uint64)


def release(values: Float64, deviation: Float64, source: NoiseSource) -> Float64:
    """Return `[client, size]` values with Gaussian noise of each client's deviation. Values and
    noise are whole numbers of a grid: the last bits of a float can tell more than its value does
    (Mironov 2012)."""
    step = deviation[:, None] / UNITS
    return np.asarray((np.rint(values / step) + source.draw(*values.shape)) * step, np.float64)
