"""Partitions: who gets which rows, as a seeded function from labels to row numbers.

IID and non-IID: `Shards` (few classes each), `Dirichlet` and `LabelMix` (uneven labels), `Few` (few
rows for some), `by_column` (natural clients). A partition has one method, `split(y, clients,
seed)`, which returns one array of row numbers for each client: a list of them, or `Portions`, which
holds them all in two arrays. Nothing is copied: `federate` passes those row numbers and the arrays
they point into to a `Federation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from ...base import rng
from ...base.arrays import Float64, Int64
from ...base.checks import check_above, check_whole
from ...base.errors import MusterError
from ...base.registry import kinds, part
from .portions import Portions, check_split, deal, sort_by_class


class Partition(Protocol):
    """A rule for who gets which rows."""

    def split(self, y: Int64, clients: int, seed: int) -> Sequence[Int64]:
        """Return the row numbers of each client."""
        ...


PARTITIONS = kinds(Partition)  # by name, also those that are registered later


@part(Partition, "iid")
@dataclass(frozen=True)
class IID:
    """Independent and identically distributed: rows are shuffled and dealt evenly.

    Sizes differ by at most one row.

    >>> [len(part) for part in IID().split(np.zeros(7, np.int64), clients=3, seed=0)]
    [3, 2, 2]
    """

    def split(self, y: Int64, clients: int, seed: int) -> Portions:
        """Deal shuffled rows evenly."""
        check_split(y, clients)
        rows = rng.generator(seed, "partition iid").permutation(len(y))
        sizes = np.full(clients, len(y) // clients)
        sizes[: len(y) % clients] += 1
        return Portions.cut(rows, sizes)


@part(Partition, "shards")
@dataclass(frozen=True)
class Shards:
    """Non-IID, few classes each: rows are cut into single-class shards, and each client gets some.

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
        """Deal each client its shards."""
        check_split(y, clients)
        draw = rng.generator(seed, "partition shards")
        rows, counts = sort_by_class(y, draw)
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
                f"lower {less}" + ("" if self.shared else ", or set shared to true")
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
    """Return the largest size for which `sum_c floor(counts[c] / size)` is at least `needed`.

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
    """Non-IID, uneven labels and sizes: each class is spread over clients by a draw of Dir(alpha).

    For every class, proportions over clients ~ Dirichlet(alpha, ..., alpha): the common form of
    the split of Hsu, Qi, Brown (2019, section 3), in which client sizes vary too. A small alpha
    gives few classes to a client, a large one approaches IID. Draws that leave a client with
    fewer than `min_rows` rows are thrown away, at most `retries` of them.
    """

    alpha: float = 0.5
    min_rows: int = 2
    retries: int = 100

    def __post_init__(self) -> None:
        check_above("dirichlet alpha", self.alpha, double=True)
        check_whole("dirichlet min_rows", self.min_rows)
        check_whole("dirichlet retries", self.retries)

    def split(self, y: Int64, clients: int, seed: int) -> Portions:
        """Return the first draw that gives every client `min_rows` rows."""
        check_split(y, clients)
        if clients * self.min_rows > len(y):
            raise MusterError(
                f"dirichlet: {clients} clients with min_rows={self.min_rows} need "
                f"{clients * self.min_rows} rows and there are {len(y)}; lower clients or min_rows"
            )
        draw = rng.generator(seed, "partition dirichlet")
        rows, counts = sort_by_class(y, draw)
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


@part(Partition, "label_mix")
@dataclass(frozen=True)
class LabelMix:
    """Non-IID, uneven labels, equal sizes: client k draws its labels from `p_k ~ Dir(alpha prior)`.

    The split of Hsu, Qi, Brown (2019, section 3) as they draw it; the prior is the share of each
    label in the data. A client draws its rows one by one and without replacement; when a label runs
    out, proportions are renormalised over the rest. Rows left over are unused. Unlike `Dirichlet`,
    which spreads each label over the clients, it works with any alpha and any number of clients.

    Attributes:
        alpha: small: a label or two each; large: everyone has the mix of the whole
        size: rows of each client; None: as many as there are for everyone

    >>> y = np.repeat(np.arange(10), 60)
    >>> parts = LabelMix(alpha=0.05).split(y, clients=200, seed=0)
    >>> len(parts), set(parts.sizes.tolist())
    (200, {3})
    """

    alpha: float = 0.5
    size: int | None = None

    def __post_init__(self) -> None:
        check_above("label_mix alpha", self.alpha, double=True)
        if self.size is not None:
            check_whole("label_mix size", self.size)

    def split(self, y: Int64, clients: int, seed: int) -> Portions:
        """Draw each client's rows, label after label."""
        check_split(y, clients)
        size = len(y) // clients if self.size is None else self.size
        if size * clients > len(y):
            raise MusterError(
                f"label_mix: {clients} clients of size={size} need {size * clients} rows and there "
                f"are {len(y)}; lower clients or size"
            )
        draw = rng.generator(seed, "partition label mix")
        rows, counts = sort_by_class(y, draw)
        taken = draw_label_counts(counts, clients, size, self.alpha, draw)
        # Those who draw last get what is left. Which clients those are is chance, so that the last
        # clients (the unseen ones) are like the first.
        return deal(rows, counts, taken[draw.permutation(clients)].T)


