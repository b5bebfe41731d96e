"""From rows to a federation: blocks of rows end to end, each row with an owner.

Whatever files or partitions the rows came from, from here on nothing depends on it: owners, labels
and held-out rows are columns over all rows, and a client is the rows it owns.
"""

from __future__ import annotations

import re
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...base import rng
from ...base.arrays import Bool, Float64, Int64, UInt64
from ...base.errors import MusterError, MusterWarning, nearest
from ...base.lazy import pl
from ...federation import ColumnStatistics, Federation
from ...federation.data_warnings import find_data_warnings
from ...federation.federation import as_priority
from ...federation.ragged_rows import RaggedRows, as_tensor
from ...federation.row_hashes import hash_rows
from ..split.train_test import draw_test_rows, first_clients
from .manifest import Options, Role
from .tables import Block

Names = NDArray[np.str_]

TEST_FRACTION = 0.2
FEW = 1000  # classes that labels may make however few rows there are; more than rows is a mistake


@dataclass(frozen=True, eq=False)
class Parted:
    """All rows before features are made of them: whose each is, what is to be predicted, and which
    are held out; and who the clients are.

    Attributes:
        owner: of each row, a position in `names`
        labels: what classes are called; None: targets are numbers
        drawn: whether the rows that are held out are drawn by the seed
    """

    owner: Int64
    names: Names
    y: NDArray[Any]
    labels: tuple[str, ...] | None
    test: Bool
    drawn: bool
    roles: list[Role]
    priority: Bool
    unseen: Bool

    def statistics(self, x: NDArray[Any]) -> ColumnStatistics:
        """What each client would tell of its training rows; `x` has the columns of all rows."""
        rows = np.flatnonzero(~self.test)
        rows = rows[np.argsort(self.owner[rows], kind="stable")]
        return ColumnStatistics.of(
            x[rows], np.bincount(self.owner[rows], minlength=len(self.names))
        )


Rescale = Callable[[NDArray[Any], Parted], NDArray[Any]]


def parted(
    blocks: Sequence[Block],
    options: Options,
    seed: int,
    roles_of: Callable[[Names], Mapping[str, Role]] = lambda names: {},
) -> Parted:
    """The rows of all blocks: by their client column, or a client for each source.

    Args:
        roles_of: from the clients' names, what each is; nothing when nothing is said
    """
    owner, names = owners_of(blocks)
    roles = list(roles_of(names).values())
    labels: tuple[str, ...] | None
    if options.numbers:
        y, labels = numbers_of(blocks), None
    else:
        y, labels = encode(pl.concat(same_kind([b.y for b in blocks])), options.classes, blocks)
    strata = np.zeros(len(y), np.int64) if labels is None else y
    test = held_out(blocks, strata, owner, names, options, seed)
    unseen = np.zeros(len(names), np.bool_)
    unseen[: len(roles)] = [role.unseen for role in roles]
    priority = as_priority(priority_of(options, roles, names), unseen)
    drawn = bool(test.any()) and not tells_test(blocks, options)
    return Parted(owner, names, y, labels, test, drawn, roles, priority, unseen)


def assemble(
    blocks: Sequence[Block],
    options: Options,
    seed: int,
    name: str,
    roles_of: Callable[[Names], Mapping[str, Role]] = lambda names: {},
    rescale: Rescale = lambda x, rows: x,
) -> Federation:
    """The federation of all blocks.

    Args:
        rescale: from all columns and what is known of the rows, the features a model sees
    """
    rows = parted(blocks, options, seed, roles_of)
    owner, names, y, labels, test = rows.owner, rows.names, rows.y, rows.labels, rows.test
    asked = [role.requirement for role in rows.roles if role.requirement is not None]
    given = join([block.x for block in blocks])
    x = rescale(given, rows)
    # What features are made by may change with the seed; what rows are told apart by does not.
    content = None if x is given else hash_rows(given, y)
    train = ragged(x, y, owner, ~test, names, "training", content)
    fed = Federation.from_ragged(
        train,
        ragged(x, y, owner, test, names, "test", content, weights(blocks)) if test.any() else None,
        priority=rows.priority,
        requirement=asked or None,
        importance=np.array([role.importance for role in rows.roles]) if rows.roles else 0.0,
        classes=0 if labels is None else len(labels),
        name=name,
        unseen=rows.unseen,
        varies="split" if rows.drawn else "training",
    )
    if labels is not None:
        warn_of_single_class(fed, names)
    columns = blocks[0].features
    # Where features are made of columns, whoever makes them knows what they are called.
    told = columns if columns and x.shape[1:] == (len(columns),) else None
    fed = replace(fed, names=names, labels=labels, columns=told)
    for sentence in find_data_warnings(fed):
        warnings.warn(sentence, MusterWarning, stacklevel=4)
    return fed


