"""Assembly of a federation from blocks of rows: owners, copies of rows, train/test split.

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
from ...federation.population import as_priority
from ...federation.ragged_rows import RaggedRows, as_tensor
from ...federation.row_hashes import hash_rows
from ..split.train_test import draw_test_rows, first_clients, held_out_sizes
from .label_encoding import (
    check_codings,
    check_test_labels,
    encode_labels,
    numeric_targets,
    unify_types,
)
from .manifest import Options, Role
from .tabular import Block, concatenate

Names = NDArray[np.str_]

TEST_FRACTION = 0.2


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
    train_rows: int | None = None,
) -> AssignedRows:
    """Assign the rows of all blocks to clients: by their client column, or one for each source.

    Args:
        get_roles: returns the clients' roles by their names; empty if none are given
        train_rows: number of training rows of each priority client, which holds out all others;
            None: it holds out as many as everyone
    """
    owner, names = assign_owners(blocks)
    roles = list(get_roles(names).values())
    labels: tuple[str, ...] | None
    if options.numbers:
        y, labels = numeric_targets(blocks), None
    else:
        given = pl.concat(unify_types([b.y for b in blocks]))
        if options.classes is None:
            check_codings(given, owner, names, blocks[0].y.name)
        y, labels = encode_labels(given, options.classes, blocks)
    unseen = np.zeros(len(names), np.bool_)
    unseen[: len(roles)] = [role.unseen for role in roles]
    priority = as_priority(select_priority(options, roles, names), unseen)
    kept = None if train_rows is None else np.where(priority, train_rows, 0)
    strata = np.zeros(len(y), np.int64) if labels is None else y
    if kept is not None and y.ndim > 1:
        strata = (y[:, -1] > 0).astype(np.int64)  # few rows of survival keep some with an event
    test = mark_test_rows(blocks, strata, owner, names, options, seed, kept)
    if labels is not None and options.classes is None and has_test_rows(blocks, options):
        check_test_labels(y, labels, test, len(names) == 1, blocks)
    drawn = bool(test.any()) and not has_test_rows(blocks, options)
    return AssignedRows(owner, names, y, labels, test, drawn, roles, priority, unseen)


def assemble(
    blocks: Sequence[Block],
    options: Options,
    seed: int,
    name: str,
    get_roles: Callable[[Names], Mapping[str, Role]] = lambda names: {},
    rescale: Rescale = lambda x, rows: x,
    train_rows: int | None = None,
) -> Federation:
    """Build the federation of all blocks.

    Args:
        rescale: computes the features of a model from all columns and the rows' clients
        train_rows: see `assign_rows`
    """
    rows = assign_rows(blocks, options, seed, get_roles, train_rows)
    owner, names, y, labels, test = rows.owner, rows.names, rows.y, rows.labels, rows.test
    if labels is not None and len(labels) < 2:
        raise MusterError(
            f"column '{blocks[0].y.name}': every label is '{labels[0]}', and there is nothing to "
            "learn from one class; give rows of another one, list both with classes = [...], or "
            'say that labels are numbers to predict: targets = "numbers"'
        )
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


def drop_copies(blocks: Sequence[Block]) -> list[Block]:
    """Leave out rows that are copies of an earlier row of the same client: the same features and
    label, whichever of the two is a test row."""
    owner, _ = assign_owners(blocks)
    x = concatenate([block.x for block in blocks]).reshape(len(owner), -1)
    columns = {f"x{j}": x[:, j] for j in range(x.shape[1])}
    if blocks[0].numbers is not None:
        targets = concatenate([b.numbers for b in blocks if b.numbers is not None])
        columns |= {f"t{j}": targets[:, j] for j in range(targets.shape[1])}
    frame = pl.DataFrame({**columns, "owner": owner}).with_columns(
        pl.concat(unify_types([b.y for b in blocks])).alias("y"),
        *(
            pl.concat([b.texts[name] for b in blocks]).alias(f"c {name}")
            for name in blocks[0].texts
        ),
    )
    first = frame.with_row_index("at").unique(frame.columns, keep="first", maintain_order=True)
    kept = first["at"].to_numpy().astype(np.int64)
    ends = np.cumsum([len(block.x) for block in blocks])
    pieces = np.split(kept, np.searchsorted(kept, ends[:-1]))
    starts = ends - [len(block.x) for block in blocks]
    return [b.select(some - start) for b, some, start in zip(blocks, pieces, starts, strict=True)]


def natural_key(name: str) -> tuple[list[str | tuple[int, str]], str]:
    """Return a sort key that orders numbers in names by size.

    >>> sorted(["c10", "c9", "b"], key=natural_key)
    ['b', 'c9', 'c10']
    """
    parts = re.split(r"([0-9]+)", name)  # text and digits take turns, so like meets like
    bare = [part.lstrip("0") for part in parts]  # the longer number is the larger
    return [(len(bare[i]), bare[i]) if i % 2 else part for i, part in enumerate(parts)], name


def mark_test_rows(
    blocks: Sequence[Block],
    y: Int64,
    owner: Int64,
    names: Names,
    options: Options,
    seed: int,
    kept: Int64 | None,
) -> Bool:
    """Return the mask of test rows: as marked in the files, or drawn."""
    marked = [np.zeros(len(b.x), np.bool_) if b.test is None else b.test for b in blocks]
    test = np.concatenate(marked)
    if has_test_rows(blocks, options):
        if options.test_fraction is not None:
            raise MusterError(f"test_fraction: {blocks[0].where} has test rows; leave it out")
        return test
    fraction = TEST_FRACTION if options.test_fraction is None else options.test_fraction
    return draw_test_mask(y, owner, names, fraction, seed, kept) if fraction else test


def has_test_rows(blocks: Sequence[Block], options: Options) -> bool:
    """Return True if the files mark their test rows."""
    return options.split is not None or any(b.test is not None and b.test.any() for b in blocks)


def draw_test_mask(
    y: Int64, owner: Int64, names: Names, fraction: float, seed: int, kept: Int64 | None = None
) -> Bool:
    """Hold out a fraction of each client's rows, and of each of its classes.

    The draw is keyed by the client's name, so that a client holds out the same rows whether its
    file is read alone or together with the others. The order in which rows are held out does not
    depend on their number: more training rows include the fewer.

    Args:
        kept: number of training rows of each client; 0: by the fraction
    """
    sizes = np.bincount(owner, minlength=len(names))
    if sizes.min() < 2:
        raise MusterError(
            f"test_fraction: client '{names[sizes.argmin()]}' has 1 row; holding out a test part "
            "needs at least 2: leave it out, or give test_fraction = 0"
        )
    held_out = held_out_sizes(sizes, fraction)
    if kept is not None:
        short = np.flatnonzero(sizes <= kept)
        if len(short):
            k = short[0]
            raise MusterError(
                f"rows: {kept[k]} to train on, and client '{names[k]}' has {sizes[k]} in all; "
                f"allowed: up to {sizes[k] - 1}, so that it is tested, or choose another priority"
            )
        held_out = np.where(kept > 0, sizes - kept, held_out)
    key = np.array([zlib.crc32(str(name).encode()) for name in names])
    order = np.argsort(owner, kind="stable")
    test = np.zeros(len(owner), np.bool_)
    test[order] = draw_test_rows(y[order], sizes, held_out, rng.keys(seed, "hold out", client=key))
    return test


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
