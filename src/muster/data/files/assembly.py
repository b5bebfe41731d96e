"""Assembly of a federation from blocks of rows: owners, label encoding, train/test split.

Nothing here depends on the files or partitions that rows were read from: owners, labels and
held-out rows are columns over all rows, and a client is the rows it owns.
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
from .tabular import Block

Names = NDArray[np.str_]

TEST_FRACTION = 0.2
ENOUGH_CLASSES = 1000  # always allowed; beyond it, more classes than rows are a mistake


@dataclass(frozen=True, eq=False)
class AssignedRows:
    """All rows before features are computed: owners, targets, held-out rows, and the clients.

    Attributes:
        owner: the client of each row, a position in `names`
        labels: names of the classes; None: targets are numbers
        drawn: True if the held-out rows are drawn by the seed
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
        """Return each client's column statistics of its training rows; `x` has all rows."""
        rows = np.flatnonzero(~self.test)
        rows = rows[np.argsort(self.owner[rows], kind="stable")]
        return ColumnStatistics.of(
            x[rows], np.bincount(self.owner[rows], minlength=len(self.names))
        )


Rescale = Callable[[NDArray[Any], AssignedRows], NDArray[Any]]


def assign_rows(
    blocks: Sequence[Block],
    options: Options,
    seed: int,
    get_roles: Callable[[Names], Mapping[str, Role]] = lambda names: {},
) -> AssignedRows:
    """Assign the rows of all blocks to clients: by their client column, or one for each source.

    Args:
        get_roles: returns the clients' roles by their names; empty if none are given
    """
    owner, names = assign_owners(blocks)
    roles = list(get_roles(names).values())
    labels: tuple[str, ...] | None
    if options.numbers:
        y, labels = numeric_targets(blocks), None
    else:
        y, labels = encode_labels(
            pl.concat(unify_types([b.y for b in blocks])), options.classes, blocks
        )
    strata = np.zeros(len(y), np.int64) if labels is None else y
    test = mark_test_rows(blocks, strata, owner, names, options, seed)
    unseen = np.zeros(len(names), np.bool_)
    unseen[: len(roles)] = [role.unseen for role in roles]
    priority = as_priority(select_priority(options, roles, names), unseen)
    drawn = bool(test.any()) and not has_test_rows(blocks, options)
    return AssignedRows(owner, names, y, labels, test, drawn, roles, priority, unseen)


def assemble(
    blocks: Sequence[Block],
    options: Options,
    seed: int,
    name: str,
    get_roles: Callable[[Names], Mapping[str, Role]] = lambda names: {},
    rescale: Rescale = lambda x, rows: x,
) -> Federation:
    """Build the federation of all blocks.

    Args:
        rescale: computes the features of a model from all columns and the rows' clients
    """
    rows = assign_rows(blocks, options, seed, get_roles)
    owner, names, y, labels, test = rows.owner, rows.names, rows.y, rows.labels, rows.test
    requirements = [role.requirement for role in rows.roles if role.requirement is not None]
    raw = concatenate([block.x for block in blocks])
    x = rescale(raw, rows)
    # Scaler and encoder may change with the seed; the hashes of rows do not.
    content = None if x is raw else hash_rows(raw, y)
    train = select_rows(x, y, owner, ~test, names, "training", content)
    fed = Federation.from_rows(
        train,
        select_rows(x, y, owner, test, names, "test", content, row_weights(blocks))
        if test.any()
        else None,
        priority=rows.priority,
        requirement=requirements or None,
        importance=np.array([role.importance for role in rows.roles]) if rows.roles else 0.0,
        classes=0 if labels is None else len(labels),
        name=name,
        unseen=rows.unseen,
        varies="split" if rows.drawn else "training",
    )
    if labels is not None:
        warn_single_class(fed, names)
    columns = blocks[0].features
    # Where an encoder computes features from columns, it also names them.
    named = columns if columns and x.shape[1:] == (len(columns),) else None
    fed = replace(fed, names=names, labels=labels, columns=named)
    for sentence in find_data_warnings(fed):
        warnings.warn(sentence, MusterWarning, stacklevel=4)
    return fed


def assign_owners(blocks: Sequence[Block]) -> tuple[Int64, Names]:
    """Return the client of each row, a position in the clients' names: by a column, or by file."""
    columns = [block.client for block in blocks if block.client is not None]
    if columns:
        owner = pl.concat(columns)
        names = sorted(owner.unique().to_list(), key=natural_key)
        return owner.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64), np.array(names)
    names = list(dict.fromkeys(block.source for block in blocks))
    place = {name: k for k, name in enumerate(names)}
    sizes = [len(block.x) for block in blocks]
    return np.repeat([place[block.source] for block in blocks], sizes), np.array(names)


def natural_key(name: str) -> tuple[list[str | tuple[int, str]], str]:
    """Return a sort key that orders numbers in names by size.

    >>> sorted(["c10", "c9", "b"], key=natural_key)
    ['b', 'c9', 'c10']
    """
    parts = re.split(r"([0-9]+)", name)  # text and digits take turns, so like meets like
    bare = [part.lstrip("0") for part in parts]  # the longer number is the larger
    return [(len(bare[i]), bare[i]) if i % 2 else part for i, part in enumerate(parts)], name


