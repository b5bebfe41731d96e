"""Who gets which rows: a partition is a seeded function from labels to row numbers.

A partition part has one method, `split(y, clients, seed)`, which returns one array of row numbers
for each client: a list of them, or `Portions`, which holds them all in two arrays. Nothing is
copied: `federate` hands those row numbers and the arrays they point into to a `Federation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from ...base import rng
from ...base.arrays import Bool, Int64, UInt64
from ...base.checks import check_above, check_whole, require
from ...base.errors import MusterError
from ...base.lazy import torch
from ...base.registry import kinds, part
from ...federation import Federation, VariationKind
from ...federation.ragged_rows import (
    Pair,
    RaggedRows,
    SharedRows,
    are_labels,
    as_targets,
    as_tensor,
)
from .portions import Portions, check_split, class_after_class, deal


class Partition(Protocol):
    """Who gets which rows."""

    def split(self, y: Int64, clients: int, seed: int) -> Sequence[Int64]:
        """The row numbers of each client."""
        ...


PARTITIONS = kinds(Partition)  # by name; what registers later is in it too


@part(Partition, "iid")
@dataclass(frozen=True)
class IID:
    """Everyone sees the same distribution: rows are shuffled and dealt evenly.

    Sizes differ by at most one row.

    >>> [len(part) for part in IID().split(np.zeros(7, np.int64), clients=3, seed=0)]
    [3, 2, 2]
    """

    def split(self, y: Int64, clients: int, seed: int) -> Portions:
        """Shuffled rows, dealt evenly."""
        check_split(y, clients)
        rows = rng.generator(seed, "partition iid").permutation(len(y))
        sizes = np.full(clients, len(y) // clients)
        sizes[: len(y) % clients] += 1
        return Portions.cut(rows, sizes)


@part(Partition, "shards")
@dataclass(frozen=True)
class Shards:
    """Few classes each: rows are cut into single-class shards, and each client gets some.

    The split of McMahan et al. (2017, section 3), with shards that never straddle two classes
    (FedALIGN, section 4). A class's tail smaller than a shard is unused.

    Attributes:
        per_client: shards of each client
        size: rows of a shard; None: the largest for which clients * per_client shards exist
        shared: False: no two clients share a shard. True: each client draws its own shards from the
            whole pool, without replacement, so two clients may hold the same shard

    >>> y = np.repeat(np.arange(3), 100)
    >>> parts = Shards(per_client=2).split(y, clients=4, seed=0)
    >>> [len(part) for part in parts], max(len(np.unique(y[part])) for part in parts)
    ([66, 66, 66, 66], 2)
    """

    per_client: int = 2
    size: int | None = None
    shared: bool = False

    def __post_init__(self) -> None:
        check_whole("shards per_client", self.per_client)
        if self.size is not None:
            check_whole("shards size", self.size)

    def split(self, y: Int64, clients: int, seed: int) -> Portions:
        """Each client's shards, end to end."""
        check_split(y, clients)
        draw = rng.generator(seed, "partition shards")
        rows, counts = class_after_class(y, draw)
        dealt = clients * self.per_client
        size = largest_shard(counts, dealt) if self.size is None else self.size
        shards = counts // size
        pool = int(shards.sum())
        needed = self.per_client if self.shared else dealt
        if pool < needed:
            less = "size or per_client" if self.shared else "size, per_client or clients"
            raise MusterError(
                f"shards: {pool} single-class shards of {size} rows exist and {needed} are needed "
                f"({clients} clients, per_client={self.per_client}, shared={self.shared}); "
                f"lower {less}" + ("" if self.shared else ", or set shared=True")
            )
        first = np.repeat(np.cumsum(counts) - counts, shards) + size * rng.ramp(shards)
        if self.shared:
            hands = np.stack(
                [draw.choice(pool, self.per_client, replace=False) for _ in range(clients)]
            )
        else:
            hands = draw.permutation(pool)[:dealt]
        flat = rows[(first[hands.ravel(), None] + np.arange(size)).ravel()]
        return Portions.cut(flat, np.full(clients, self.per_client * size))


