"""Rows from tables: CSV and parquet as arrays, with errors that name file, column and row.

A file becomes a `Block`: features as one array, labels and owners as columns. Nothing is done row
by row; only when a whole array turns out to hold something wrong is the first culprit looked for.
Rows are counted from 1 and a header is not counted.
"""

from __future__ import annotations

import csv
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import Bool, Float64
from ...base.errors import MusterError, first_line, nearest
from ...base.lazy import pl
from ...base.untrusted_files import (
    TABLE,
    NotRegular,
    descriptor_path,
    frame_columns,
    open_file,
    read_frame,
    table_errors,
)
from ...federation import TextEncoder

TABLES = (".csv", ".parquet")
ENDINGS = (*TABLES, ".npz")
LONGEST = 255  # letters of a client's name, as of a file's
HOLES = ("", "?", "NA", "nan", "NaN")  # what stands where something is missing


@dataclass(frozen=True)
class Columns:
    """Which column is what. `features` None: all that are nothing else.

    Attributes:
        categories: features that are text or numbers to be told apart, not measured
        holes: whether features may be missing
        text: how the one feature, a column of text, becomes tokens
        nothing: by column, numbers that mean that nothing was measured
    """

    labels: tuple[str, ...]
    client: str | None = None
    split: str | None = None
    features: tuple[str, ...] | None = None
    categories: tuple[str, ...] = ()
    holes: bool = False
    text: TextEncoder | None = None
    nothing: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def prepared(self) -> bool:
        """Whether features are to be made of columns."""
        return bool(self.categories) or self.holes

    @property
    def roles(self) -> dict[str, str]:
        """The columns that are no features, by what they are."""
        labels = {f"label {i + 1}" if i else "label": name for i, name in enumerate(self.labels)}
        named = {**labels, "client": self.client, "split": self.split}
        return {role: column for role, column in named.items() if column is not None}


@dataclass(frozen=True)
class Block:
    """The rows of one file (or of the x or x_test of one npz file); `where` names it in errors."""

    source: str
    where: str
    x: NDArray[Any]
    y: pl.Series
    features: tuple[str, ...] = ()
    client: pl.Series | None = None
    test: Bool | None = None
    weight: Float64 | None = None
    texts: dict[str, pl.Series] = field(default_factory=dict)  # features that are categories
    numbers: NDArray[Any] | None = None  # targets, where there may be several for each row


