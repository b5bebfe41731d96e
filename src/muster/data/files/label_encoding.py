"""Encoding of labels as classes or numbers, and refusals of labels that would be learned wrongly:
one class in several codings, a class that only test rows have."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import Bool, Int64
from ...base.errors import MusterError, MusterWarning, nearest
from ...base.lazy import pl
from .codings import FEW_CODES, describe_codings, find_shift, find_typos, quote
from .tabular import Block, concatenate

ENOUGH_CLASSES = 1000  # always allowed; beyond it, more classes than rows are a mistake


def unify_types(columns: Sequence[pl.Series]) -> list[pl.Series]:
    """Cast columns to one type: their common type, or else text."""
    kinds = {column.dtype for column in columns}
    return [c.alias("") if len(kinds) == 1 else c.cast(pl.String).alias("") for c in columns]


def check_codings(y: pl.Series, owner: Int64, names: NDArray[np.str_], column: str) -> None:
    """Refuse labels of one meaning that clients write in different ways, which would become classes
    that differ: `no` and `No`, `0` and `no`. Warn about labels that may be typos."""
    if y.dtype != pl.String or len(y.unique()) > ENOUGH_CLASSES:
        return
    rows = pl.DataFrame({"label": y, "owner": owner})
    pairs = rows.unique(maintain_order=True)
    own: dict[str, set[str]] = {str(name): set() for name in names}
    for label, k in pairs.iter_rows():
        own[str(names[k])].add(label)
    counts = dict(rows["label"].value_counts().iter_rows())
    what = describe_codings(own, "class")
    if not what:
        if len(counts) <= FEW_CODES and (shift := find_shift(own)) is not None:
            one, other = shift
            warnings.warn(
                f"column '{column}': client '{one}' has {quote(own[one])}, client '{other}' "
                f"{quote(own[other])}, which makes {len(counts)} classes; if these are the same "
                f"codes from another start, replace values with [recode.{column}] in the manifest",
                MusterWarning,
                stacklevel=2,
            )
        for typo, meant in find_typos(counts).items():
            warnings.warn(
                f"column '{column}': label '{typo}' ({counts[typo]} of {len(y)} rows) is a class "
                f"apart from '{meant}'; if it is a typo, write '{meant}'",
                MusterWarning,
                stacklevel=2,
            )
        return
    raise MusterError(
        f"column '{column}': {what}; write each class in one way, replace values with "
        f"[recode.{column}] in the manifest (`muster data check` writes it), or list what is meant "
        "with classes=[...]"
    )


def check_test_labels(
    y: Int64, labels: tuple[str, ...], test: Bool, alone: bool, blocks: Sequence[Block]
) -> None:
    """Refuse a label that only test rows have: no model can learn it. Of a client that is read
    `alone`, others may have it: then it is a warning."""
    strange = test & ~np.isin(y, np.unique(y[~test]))
    if not strange.any():
        return
    row = int(np.argmax(strange))
    what = (
        f"{locate_row(blocks, row)}: label '{labels[y[row]]}' is in no training row; write it as "
        "those are, drop the row, or list what is meant with classes=[...]"
    )
    if not alone:
        raise MusterError(what)
    warnings.warn(what, MusterWarning, stacklevel=2)


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
    here = row - int(ends[at]) + len(blocks[at].x)
    rows = blocks[at].rows
    here = 1 + (here if rows is None else int(rows[here]))
    return f"{blocks[at].where}: column '{blocks[at].y.name}', row {here}"