def largest_shard(counts: Int64, needed: int) -> int:
    """The largest size for which `sum_c floor(counts[c] / size)` is at least `needed`.

    That sum never grows with the size, so it is bisected. At least 1, even if that is too few.

    >>> largest_shard(np.full(10, 6000), 120)
    500
    """
    low, high = 1, int(counts.max())
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if (counts // middle).sum() >= needed else (low, middle - 1)
    return low


@part(Partition, "dirichlet")
@dataclass(frozen=True)
class Dirichlet:
    """Uneven everything: each class is spread over the clients by a draw from Dir(alpha).

    For every class, proportions over clients ~ Dirichlet(alpha, ..., alpha): the common form of
    the split of Hsu, Qi, Brown (2019, section 3), in which client sizes vary too. A small alpha
    gives few classes to a client, a large one approaches IID. Draws that leave a client with
    fewer than `min_rows` rows are thrown away, at most `retries` of them.
    """

    alpha: float = 0.5
    min_rows: int = 2
    retries: int = 100

    def __post_init__(self) -> None:
        check_above("dirichlet alpha", self.alpha)
        check_whole("dirichlet min_rows", self.min_rows)
        check_whole("dirichlet retries", self.retries)

    def split(self, y: Int64, clients: int, seed: int) -> Portions:
        """The first draw that gives every client `min_rows` rows."""
        check_split(y, clients)
        if clients * self.min_rows > len(y):
            raise MusterError(
                f"dirichlet: {clients} clients with min_rows={self.min_rows} need "
                f"{clients * self.min_rows} rows and there are {len(y)}; lower clients or min_rows"
            )
        draw = rng.generator(seed, "partition dirichlet")
        rows, counts = class_after_class(y, draw)
        best = 0
        for _ in range(self.retries):
            proportions = draw.dirichlet(np.full(clients, self.alpha), len(counts))
            edges = np.rint(np.cumsum(proportions, axis=1) * counts[:, None]).astype(np.int64)
            edges[:, -1] = counts  # the last sum is 1 only up to rounding
            sizes = np.diff(edges, axis=1, prepend=0)  # [class, client]
            smallest = int(sizes.sum(axis=0).min())
            if smallest >= self.min_rows:
                return deal(rows, counts, sizes)
            best = max(best, smallest)
        raise MusterError(
            f"dirichlet: in each of {self.retries} draws with alpha={self.alpha:g} one of {clients}"
            f" clients got fewer than min_rows={self.min_rows} rows (at best {best}); "
            "raise alpha, or lower clients or min_rows"
        )


def by_column(values: ArrayLike) -> tuple[Portions, list[Any]]:
    """One client for each distinct value of a column (a writer, a hospital), sorted by value.

    Returns the row numbers of each client, in their order in the column, and its value.

    >>> parts, names = by_column(["b", "a", "b"])
    >>> list(parts), names
    ([array([1]), array([0, 2])], ['a', 'b'])
    """
    column = np.asarray(values)
    if column.ndim != 1 or not len(column):
        raise MusterError(f"column: shape {column.shape}; give one value for each row")
    if column.dtype.kind == "f" and np.isnan(column).any():
        row = int(np.flatnonzero(np.isnan(column))[0])
        raise MusterError(f"column: row {row} is nan; every row needs an owner: fill or drop it")
    try:
        names, owner, sizes = np.unique(column, return_inverse=True, return_counts=True)
    except TypeError as error:
        raise MusterError(f"column: values cannot be sorted ({error}); give one type") from error
    return Portions.cut(np.argsort(owner, kind="stable"), sizes), names.tolist()


def held_out_sizes(sizes: Int64, fraction: float) -> Int64:
    """How many of each client's rows are held out: about `fraction`, at least 1, never all."""
    require(0 < fraction < 1, "test_fraction", fraction, "between 0 and 1, exclusive")
    alone = np.flatnonzero(sizes < 2)
    if len(alone):
        raise MusterError(
            f"test_fraction: client {alone[0]} has {sizes[alone[0]]} row(s); holding out a test "
            "part needs at least 2: use fewer clients or more rows"
        )
    held: Int64 = np.rint(fraction * sizes).astype(np.int64)
    return held.clip(1, sizes - 1)


def hold_out(
    parts: Sequence[Int64], labels: Int64, fraction: float, seed: int
) -> tuple[Portions, Portions]:
    """Each client keeps about `fraction` of its own rows, and of each of its classes, for testing:
    (train, test) parts."""
    whole = Portions.of(parts)
    sizes = whole.sizes
    keys = rng.keys(seed, "hold out", client=np.arange(len(whole)))
    drawn = drawn_for_test(labels[whole.rows], sizes, fraction, keys)
    held = np.add.reduceat(drawn, whole.offsets[:-1], dtype=np.int64)
    return Portions.cut(whole.rows[~drawn], sizes - held), Portions.cut(whole.rows[drawn], held)


def drawn_for_test(y: Int64, sizes: Int64, fraction: float, key: UInt64) -> Bool:
    """Which rows are held out, of clients that lie end to end with labels y.

    The rows of each class are shuffled; the i-th of n has its turn at i / n, so that the first
    ones to be held out are one row of each class, and from there on every class gives in
    proportion. A class of a single row gives it last: it is there to be learned.
    """
    order, offsets = rng.permutations(key, sizes)
    shuffled = np.repeat(offsets[:-1], sizes) + order
    client = np.repeat(np.arange(len(sizes)), sizes)
    by_class = np.lexsort((y[shuffled], client))  # stable: within a class, the shuffled order
    group = client * (int(y.max(initial=0)) + 1) + y[shuffled]
    _, n = np.unique(group[by_class], return_counts=True)
    turn = np.empty(len(y))
    turn[by_class] = np.where(np.repeat(n, n) == 1, 1.0, rng.ramp(n) / np.repeat(n, n))
    taken = rng.ramp(sizes) < np.repeat(held_out_sizes(sizes, fraction), sizes)
    test = np.zeros(len(y), np.bool_)
    test[shuffled[np.lexsort((turn, client))[taken]]] = True
    return test


def joined(parts: Sequence[Int64], rows: int, what: str) -> Portions:
    """Row numbers of all clients in two arrays, each client with a row and each row there."""
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
    """Features and targets that belong together, without copying them."""
    features, labels = as_tensor(x, f"{what} x"), as_targets(y, f"{what} y")
    if labels.dim() < 1 or features.dim() < 1 or len(features) != len(labels):
        raise MusterError(
            f"{what}: x has shape {tuple(features.shape)} and y {tuple(labels.shape)}; "
            "give one label for each row of x"
        )
    return features, labels


def reweighted(train: RaggedRows, x: torch.Tensor, y: torch.Tensor) -> SharedRows:
    """A shared test set, seen by each client in the label proportions of its training rows.

    Client k tests on every row of the labels it holds. A row of label c counts
    `prop_k[c] / count_test[c]`, so its labels weigh what they weigh in its training rows, and all
    its weights sum to 1. Labels the test set lacks are dropped and the rest renormalised.
    """
    held = train.y.numpy()[train.base(np.arange(train.offsets[-1]))]
    found, code = np.unique(np.concatenate([held, y.numpy()]), return_inverse=True)
    clients, labels = len(train.offsets) - 1, len(found)
    who = np.repeat(np.arange(clients), train.sizes)
    counts = np.bincount(who * labels + code[: len(held)], minlength=clients * labels)
    in_test = np.bincount(code[len(held) :], minlength=labels)
    counts = counts.reshape(clients, labels) * (in_test > 0)
    untested = np.flatnonzero(counts.sum(axis=1) == 0)
    if len(untested):
        raise MusterError(
            f"test: it holds no row of any label of client {untested[0]}; give a test set with "
            "the labels of the training rows"
        )
    return SharedRows.of(x, y, counts / counts.sum(axis=1, keepdims=True), code[len(held) :])


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
    """A federation whose clients are row numbers into shared arrays; no row is copied.

    Args:
        parts: row numbers of each client's training rows in `x`, `y`
        test: an official test set (x, y), shared by everyone: see `reweighted`
        test_parts: or else row numbers of each client's own test rows in `x`, `y`
        priority: a number n for the first n clients, or their indices; None or "all": everyone
        unseen: how many clients, the last ones, never train and only judge
        note: what results on this data must say
        varies: what its seeds vary, where `parts` come of one: see `Federation.from_arrays`

    >>> y = np.array([0, 0, 1, 1])
    >>> federate(np.eye(4), y, [np.array([0, 2]), np.array([1, 3])], priority=1)
    Federation(2 clients, 1 priority, 4 rows, 2 classes)
    """
    if test is not None and test_parts is not None:
        raise MusterError("test and test_parts are both given; give one of them")
    features, labels = as_pair(x, y, "train")
    mine = joined(parts, len(labels), "parts")
    train = RaggedRows(features, labels, mine.offsets, mine.rows)
    held_out: RaggedRows | None = None
    if test is not None:
        if not are_labels(labels):
            raise MusterError("test: shared by labels, and targets are numbers; give test_parts")
        held_out = reweighted(train, *as_pair(*test, "test"))
    elif test_parts is not None:
        own = joined(test_parts, len(labels), "test_parts")
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
    """The indices of the last `unseen` of the clients."""
    check_whole(f"unseen (of {clients} clients)", unseen, 0, clients - 1)
    return np.arange(clients - unseen, clients)


def first_clients(priority: ArrayLike | None, clients: int) -> ArrayLike | None:
    """A number n as the indices of the first n clients; anything else as it is."""
    if isinstance(priority, str):
        require(priority == "all", "priority", priority, "a number, indices, or 'all'")
        return None
    if not isinstance(priority, (int, np.integer)) or isinstance(priority, bool):
        return priority
    check_whole(f"priority (of {clients} clients)", priority, 1, clients)
    return np.arange(priority)
