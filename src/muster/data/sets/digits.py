"""Handwritten digits that come with scikit-learn: real images, no download, seconds to train."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np

from ...base.arrays import Float64, Int64
from ...base.lazy import datasets
from ...base.registry import part
from ...federation import Federation
from ..split.partition import Partition, Shards, federate, hold_out

TWO_SHARDS = Shards(per_client=2)
SHAPE = (1797, 65)  # of the table that scikit-learn keeps: the pixels, then the label


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

    Args:
        priority: a number n for the first n clients (the partition is random), their indices, or
            "all"
        unseen: how many clients, the last ones, never train and only judge
    """
    pixels, labels = images()
    x = (pixels / 16).astype(np.float32)
    train, test = hold_out(partition.split(labels, clients, seed), labels, test_fraction, seed)
    fed = federate(
        x,
        labels,
        train,
        test_parts=test,
        priority=priority,
        unseen=unseen,
        classes=10,
        name="digits",
        varies="deal and split",
    )
    return replace(fed, image=(1, 8, 8))


def images() -> tuple[Float64, Int64]:
    """Pixels from 0 to 16, and labels: from scikit-learn's own table where it is in its place,
    because loading scikit-learn takes longer than everything else; otherwise through it."""
    home = find_spec("sklearn")
    for folder in (home.submodule_search_locations or ()) if home else ():
        file = Path(folder, "datasets", "data", "digits.csv.gz")
        table = np.loadtxt(file, delimiter=",") if file.is_file() else np.empty(0)
        if table.shape == SHAPE:
            return table[:, :-1], table[:, -1].astype(np.int64)
    pixels, labels = datasets.load_digits(return_X_y=True)
    return pixels, labels