def header(path: Path) -> list[str]:
    """The column names of a table, which must differ."""
    if path.suffix == ".parquet":
        with readable(path):
            return frame_columns(path)
    with readable(path), as_text(path, "utf-8-sig", "strict") as file:
        names = next(csv.reader(file), [])
    if not names:
        what = "its first line is empty" if path.stat().st_size else "empty"
        raise MusterError(f"{path}: {what}; give a header line and at least one row")
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        raise MusterError(f"{path}: its one column is '{names[0]}'; separate columns by commas")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise MusterError(f"{path}: two columns are called '{twice}'; give them different names")
    return names


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Whatever is wrong with the bytes of a file is one line that names it."""
    try:
        yield
    except NotRegular:
        raise
    except (
        ValueError, OSError, EOFError, KeyError, OverflowError, NotImplementedError,
        zipfile.BadZipFile, zlib.error, csv.Error, tokenize.TokenError, SyntaxError,
    ) as error:  # fmt: skip
        raise broken(path, error) from None


def broken(path: Path, error: Exception) -> MusterError:
    """The error for a file that cannot be read, with the first line of the reason."""
    reason = first_line(error)
    if isinstance(error, UnicodeDecodeError) or "utf-8" in reason:
        return MusterError(f"{path}: its text is not UTF-8; save it as CSV in UTF-8")
    return MusterError(f"{path}: not readable as {path.suffix[1:]} ({reason}); write it again")


def read_table(path: Path, columns: Columns, like: Block | None, exact: bool) -> Block:
    """A CSV or parquet file. Features are float64 when `exact`, else float32.

    Args:
        like: the first file read, whose features every other file must have too
    """
    names = header(path)
    for role, column in columns.roles.items():
        if column not in names:
            raise MusterError(
                f"{path}: no {role} column '{column}'; name it with {role.split()[0]}=..., "
                f"{nearest(column, names)}"
            )
        twice = next((r for r, c in columns.roles.items() if c == column and r != role), None)
        if twice is not None:
            raise MusterError(f"{path}: column '{column}' is both {role} and {twice}; name two")
    others = tuple(name for name in names if name not in columns.roles.values())
    features = columns.features or (others if like is None else like.features)
    if not features:
        raise MusterError(f"{path}: no feature column; it has only {', '.join(names)}")
    for name in features:
        if name in columns.roles.values():
            raise MusterError(f"{path}: column '{name}' is a feature and something else as well")
        if name not in names:
            told = "" if like is None else f", which {like.where} has"
            raise MusterError(f"{path}: no feature column '{name}'{told}; {nearest(name, names)}")
    extra = [name for name in others if name not in features]
    if columns.features is None and extra:
        assert like is not None
        raise MusterError(
            f"{path}: column '{extra[0]}' is not in {like.where}; give every file the same "
            "columns, or name those to use with features=[...]"
        )
    for name in columns.categories:
        if name not in features:
            raise MusterError(f"{path}: category '{name}' is no feature; {nearest(name, features)}")
    frame = measured(rows_of(path, [*columns.roles.values(), *features]), columns.nothing)
    if not len(frame):
        raise MusterError(f"{path}: no rows; give at least one")
    if columns.text is not None:
        x = tokens(frame, columns.text, path)
    else:
        plain = [name for name in features if name not in columns.categories]
        x = numbers(frame, plain, path, exact or columns.prepared, holes=columns.holes)
    targets = None
    if len(columns.labels) > 1:
        advice = "write it as one, or drop the row"
        targets = numbers(frame, columns.labels, path, True, advice)
    return Block(
        path.stem,
        str(path),
        x,
        values(frame[columns.labels[0]], path, "labels", HOLES),
        features,
        None if columns.client is None else owners(frame[columns.client], path),
        None if columns.split is None else is_test(frame[columns.split], path),
        texts={c: as_level(frame[c], path, columns.holes) for c in columns.categories},
        numbers=targets,
    )


def tokens(frame: pl.DataFrame, text: TextEncoder, path: Path) -> NDArray[Any]:
    """A column of text as tokens."""
    texts = values(frame[text.column], path, "texts").cast(pl.String)
    return text(texts.to_list(), str(path))


def measured(frame: pl.DataFrame, nothing: Mapping[str, tuple[float, ...]]) -> pl.DataFrame:
    """The frame without numbers that mean that nothing was measured."""

    def empty(name: str) -> pl.Expr:
        number = pl.col(name).cast(pl.String).cast(pl.Float64, strict=False)
        return number.is_in(nothing[name]).fill_null(False)

    return frame.with_columns(pl.when(~empty(name)).then(pl.col(name)) for name in nothing)


def as_level(column: pl.Series, path: Path, holes: bool) -> pl.Series:
    """A column of categories as text, numbers alike however they are written. With `holes`, null
    where one is missing."""
    try:
        text = column.cast(pl.String).str.strip_chars()
    except pl.exceptions.PolarsError:
        raise MusterError(
            f"{path}: column '{column.name}' holds {column.dtype}; categories are text or numbers"
        ) from None
    number = text.cast(pl.Float64, strict=False)
    whole = number.set((number != number.floor()).fill_null(True), None)
    whole = whole.cast(pl.Int64, strict=False).cast(pl.String)
    text = pl.select(pl.coalesce(whole, text).alias(column.name)).to_series()
    return text.set(text.is_in(HOLES), None) if holes else present(text, path, HOLES)


def coded(
    x: NDArray[Any],
    texts: dict[str, pl.Series],
    features: tuple[str, ...],
    levels: dict[str, tuple[str, ...]],
    where: str = "",
) -> NDArray[Any]:
    """All features in their order: numbers, and categories as the places of their levels; NaN where
    something is missing. A level that nobody had in training is an error."""
    made = np.full((len(x), len(features)), np.nan)
    made[:, [j for j, name in enumerate(features) if name not in levels]] = x
    for name, text in texts.items():
        known = levels[name]
        at = text.replace_strict(known, range(len(known)), default=None, return_dtype=pl.Int64)
        strange = at.is_null() & text.is_not_null()
        if strange.any():
            row = int(strange.arg_max() or 0)
            raise MusterError(
                f"{where}: column '{name}', row {row + 1}: '{text[row]}' is no level the model "
                f"knows; {nearest(str(text[row]), known)}"
            )
        made[:, features.index(name)] = at.cast(pl.Float64).fill_null(np.nan).to_numpy()
    return made


def rows_of(path: Path, names: Sequence[str]) -> pl.DataFrame:
    """The named columns. Those of a CSV come as text, so that any wrong value can be quoted."""
    if path.suffix == ".parquet":
        with readable(path):
            return read_frame(path, names, follow=True)
    with readable(path):
        try:
            with open_file(path, TABLE, follow=True) as file, table_errors():
                frame = pl.read_csv(
                    descriptor_path(file, path), glob=False, infer_schema=False, columns=list(names)
                )
        except ValueError:
            check_fields(path)
            raise
    frame = frame.select(pl.col(names).str.strip_chars())
    end = len(frame)
    for _ in range(blank_lines(path)):
        if not end or any(value for value in frame.row(end - 1)):
            break
        end -= 1
    return frame.head(end)


def blank_lines(path: Path) -> int:
    """How many empty lines a file ends with, which editors leave there."""
    with open_file(path, TABLE, follow=True) as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - 4096))
        tail = file.read()
    return max(0, tail[len(tail.rstrip()) :].count(b"\n") - 1)


def as_text(path: Path, encoding: str, errors: str) -> TextIOWrapper:
    """A file, open to be read line by line."""
    return TextIOWrapper(open_file(path, TABLE, follow=True), encoding, errors, newline="")


def check_fields(path: Path) -> None:
    """Find the row of a CSV that has more fields than the header."""
    with as_text(path, "utf-8", "replace") as file:
        rows = csv.reader(file)
        width = len(next(rows))
        for i, row in enumerate(rows, start=1):
            if len(row) > width:
                raise MusterError(f"{path}: row {i} has {len(row)} fields, the header {width}")


def numbers(
    frame: pl.DataFrame,
    names: Sequence[str],
    path: Path,
    exact: bool,
    advice: str = "write it as one, or leave the column out with features=[...]",
    holes: bool = False,
) -> NDArray[Any]:
    """Columns as one array of finite numbers; `advice` is for what is no number. With `holes`, NaN
    where one is missing."""
    if not names:
        return np.empty((len(frame), 0))
    frame = frame.select(names)
    for name, kind in frame.schema.items():
        if not (kind.is_numeric() or kind in (pl.String, pl.Boolean, pl.Null)):
            raise MusterError(f"{path}: column '{name}' holds {kind}; features must be numbers")
    wanted = pl.Float64 if exact else pl.Float32
    text = [name for name, k in frame.schema.items() if k == pl.String]
    parsed = frame.with_columns(pl.col(text).cast(pl.Float64, strict=False))
    x: NDArray[Any] = parsed.select(pl.all().cast(wanted)).to_numpy(order="c")
    wrong = ~np.isfinite(x)
    if holes and wrong.any():
        nothing = pl.all().is_null() | pl.all().cast(pl.String).is_in(HOLES)
        wrong &= ~frame.select(nothing).to_numpy()
    if wrong.any():
        i, j = (int(at[0]) for at in np.nonzero(wrong))
        value, name = frame[i, j], frame.columns[j]
        if value is None or value == "":
            what = "is missing; fill it in or drop the row"
        elif parsed[i, j] is None:
            what = f"'{value}' is not a number; {advice}"
        else:
            what = f"{value} is not finite as {x.dtype}; fix it or drop the row"
        raise MusterError(f"{path}: column '{name}', row {i + 1}: {what}")
    return x


def present(column: pl.Series, path: Path, holes: Sequence[str] = ("",)) -> pl.Series:
    """A column without holes, which are written in one of these ways."""
    hole = column.is_null() | (column.is_in(holes) if column.dtype == pl.String else False)
    if hole.any():
        row = hole.arg_max()
        assert row is not None
        written = f" ('{column[row]}')" if column[row] else ""
        raise MusterError(
            f"{path}: column '{column.name}', row {row + 1}: is missing{written}; fill it in or "
            "drop the row"
        )
    return column


def values(column: pl.Series, path: Path, what: str, holes: Sequence[str] = ("",)) -> pl.Series:
    """A column of names or numbers without holes; categories as the names they are."""
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if not (column.dtype.is_numeric() or column.dtype in (pl.String, pl.Boolean)):
        raise MusterError(
            f"{path}: column '{column.name}' holds {column.dtype}; {what} are text or whole numbers"
        )
    return present(column, path, holes)


def owners(column: pl.Series, path: Path) -> pl.Series:
    """Each row's client, by name."""
    if column.dtype.is_float():
        raise MusterError(
            f"{path}: column '{column.name}' holds {column.dtype}; clients are text or whole "
            "numbers"
        )
    named = values(column, path, "clients").cast(pl.String)
    long = named.str.len_chars() > LONGEST
    if long.any():
        row = int(long.arg_max() or 0)
        raise MusterError(
            f"{path}: column '{column.name}', row {row + 1}: a client's name of "
            f"{len(str(named[row]))} letters; allowed: up to {LONGEST}"
        )
    return named


def is_test(column: pl.Series, path: Path) -> Bool:
    """Which rows a split column keeps for testing."""
    held = values(column, path, "splits").cast(pl.String)
    wrong = ~held.is_in(["train", "test"])
    if wrong.any():
        row = wrong.arg_max()
        assert row is not None
        raise MusterError(
            f"{path}: column '{column.name}', row {row + 1}: '{held[row]}'; allowed: train, test"
        )
    return (held == "test").to_numpy()
