"""The small federations on which the papers' statements are held against runs."""

from __future__ import annotations

import numpy as np

from ...data.sets.synth import synth
from ...federation import Federation
from .convex import scaled

BATCH = 10  # rows of a batch


def small(seed: int = 0) -> Federation:
    """SYNTH(1, 1) at low noise, rows of norm at most 1: 2 priority clients and 6 others, each with
    40 training rows."""
    return scaled(synth(priority=2, others=6, noise="low", seed=seed, max_rows=50))


def mirrored() -> Federation:
    """A priority client and another that is its mirror image: equal in loss at every model that
    does not use the second feature, where FedALIGN from w = 0 stays; with another minimum."""
    x, flip, y = np.array([[0.8, 0.6], [-0.8, -0.6]]), np.array([1.0, -1.0]), [1, 0]
    return Federation.from_arrays([(x, y), (x * flip, y)], priority=[0], name="mirrored")


def opposed() -> Federation:
    """A priority client of two rows, and another of forty with the labels the other way round."""
    x = np.array([[1.0, 0.0], [-1.0, 0.0]])
    other = (np.tile(x, (20, 1)), [0, 1] * 20)
    return Federation.from_arrays([(x, [1, 0]), other], priority=[0], name="opposed")