def owners_of(blocks: Sequence[Block]) -> tuple[Int64, Names]:
    """Whose each row is, as a position in the clients' names: by a column, or by file."""
    columns = [block.client for block in blocks if block.client is not None]
    if columns:
        owner = pl.concat(columns)
        names = sorted(owner.unique().to_list(), key=natural)
        return owner.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64), np.array(names)
    names = list(dict.fromkeys(block.source for block in blocks))
    place = {name: k for k, name in enumerate(names)}
    sizes = [len(block.x) for block in blocks]
    return np.repeat([place[block.source] for block in blocks], sizes), np.array(names)


def natural(name: str) -> tuple[list[str | tuple[int, str]], str]:
    """A key that sorts numbers in names by size.

    >>> sorted(["c10", "c9", "b"], key=natural)
    ['b', 'c9', 'c10']
    """
    parts = re.split(r"([0-9]+)", name)  # text and digits take turns, so like meets like
    bare = [part.lstrip("0") for part in parts]  # the longer number is the larger
    return [(len(bare[i]), bare[i]) if i % 2 else part for i, part in enumerate(parts)], name


def same_kind(columns: Sequence[pl.Series]) -> list[pl.Series]:
    """Columns of one type: their own when they agree, or else text."""
    kinds = {column.dtype for column in columns}
    return [c.alias("") if len(kinds) == 1 else c.cast(pl.String).alias("") for c in columns]


def encode(
    y: pl.Series, classes: Sequence[str | int] | None, blocks: Sequence[Block]
) -> tuple[Int64, tuple[str, ...]]:
    """Labels as numbers from 0, and what each number stands for."""
    for block in blocks:
        if block.numbers is not None and block.numbers.ndim > 1:
            raise MusterError(
                f"{block.where}: y has shape {block.numbers.shape}; give one label for each row, "
                'or targets = "numbers"'
            )
    whole = as_whole(y, blocks)
    if classes is None and whole is not None:
        if (low := int(whole.min())) < 0:
            row = int(np.argmax(whole < 0))
            given = np.unique(whole)
            raise MusterError(
                f"{place_of(blocks, row)}: label {low} is below 0; say which labels there are: "
                f"classes=[{', '.join(map(str, given[:10]))}{', ...' if len(given) > 10 else ''}], "
                'or that they are numbers to predict: targets="numbers"'
            )
        if (top := int(whole.max())) >= max(FEW, len(whole)):
            raise MusterError(
                f"{place_of(blocks, int(whole.argmax()))}: label {top} makes {top + 1} classes of "
                f"{len(whole)} rows; name the labels there are with classes=[...]"
            )
        return whole, tuple(str(c) for c in range(top + 1))
    numeric = whole is not None and all(isinstance(c, int) for c in classes or ())
    text = (pl.Series(whole) if numeric else y).cast(pl.String)
    known = [str(c) for c in classes] if classes else text.unique().sort().to_list()
    codes = text.replace_strict(known, np.arange(len(known)), default=None, return_dtype=pl.Int64)
    if codes.null_count():
        row = int(codes.is_null().arg_max() or 0)
        raise MusterError(
            f"{place_of(blocks, row)}: label '{text[row]}' is not among classes; "
            f"{nearest(str(text[row]), known)}"
        )
    return codes.to_numpy(), tuple(known)


def numbers_of(blocks: Sequence[Block]) -> NDArray[Any]:
    """Targets that are numbers, as many for each row as the files have."""
    parts: list[NDArray[Any]] = []
    for block in blocks:
        given = block.numbers
        if given is None:
            given = block.y.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
        if given.dtype.kind not in "fiub":
            raise MusterError(f"{block.where}: targets are {given.dtype}; give numbers")
        if parts and given.shape[1:] != parts[0].shape[1:]:
            raise MusterError(
                f"{block.where}: targets of shape {given.shape[1:]}, those before it "
                f"{parts[0].shape[1:]}; they must agree"
            )
        wrong = ~np.isfinite(given.reshape(len(given), -1)).all(1)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise MusterError(
                f"{block.where}: column '{block.y.name}', row {row + 1}: {block.y[row]!r} is no "
                "number to predict; fix it or drop the row"
            )
        parts.append(given)
    return join(parts)


def as_whole(y: pl.Series, blocks: Sequence[Block]) -> Int64 | None:
    """Labels that are whole numbers, or None when they are names (or beyond 64 bits)."""
    if y.dtype == pl.Boolean:
        return None
    if y.dtype.is_integer() or y.dtype == pl.String:
        exact = y.cast(pl.Int64, strict=False)
        if y.dtype.is_integer() or not exact.null_count():
            return None if exact.null_count() else exact.to_numpy()
    values = y.cast(pl.Float64, strict=False)
    array = values.fill_null(0).to_numpy()
    named = values.null_count() > 0
    wrong = np.isnan(array) if named else ~np.isfinite(array) | (array != np.rint(array))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise MusterError(
            f"{place_of(blocks, row)}: label {y[row]}; labels are classes: whole numbers, or names"
        )
    return None if named or np.abs(array).max() >= 2.0**63 else array.astype(np.int64)