def draw_label_counts(
    stock: Int64, clients: int, size: int, alpha: float, draw: np.random.Generator
) -> Int64:
    """Draw how many rows of each label every client gets, [client, label].

    Clients draw in turn. All who come before a label runs out draw at once: their numbers are
    multinomial. The one in whose turn it runs out keeps what was there and draws the rest from
    the other labels, and everyone after it does without that label. So the work is a pass over
    the clients for each label, not a step for each client.
    """
    concentration = alpha * stock / stock.sum()
    mix = draw.dirichlet(concentration, clients)
    left = stock.copy()
    taken = np.zeros((clients, len(stock)), np.int64)
    k = 0
    while k < clients:
        some = np.flatnonzero(left)
        wanted = draw.multinomial(size, renormalise(mix[k:, some], concentration[some], draw))
        short = (np.cumsum(wanted, axis=0) > left[some]).any(axis=1)
        whole = int(np.argmax(short)) if short.any() else len(wanted)
        taken[k : k + whole, some] = wanted[:whole]
        left[some] -= wanted[:whole].sum(axis=0)
        k += whole
        if k == clients:
            break
        taken[k, some] = np.minimum(wanted[whole], left[some])
        left -= taken[k]
        while missing := size - int(taken[k].sum()):
            some = np.flatnonzero(left)
            shares = renormalise(mix[k : k + 1, some], concentration[some], draw)
            more = draw.multinomial(missing, shares)
            more = np.minimum(more[0], left[some])
            taken[k, some] += more
            left[some] -= more
        k += 1
    return taken


def renormalise(mix: Float64, concentration: Float64, draw: np.random.Generator) -> Float64:
    """Renormalise label proportions over some of the labels.

    A Dirichlet renormalised over some labels is the Dirichlet of those, so a client whose whole
    (rounded) mix lay on other labels draws a new one.
    """
    total = mix.sum(axis=1, keepdims=True)
    empty = np.flatnonzero(total[:, 0] < np.finfo(np.float64).tiny / np.finfo(np.float64).eps)
    mix = mix / np.where(total > 0, total, 1)
    mix[empty] = draw.dirichlet(concentration, len(empty))
    return mix


@part(Partition, "few")
@dataclass(frozen=True)
class Few:
    """Another partition whose first clients keep only a few of their rows, drawn at random.

    The other rows of these clients are not trained on. Where there is an official test set, they
    are unused; where clients hold out rows, these clients are tested on them. Where `priority` is a
    number, the first clients are the priority clients: those for whom a federation is run may have
    little data.

    Attributes:
        of: the other partition
        first: number of clients that keep few rows; default: that of the priority clients where
            they are the first ones, else 1
        rows: number of rows each of them keeps

    >>> import numpy as np
    >>> parts = Few(of=IID(), first=2, rows=5).split(np.zeros(40, np.int64), clients=4, seed=0)
    >>> [len(part) for part in parts]
    [5, 5, 10, 10]
    """

    of: Partition = IID()
    first: int | None = None
    rows: int = 20

    def __post_init__(self) -> None:
        if self.first is not None:
            check_whole("few first", self.first)
        check_whole("few rows", self.rows)

    @property
    def count(self) -> int:
        """The number of clients that keep few rows."""
        return 1 if self.first is None else self.first

    def split(self, y: Int64, clients: int, seed: int) -> Portions:
        """Return the other partition's parts, the first of them cut short."""
        parts = self.of.split(y, clients, seed)
        check_whole("few first", self.count, 1, clients)
        draw = rng.generator(seed, "partition few")
        # The order does not depend on `rows`: more rows include the fewer.
        first = [draw.permutation(parts[k])[: self.rows] for k in range(self.count)]
        return Portions.of([*first, *(parts[k] for k in range(self.count, clients))])


def choose_few(partition: Partition, priority: ArrayLike | None) -> Partition:
    """Return a partition whose first clients keep few rows with their number, where it has none:
    that of the priority clients, where they are the first ones.

    >>> choose_few(Few(), 2).first, choose_few(Few(), (1, 0)).first, choose_few(Few(), (3,)).first
    (2, 2, None)
    >>> choose_few(Few(first=1), 2).first, choose_few(Few(), "all").first
    (1, None)
    """
    if not isinstance(partition, Few) or partition.first is not None:
        return partition
    who = np.asarray(priority)
    if who.dtype.kind not in "iu":
        return partition
    if who.ndim == 0:
        return replace(partition, first=int(who))
    known = np.array_equal(np.sort(who), np.arange(len(who)))
    return replace(partition, first=len(who)) if known else partition


def by_column(values: ArrayLike) -> tuple[Portions, list[Any]]:
    """Make one client of each distinct value of a column (a writer, a hospital), sorted by value.

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
