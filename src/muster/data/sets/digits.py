"""Handwritten digits that come with scikit-learn: real images, no download, seconds to train."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ...federation import Federation
from ...lazy import datasets
from ...registry import part
from ..split.partition import Partition, Shards, federate, hold_out

TWO_SHARDS = Shards(per_client=2)


@part(Federation, "digits")
def digits(
    clients: int = 20,
    priority: int | tuple[int, ...] | Literal["all"] = 2,
    unseen: int = 0,
    partition: Partition = TWO_SHARDS,
    seed: int = 0,
    test_fraction: float = 0.2,
) -> Federation:
    """1797 images of 8x8 pixels in [0, 1], flattened to 64 features; ten classes.

    There is no official test set: each client holds out `test_fraction` of its own rows.

    priority  a number n for the first n clients (the partition is random), their indices, or "all"
    unseen    how many clients, the last ones, never train and only judge
    """
    pixels, labels = datasets.load_digits(return_X_y=True)
    x = (pixels / 16).astype(np.float32)
    train, test = hold_out(partition.split(labels, clients, seed), labels, test_fraction, seed)
    return federate(
        x,
        labels,
        train,
        test_parts=test,
        priority=priority,
        unseen=unseen,
        classes=10,
        name="digits",
    )