def place_of(blocks: Sequence[Block], row: int) -> str:
    """The file, label column and row of a row in all."""
    ends = np.cumsum([len(block.x) for block in blocks])
    at = int(np.searchsorted(ends, row, side="right"))
    here = row - int(ends[at]) + len(blocks[at].x) + 1
    return f"{blocks[at].where}: column '{blocks[at].y.name}', row {here}"


def held_out(
    blocks: Sequence[Block], y: Int64, owner: Int64, names: Names, options: Options, seed: int
) -> Bool:
    """Which rows are for testing: as the files say, or drawn."""
    said = [np.zeros(len(b.x), np.bool_) if b.test is None else b.test for b in blocks]
    test = np.concatenate(said)
    if tells_test(blocks, options):
        if options.test_fraction is not None:
            raise MusterError(f"test_fraction: {blocks[0].where} has test rows; leave it out")
        return test
    fraction = TEST_FRACTION if options.test_fraction is None else options.test_fraction
    return draw_test(y, owner, names, fraction, seed) if fraction else test


def tells_test(blocks: Sequence[Block], options: Options) -> bool:
    """True where the files mark their test rows."""
    return options.split is not None or any(b.test is not None and b.test.any() for b in blocks)


def draw_test(y: Int64, owner: Int64, names: Names, fraction: float, seed: int) -> Bool:
    """Hold out a fraction of each client's rows, and of each of its classes.

    The draw is keyed by the client's name, so that a client holds out the same rows whether its
    file is read alone or together with the others.
    """
    sizes = np.bincount(owner, minlength=len(names))
    if sizes.min() < 2:
        raise MusterError(
            f"test_fraction: client '{names[sizes.argmin()]}' has 1 row; holding out a test part "
            "needs at least 2: leave it out, or give test_fraction = 0"
        )
    key = np.array([zlib.crc32(str(name).encode()) for name in names])
    order = np.argsort(owner, kind="stable")
    test = np.zeros(len(owner), np.bool_)
    test[order] = draw_test_rows(y[order], sizes, fraction, rng.keys(seed, "hold out", client=key))
    return test


def join(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Arrays end to end; a single one is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def weights(blocks: Sequence[Block]) -> Float64 | None:
    """How much each row counts, where a file says so; rows of other files count alike."""
    if all(block.weight is None for block in blocks):
        return None
    return join([np.ones(len(b.x)) if b.weight is None else b.weight for b in blocks])


def ragged(
    x: NDArray[Any],
    y: NDArray[Any],
    owner: Int64,
    chosen: Bool,
    names: Names,
    what: str,
    content: UInt64 | None = None,
    weight: Float64 | None = None,
) -> RaggedRows:
    """The chosen rows, client after client, each client's in the order of its file; the weights of
    a client's rows sum to 1."""
    rows = np.flatnonzero(chosen)
    sizes = np.bincount(owner[rows], minlength=len(names))
    if sizes.min() == 0:
        raise MusterError(
            f"client '{names[sizes.argmin()]}' has no {what} row; every client needs one, or "
            "none any test row"
        )
    rows = rows[np.argsort(owner[rows], kind="stable")]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    if weight is not None:
        total = np.add.reduceat(weight[rows], offsets[:-1])
        weight = weight[rows] / np.repeat(total, sizes)
    return RaggedRows(as_tensor(x, "x"), as_tensor(y, "y"), offsets, rows, weight, content)


def priority_of(options: Options, roles: Sequence[Role], names: Names) -> ArrayLike | None:
    """The priority clients; a client alone is its own."""
    if len(names) == 1:
        return None
    if options.priority is None:
        marked = np.array([role.priority for role in roles], np.bool_)
        return marked if marked.any() else None
    if not isinstance(options.priority, tuple):
        return first_clients(options.priority, len(names))
    place = {name: k for k, name in enumerate(names.tolist())}
    for who in options.priority:
        if isinstance(who, str) and who not in place:
            raise MusterError(f"priority: no client '{who}'; {nearest(who, place)}")
    return np.array([place[k] if isinstance(k, str) else k for k in options.priority], np.int64)


def warn_of_single_class(fed: Federation, names: Names) -> None:
    """Say which clients hold one class only."""
    one = fed.one_class()
    if len(one):
        warnings.warn(
            f"{len(one)} of {fed.n} clients hold a single class (the first is '{names[one[0]]}'): "
            "their loss can be low without the model being any good",
            MusterWarning,
            stacklevel=5,
        )
