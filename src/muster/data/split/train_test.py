"""Train/test split: rows held out by each client, official test sets, `federate`.

`federate` builds a federation from arrays and the row numbers of each client; no row is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...base import rng
from ...base.arrays import Bool, Float64, Int64, UInt64
from ...base.checks import check_whole, require
from ...base.errors import MusterError
from ...base.lazy import torch
from ...federation import Federation, VariationKind
from ...federation.ragged_rows import (
    Pair,
    RaggedRows,
    SharedRows,
    are_labels,
    as_targets,
    as_tensor,
)
from .partition import Few, Partition
from .portions import Portions


def held_out_sizes(sizes: Int64, fraction: float | Float64) -> Int64:
    """Return how many rows each client holds out: about `fraction` (of each, or one for each
    client), at least 1, never all."""
    inside = bool(np.all((np.asarray(fraction) > 0) & (np.asarray(fraction) < 1)))
    require(inside, "test_fraction", fraction, "between 0 and 1, exclusive")
    alone = np.flatnonzero(sizes < 2)
    if len(alone):
        raise MusterError(
            f"test_fraction: client {alone[0]} has {sizes[alone[0]]} row(s); holding out a test "
            "part needs at least 2: use fewer clients or more rows"
        )
    held_out: Int64 = np.rint(fraction * sizes).astype(np.int64)
    return held_out.clip(1, sizes - 1)


def hold_out(
    parts: Sequence[Int64],
    labels: Int64,
    fraction: float | Float64,
    seed: int,
    ids: Int64 | None = None,
) -> tuple[Portions, Portions]:
    """Hold out about `fraction` of each client's rows, and of each of its classes, for testing:
    return (train, test) parts; `ids` key clients' randomness (default: 0 to n - 1)."""
    whole = Portions.of(parts)
    sizes = whole.sizes
    keys = rng.keys(seed, "hold out", client=np.arange(len(whole)) if ids is None else ids)
    drawn = draw_test_rows(labels[whole.rows], sizes, held_out_sizes(sizes, fraction), keys)
    test_sizes = np.add.reduceat(drawn, whole.offsets[:-1], dtype=np.int64)
    train = Portions.cut(whole.rows[~drawn], sizes - test_sizes)
    return train, Portions.cut(whole.rows[drawn], test_sizes)


def hold_out_partition(
    partition: Partition, y: Int64, clients: int, fraction: float, seed: int
) -> tuple[Portions, Portions]:
    """Partition rows and hold out about `fraction` of each client's: return (train, test) parts.

    A client that keeps few rows (`Few`) trains on all of them, and is tested on the others that it
    has in the other partition.
    """
    parts = partition.split(y, clients, seed)
    if not isinstance(partition, Few):
        return hold_out(parts, y, fraction, seed)
    whole = partition.of.split(y, clients, seed)
    train, test = hold_out(whole, y, fraction, seed)
    few = range(partition.count)
    rest = [np.setdiff1d(whole[k], parts[k]) for k in few]
    for k in few:
        if not len(rest[k]):
            raise MusterError(
                f"few rows: {partition.rows}, and client {k} has {len(whole[k])} in all; lower "
                "them, so that others are left to test it on"
            )
    more = range(partition.count, clients)
    return (
        Portions.of([*(parts[k] for k in few), *(train[k] for k in more)]),
        Portions.of([*rest, *(test[k] for k in more)]),
    )


def draw_test_rows(y: Int64, sizes: Int64, held_out: Int64, key: UInt64) -> Bool:
    """Draw a mask of the rows that are held out, `held_out` of each client, of clients that lie end
    to end with labels y.

    The rows of each class are shuffled; the i-th of n has its turn at i / n, so that the first
    ones to be held out are one row of each class, and from there on every class gives in
    proportion. A class of a single row gives it last, so that it can be trained on.
    """
    order, offsets = rng.permutations(key, sizes)
    shuffled = np.repeat(offsets[:-1], sizes) + order
    client = np.repeat(np.arange(len(sizes)), sizes)
    by_class = np.lexsort((y[shuffled], client))  # stable: within a class, the shuffled order
    group = client * (int(y.max(initial=0)) + 1) + y[shuffled]
    _, n = np.unique(group[by_class], return_counts=True)
    turn = np.empty(len(y))
    turn[by_class] = np.where(np.repeat(n, n) == 1, 1.0, rng.ramp(n) / np.repeat(n, n))
    taken = rng.ramp(sizes) < np.repeat(held_out, sizes)
    test = np.zeros(len(y), np.bool_)
    test[shuffled[np.lexsort((turn, client))[taken]]] = True
    return test


