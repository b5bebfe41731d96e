"""SYNTH(alpha, beta) with noisy clients: generated data of adjustable alignment with priority.

Priority clients hold the synthetic data of Li et al. (2018), each drawn from its own linear model.
The other clients hold the priority clients' data with increasing noise (FedALIGN, supplement C.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...base import rng
from ...base.arrays import Float64, Int64
from ...base.checks import check_above, check_share, check_whole, require
from ...base.errors import unknown_name
from ...base.memory import require_memory
from ...base.registry import part
from ...federation import Federation
from ...federation.ragged_rows import from_pairs
from ..split.train_test import held_out_sizes

Float32 = NDArray[np.float32]
Rows = tuple[Float32, Int64]

CLASSES, FEATURES = 10, 60
LEAST = 50  # rows of a client
SKEW = {"low": 0.5, "medium": 1.5, "high": 5.0}  # s of noise_levels (supplement C.2)


@dataclass(frozen=True)
class User:
    """One client's distribution: `x ~ N(mean, diag(j^-1.2))`, `y = argmax(weight x + bias)`."""

    weight: Float64
    bias: Float64
    mean: Float64

    @classmethod
    def draw(cls, alpha: float, beta: float, draw: np.random.Generator) -> User:
        """`W, b ~ N(u, 1)` with `u ~ N(0, alpha)`; `v ~ N(B, 1)` with `B ~ N(0, beta)`.

        alpha and beta are variances, as the notation N(0, alpha) says. Since u moves the scores
        of all classes equally, alpha changes W and b but never a label.
        """
        u, b = draw.standard_normal(2) * np.sqrt([alpha, beta])
        return cls(
            u + draw.standard_normal((CLASSES, FEATURES)),
            u + draw.standard_normal(CLASSES),
            b + draw.standard_normal(FEATURES),
        )

    def rows(self, n: int, draw: np.random.Generator) -> Rows:
        """Draw n independent rows of this client; labels precede the rounding of x to float32."""
        deviation = np.arange(1, FEATURES + 1) ** -0.6
        x = self.mean + deviation * draw.standard_normal((n, FEATURES))
        y = np.argmax(x @ self.weight.T + self.bias, axis=1)
        return x.astype(np.float32), y


def client_sizes(n: int, seed: int, max_rows: int | None = None) -> Int64:
    """Draw the number of rows of each client: `int(lognormal(4, 2)) + 50`, cut off at `max_rows`.

    The tail is heavy: the median is about 105, the mean about 450, and 50,000 does happen.
    """
    sizes = rng.generator(seed, "synth sizes").lognormal(4, 2, n).astype(np.int64) + LEAST
    return sizes if max_rows is None else np.minimum(sizes, max_rows)


def noise_levels(others: int, skew: float) -> Float64:
    """`r_j = ((j - 1/2) / M)^(1/s)` for j = 1..M: noise levels of the M others, in (0, 1).

    The average is about s / (s + 1), so a larger skew s means more clients near the maximum.

    >>> noise_levels(2, 0.5)
    array([0.0625, 0.5625])
    """
    return np.asarray(((np.arange(1, others + 1) - 0.5) / others) ** (1 / skew), np.float64)


def perturb(y: Int64, deviation: float, draw: np.random.Generator) -> Int64:
    """`y' = (y + round(N(0, deviation^2))) mod 10`: labels slide to their neighbours."""
    shift = np.rint(deviation * draw.standard_normal(len(y))).astype(np.int64)
    return (y + shift) % CLASSES


def swap_in(rows: Rows, fraction: float, stranger: User, draw: np.random.Generator) -> Rows:
    """Replace a fraction of rows by irrelevant ones: x of a stranger, labels uniform at random."""
    x, y = rows[0].copy(), rows[1].copy()
    at = draw.choice(len(y), round(fraction * len(y)), replace=False)
    x[at] = stranger.rows(len(at), draw)[0]
    y[at] = draw.integers(CLASSES, size=len(at))
    return x, y


def pool_rows(parts: Sequence[Rows]) -> Rows:
    """Return the rows of several clients as one pool."""
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def sample(rows: Int64, n: int, draw: np.random.Generator) -> Int64:
    """Return the first n of rows in random order, or n drawn with replacement."""
    return rows[:n] if n <= len(rows) else draw.choice(rows, n)


