"""Image data sets by name: Fashion-MNIST, MNIST, CIFAR-10, EMNIST, and FEMNIST by writer.

A new one is an entry in `catalogue` and a few lines here. Where there is an official test set,
each client is tested on it in the label proportions of its training rows (`reweight_test`).

Parameters they share:

folder    where the files are; None: the cache, $MUSTER_DATA, the folder of a system package
priority  a number n for the first n clients (the partition is random), their indices, or "all"
unseen    number of clients, the last ones, that never train and only evaluate
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Literal

import numpy as np

from ...base import rng
from ...base.arrays import Int64
from ...base.checks import check_one_of, check_whole
from ...base.registry import part
from ...federation import Federation
from ...federation.ragged_rows import RaggedRows
from ..sources.catalogue import CIFAR10, EMNIST_BALANCED, EMNIST_BYCLASS, FEMNIST, FMNIST, MNIST
from ..sources.dataset import DataSet, load_local
from ..split.partition import Partition, Shards, by_column, choose_few
from ..split.portions import Portions
from ..split.train_test import as_pair, federate, first_clients, hold_out_partition, last_clients

Priority = int | tuple[int, ...] | Literal["all"]

SHARDS = Shards(per_client=2, size=500)  # FedALIGN, section 4: 120 shards for 60 clients
TWO_SHARDS = Shards(per_client=2)
MANY_SHARDS = Shards(per_client=24)  # FedALIGN, section 4: EMNIST
DIGITS = tuple("0123456789")
CLOTHES = (
    *("T-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "boot"),
)
THINGS = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
CHARACTERS = (*DIGITS, *ascii_uppercase, *ascii_lowercase)
# Balanced merges the lower-case letters that look like their upper case.
BALANCED = (*DIGITS, *ascii_uppercase, *"abdefghnqrt")
IMAGE = (1, 28, 28)  # the shape of rows of 784
HELD_OUT = 0.2  # of each client's rows, where there is no official test set


def partition_images(
    data: DataSet,
    folder: str | Path | None,
    labels: tuple[str, ...],
    clients: int,
    priority: Priority,
    unseen: int,
    partition: Partition,
    seed: int,
) -> Federation:
    """Load a data set of images and partition it by its labels."""
    local = load_local(data, folder)
    x, y = local.arrays["x"], local.arrays["y"]
    labelled = y.astype(np.int64)
    partition = choose_few(partition, priority)
    parts: Sequence[Int64]
    test, test_parts = None, None
    if "test_x" in local.arrays:
        parts = partition.split(labelled, clients, seed)
        test = (local.arrays["test_x"], local.arrays["test_y"])
    else:
        parts, test_parts = hold_out_partition(partition, labelled, clients, HELD_OUT, seed)
    fed = federate(
        x,
        y,
        parts,
        test=test,
        test_parts=test_parts,
        priority=priority,
        unseen=unseen,
        classes=len(labels),
        name=data.name,
        note=local.note,
        varies="deal and split" if test is None else "deal",
    )
    return replace(fed, labels=labels, image=IMAGE if x.ndim == 2 else None)


@part(Federation, "fmnist")
def fmnist(
    folder: str | Path | None = None,
    clients: int = 60,
    priority: Priority = 2,
    unseen: int = 0,
    partition: Partition = SHARDS,
    seed: int = 0,
) -> Federation:
    """Fashion-MNIST (Xiao et al. 2017): 60,000 images of 28x28 bytes, ten classes."""
    return partition_images(FMNIST, folder, CLOTHES, clients, priority, unseen, partition, seed)


@part(Federation, "mnist")
def mnist(
    folder: str | Path | None = None,
    clients: int = 60,
    priority: Priority = 2,
    unseen: int = 0,
    partition: Partition = TWO_SHARDS,
    seed: int = 0,
) -> Federation:
    """MNIST (LeCun et al. 1998): 60,000 images of 28x28 bytes, ten classes."""
    return partition_images(MNIST, folder, DIGITS, clients, priority, unseen, partition, seed)


@part(Federation, "cifar10")
def cifar10(
    folder: str | Path | None = None,
    clients: int = 60,
    priority: Priority = 2,
    unseen: int = 0,
    partition: Partition = TWO_SHARDS,
    seed: int = 0,
) -> Federation:
    """CIFAR-10 (Krizhevsky 2009): 50,000 images of 3x32x32 bytes, ten classes."""
    return partition_images(CIFAR10, folder, THINGS, clients, priority, unseen, partition, seed)


@part(Federation, "emnist")
def emnist(
    split: Literal["balanced", "byclass"] = "balanced",
    folder: str | Path | None = None,
    clients: int = 60,
    priority: Priority = 2,
    unseen: int = 0,
    partition: Partition = MANY_SHARDS,
    seed: int = 0,
) -> Federation:
    """EMNIST (Cohen et al. 2017): images of 28x28 bytes; 47 classes (balanced) or 62 (byclass).

    Where only a subset is there it is used, with a note in the federation; a subset without
    a test set has each client hold out a fifth of its rows.
    """
    both = {"balanced": (EMNIST_BALANCED, BALANCED), "byclass": (EMNIST_BYCLASS, CHARACTERS)}
    check_one_of("emnist split", split, tuple(both))
    data, labels = both[split]
    return partition_images(data, folder, labels, clients, priority, unseen, partition, seed)


@part(Federation, "femnist")
def femnist(
    folder: str | Path | None = None,
    clients: int | None = None,
    priority: Priority = "all",
    unseen: int = 0,
    seed: int = 0,
) -> Federation:
    """FEMNIST of LEAF (Caldas et al. 2018): a client is a writer; 62 classes.

    Writers who have training rows are clients, tested on their own test rows.

    Args:
        clients: number of writers, chosen and ordered by the seed; None: all of them
    """
    local = load_local(FEMNIST, folder)
    parts, writers = by_column(local.arrays["writer"])
    tests, tested = by_column(local.arrays["test_writer"])
    names, at, at_test = np.intersect1d(writers, tested, return_indices=True)
    n = len(names) if clients is None else clients
    check_whole(f"clients (of {len(names)} writers)", n, 1, len(names))
    chosen = rng.generator(seed, "femnist writers").permutation(len(names))[:n]

    def select(parts: Portions, half: str, which: Int64) -> RaggedRows:
        mine = parts.take(which)
        x, y = as_pair(local.arrays[f"{half}x"], local.arrays[f"{half}y"], "femnist")
        return RaggedRows(x, y, mine.offsets, mine.rows)

    fed = Federation.from_rows(
        select(parts, "", at[chosen]),
        select(tests, "test_", at_test[chosen]),
        first_clients(priority, n),
        classes=len(CHARACTERS),
        name=FEMNIST.name,
        unseen=last_clients(unseen, n),
        note=local.note,
        varies="deal",
    )
    return replace(fed, labels=CHARACTERS, image=IMAGE, names=names[chosen].astype(np.str_))