def check_parts(parts: Sequence[Int64], rows: int, what: str) -> Portions:
    """Return the row numbers of all clients, after checking that clients have rows that exist."""
    flat = Portions.of(parts)
    if not len(flat):
        raise MusterError(f"{what} is empty; give the row numbers of at least one client")
    empty = np.flatnonzero(flat.sizes == 0)
    if len(empty):
        raise MusterError(f"{what}: client {empty[0]} is empty; every client needs a row")
    wrong = np.flatnonzero((flat.rows < 0) | (flat.rows >= rows))
    if len(wrong):
        k = int(np.searchsorted(flat.offsets, wrong[0], side="right")) - 1
        raise MusterError(
            f"{what}: client {k} has row number {flat.rows[wrong[0]]}; allowed: 0 to {rows - 1}"
        )
    return flat


def as_pair(x: Any, y: Any, what: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features and targets as tensors, without copying them, after checking their shapes."""
    features, labels = as_tensor(x, f"{what} x"), as_targets(y, f"{what} y")
    if labels.dim() < 1 or features.dim() < 1 or len(features) != len(labels):
        raise MusterError(
            f"{what}: x has shape {tuple(features.shape)} and y {tuple(labels.shape)}; "
            "give one label for each row of x"
        )
    return features, labels


def reweight_test(train: RaggedRows, x: torch.Tensor, y: torch.Tensor) -> SharedRows:
    """Share a test set: each client is tested in the label proportions of its training rows.

    Client k tests on every row of the labels it holds. A row of label c counts
    `prop_k[c] / count_test[c]`, so its labels weigh what they weigh in its training rows, and all
    its weights sum to 1. Labels the test set lacks are dropped and the rest renormalised.
    """
    trained = train.y.numpy()[train.base(np.arange(train.offsets[-1]))]
    found, code = np.unique(np.concatenate([trained, y.numpy()]), return_inverse=True)
    clients, labels = len(train.offsets) - 1, len(found)
    who = np.repeat(np.arange(clients), train.sizes)
    counts = np.bincount(who * labels + code[: len(trained)], minlength=clients * labels)
    in_test = np.bincount(code[len(trained) :], minlength=labels)
    counts = counts.reshape(clients, labels) * (in_test > 0)
    untested = np.flatnonzero(counts.sum(axis=1) == 0)
    if len(untested):
        raise MusterError(
            f"test: it holds no row of any label of client {untested[0]}; give a test set with "
            "the labels of the training rows"
        )
    return SharedRows.of(x, y, counts / counts.sum(axis=1, keepdims=True), code[len(trained) :])


def federate(
    x: Any,
    y: Any,
    parts: Sequence[Int64],
    test: Pair | None = None,
    test_parts: Sequence[Int64] | None = None,
    priority: ArrayLike | None = None,
    importance: ArrayLike = 0.0,
    classes: int | None = None,
    name: str = "federation",
    unseen: int = 0,
    note: str = "",
    varies: VariationKind = "unknown",
) -> Federation:
    """Build a federation whose clients are row numbers into shared arrays; no row is copied.

    Args:
        parts: row numbers of each client's training rows in `x`, `y`
        test: an official test set (x, y), shared by everyone: see `reweight_test`
        test_parts: or else row numbers of each client's own test rows in `x`, `y`
        priority: a number n for the first n clients, or their indices; None or "all": everyone
        unseen: number of clients, the last ones, that never train and only evaluate
        note: a remark that is shown with results on this data
        varies: what its seeds vary, where `parts` come from one: see `Federation.from_arrays`

    >>> y = np.array([0, 0, 1, 1])
    >>> federate(np.eye(4), y, [np.array([0, 2]), np.array([1, 3])], priority=1)
    Federation(2 clients, 1 priority, 4 rows, 2 classes)
    """
    if test is not None and test_parts is not None:
        raise MusterError("test and test_parts are both given; give one of them")
    features, labels = as_pair(x, y, "train")
    mine = check_parts(parts, len(labels), "parts")
    train = RaggedRows(features, labels, mine.offsets, mine.rows)
    held_out: RaggedRows | None = None
    if test is not None:
        if not are_labels(labels):
            raise MusterError("test: shared by labels, and targets are numbers; give test_parts")
        held_out = reweight_test(train, *as_pair(*test, "test"))
    elif test_parts is not None:
        own = check_parts(test_parts, len(labels), "test_parts")
        held_out = RaggedRows(features, labels, own.offsets, own.rows)
    return Federation.from_rows(
        train,
        held_out,
        first_clients(priority, len(parts)),
        importance=importance,
        classes=classes,
        name=name,
        unseen=last_clients(unseen, len(parts)),
        note=note,
        varies=varies,
    )


def last_clients(unseen: int, clients: int) -> Int64:
    """Return the indices of the last `unseen` of the clients."""
    check_whole(f"unseen (of {clients} clients)", unseen, 0, clients - 1)
    return np.arange(clients - unseen, clients)


def first_clients(priority: ArrayLike | None, clients: int) -> ArrayLike | None:
    """Return a number n as the indices of the first n clients; anything else as it is."""
    if isinstance(priority, str):
        require(priority == "all", "priority", priority, "a number, indices, or 'all'")
        return None
    if not isinstance(priority, (int, np.integer)) or isinstance(priority, bool):
        return priority
    check_whole(f"priority (of {clients} clients)", priority, 1, clients)
    return np.arange(priority)