def draw_pool_rows(
    pool: int, train: int, test: int, fraction: float, draw: np.random.Generator
) -> Int64:
    """Draw the row numbers in the pool of training rows for the training rows of one other client.

    Each of them samples a random part of the pool, about `1 - fraction` of it. From the rest its
    test rows were drawn once, which made them training rows of priority clients; the draw is still
    made, and left, so that the training rows of a seed stay what they were.
    """
    order = draw.permutation(pool)
    cut = int(held_out_sizes(np.array([pool]), fraction)[0])
    sample(order[:cut], test, draw)
    return sample(order[cut:], train, draw)


def check_synth(
    alpha: float,
    beta: float,
    priority: int,
    others: int,
    skew: float,
    random_data: float,
    label_noise: float,
    max_rows: int | None,
) -> None:
    """Raise an error for settings that the generator cannot use."""
    for field, value in {"alpha": alpha, "beta": beta, "label_noise": label_noise}.items():
        require(0 <= value < math.inf, f"synth {field}", value, "finite numbers from 0")
    check_whole("synth priority", priority)
    check_whole("synth others", others, 0)
    check_above("synth skew", skew)
    check_share("synth random_data", random_data)
    if max_rows is not None:
        check_whole("synth max_rows", max_rows, 2)


@part(Federation, "synth")
def synth(
    alpha: float = 1.0,
    beta: float = 1.0,
    priority: int = 10,
    others: int = 10,
    noise: str = "low",
    seed: int = 0,
    random_data: float = 1.0,
    label_noise: float = 2.5,
    skew: float | None = None,
    test_fraction: float = 0.2,
    max_rows: int | None = None,
) -> Federation:
    """SYNTH(alpha, beta) for the priority clients, increasingly noisy samples of it for the others.

    Clients 0 to `priority` - 1 are priority clients, each with a separate `User`. The others, j = 1
    to M, sample the pooled rows of the priority clients, to train on from their training rows and
    to test on from their test rows, so that nobody is tested on a row anybody trains on. They are
    noisy at level r_j (`noise_levels`): `round(random_data * r_j * D_j)` of their rows are
    irrelevant, then every label is perturbed with deviation `label_noise * r_j`, in training and
    test rows.

    The paper leaves the noise open. Chosen here: r_j above; an irrelevant row is drawn from a
    `User` that belongs to nobody else, with a label uniform over the 10 classes; alpha and beta
    are variances. The same seed gives the same priority clients at every noise.

    Args:
        noise: "low", "medium", "high" for s = 0.5, 1.5, 5
        skew: or any other s
        max_rows: an upper limit on a client's rows, for quick runs
    """
    if skew is None:
        if noise not in SKEW:
            raise unknown_name("noise", noise, SKEW)
        skew = SKEW[noise]
    check_synth(alpha, beta, priority, others, skew, random_data, label_noise, max_rows)
    fewest = min(LEAST, max_rows or LEAST) * (priority + others)
    require_memory(f"{fewest} rows or more", 4 * FEATURES * fewest, "ask for fewer clients")
    sizes = client_sizes(priority + others, seed, max_rows)
    held_out = held_out_sizes(sizes, test_fraction)

    def world(k: int) -> User:
        return User.draw(alpha, beta, rng.generator(seed, "synth user", client=k))

    data = [
        world(k).rows(int(sizes[k]), rng.generator(seed, "synth rows", client=k))
        for k in range(priority)
    ]
    tests = pool_rows([(x[:h], y[:h]) for (x, y), h in zip(data, held_out, strict=False)])
    trains = pool_rows([(x[h:], y[h:]) for (x, y), h in zip(data, held_out, strict=False)])
    for k, level in enumerate(noise_levels(others, skew), start=priority):
        draw = rng.generator(seed, "synth noise", client=k)
        draw_test = rng.generator(seed, "synth held out", client=k)
        n, test = int(sizes[k]), int(held_out[k])
        at = draw_pool_rows(len(trains[1]), n - test, test, test_fraction, draw)
        at_test = sample(draw_test.permutation(len(tests[1])), test, draw_test)
        own = pool_rows([(tests[0][at_test], tests[1][at_test]), (trains[0][at], trains[1][at])])
        x, y = swap_in(own, random_data * level, world(k), draw)
        data.append((x, perturb(y, label_noise * level, draw)))
    return Federation.from_rows(
        from_pairs([(x[h:], y[h:]) for (x, y), h in zip(data, held_out, strict=True)], "train"),
        from_pairs([(x[:h], y[:h]) for (x, y), h in zip(data, held_out, strict=True)], "test"),
        priority=np.arange(priority),
        classes=CLASSES,
        name="synth",
        varies="data",
    )