def unify_types(columns: Sequence[pl.Series]) -> list[pl.Series]:
    """Cast columns to one type: their common type, or else text."""
    kinds = {column.dtype for column in columns}
    return [c.alias("") if len(kinds) == 1 else c.cast(pl.String).alias("") for c in columns]


def encode_labels(
    y: pl.Series, classes: Sequence[str | int] | None, blocks: Sequence[Block]
) -> tuple[Int64, tuple[str, ...]]:
    """Encode labels as numbers from 0; return them and the names of the classes."""
    for block in blocks:
        if block.numbers is not None and block.numbers.ndim > 1:
            raise MusterError(
                f"{block.where}: y has shape {block.numbers.shape}; give one label for each row, "
                'or targets = "numbers"'
            )
    whole = as_integers(y, blocks)
    if classes is None and whole is not None:
        if (low := int(whole.min())) < 0:
            row = int(np.argmax(whole < 0))
            found = np.unique(whole)
            raise MusterError(
                f"{locate_row(blocks, row)}: label {low} is below 0; say which labels there are, "
                f"in manifest.toml or as data.classes: classes = [{', '.join(map(str, found[:10]))}"
                f"{', ...' if len(found) > 10 else ''}], "
                'or that they are numbers to predict: targets = "numbers"'
            )
        if (top := int(whole.max())) >= max(ENOUGH_CLASSES, len(whole)):
            raise MusterError(
                f"{locate_row(blocks, int(whole.argmax()))}: label {top} makes {top + 1} classes "
                f"of {len(whole)} rows; name the labels there are: classes = [...] in "
                "manifest.toml, or data.classes"
            )
        return whole, tuple(str(c) for c in range(top + 1))
    numeric = whole is not None and all(isinstance(c, int) for c in classes or ())
    text = (pl.Series(whole) if numeric else y).cast(pl.String)
    known = [str(c) for c in classes] if classes else text.unique().sort().to_list()
    codes = text.replace_strict(known, np.arange(len(known)), default=None, return_dtype=pl.Int64)
    if codes.null_count():
        row = int(codes.is_null().arg_max() or 0)
        raise MusterError(
            f"{locate_row(blocks, row)}: label '{text[row]}' is not among classes; "
            f"{nearest(str(text[row]), known)}"
        )
    return codes.to_numpy(), tuple(known)


def numeric_targets(blocks: Sequence[Block]) -> NDArray[Any]:
    """Return targets that are numbers, one or several for each row."""
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
    return concatenate(parts)


def as_integers(y: pl.Series, blocks: Sequence[Block]) -> Int64 | None:
    """Return labels as whole numbers, or None if they are names (or beyond 64 bits)."""
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
            f"{locate_row(blocks, row)}: label {y[row]}; labels are classes: whole numbers, or "
            "names"
        )
    return None if named or np.abs(array).max() >= 2.0**63 else array.astype(np.int64)


def locate_row(blocks: Sequence[Block], row: int) -> str:
    """Describe a row of all blocks: its file, label column and row there."""
    ends = np.cumsum([len(block.x) for block in blocks])
    at = int(np.searchsorted(ends, row, side="right"))
    here = row - int(ends[at]) + len(blocks[at].x) + 1
    return f"{blocks[at].where}: column '{blocks[at].y.name}', row {here}"


def mark_test_rows(
    blocks: Sequence[Block], y: Int64, owner: Int64, names: Names, options: Options, seed: int
) -> Bool:
    """Return the mask of test rows: as marked in the files, or drawn."""
    marked = [np.zeros(len(b.x), np.bool_) if b.test is None else b.test for b in blocks]
    test = np.concatenate(marked)
    if has_test_rows(blocks, options):
        if options.test_fraction is not None:
            raise MusterError(f"test_fraction: {blocks[0].where} has test rows; leave it out")
        return test
    fraction = TEST_FRACTION if options.test_fraction is None else options.test_fraction
    return draw_test_mask(y, owner, names, fraction, seed) if fraction else test


def has_test_rows(blocks: Sequence[Block], options: Options) -> bool:
    """Return True if the files mark their test rows."""
    return options.split is not None or any(b.test is not None and b.test.any() for b in blocks)


def draw_test_mask(y: Int64, owner: Int64, names: Names, fraction: float, seed: int) -> Bool:
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


def concatenate(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate arrays; a single one is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def row_weights(blocks: Sequence[Block]) -> Float64 | None:
    """Return the weight of each row, 1 in files without weights; None without any."""
    if all(block.weight is None for block in blocks):
        return None
    return concatenate([np.ones(len(b.x)) if b.weight is None else b.weight for b in blocks])


def select_rows(
    x: NDArray[Any],
    y: NDArray[Any],
    owner: Int64,
    chosen: Bool,
    names: Names,
    what: str,
    content: UInt64 | None = None,
    weight: Float64 | None = None,
) -> RaggedRows:
    """Return the chosen rows, client after client, each client's in the order of its file; the
    weights of a client's rows sum to 1."""
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


def select_priority(options: Options, roles: Sequence[Role], names: Names) -> ArrayLike | None:
    """Return the priority clients; None: all of them, also a single one."""
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


def warn_single_class(fed: Federation, names: Names) -> None:
    """Warn about clients that hold one class only."""
    one = fed.find_single_class()
    if len(one):
        warnings.warn(
            f"{len(one)} of {fed.n} clients hold a single class (the first is '{names[one[0]]}'): "
            "their loss can be low without the model being any good",
            MusterWarning,
            stacklevel=5,
        )
