"""Tables as arrays: the columns of a CSV or parquet file, with errors that name file, column, row.

A file becomes a `Block`: features as one array, labels and clients as columns. Nothing is done row
by row; only when a whole array holds something wrong is the first wrong row searched. Rows are
counted from 1, without the header. Missing values are found here; they are imputed by
`federation.TableEncoder`, which also encodes categories one-hot.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import Bool, Float64, Int64
from ...base.errors import MusterError, MusterWarning, list_names, nearest, one_line
from ...base.lazy import pl
from ...federation import TextEncoder
from ...federation.spellings import are_near
from .dialect import PLAIN, Dialect
from .table_reader import CHECK, read_columns, read_header, recode_values, suggest_decimal

TABLES = (".csv", ".parquet")
ENDINGS = (*TABLES, ".npz")
LONGEST = 255  # characters of a client's name, as of a file's
MISSING = ("", "?", "NA", "nan", "NaN")  # spellings of a missing value


@dataclass(frozen=True)
class Columns:
    """The columns to read. `features` None: all that have no other role.

    Attributes:
        categories: features that are categories, text or numbers
        allow_missing: True if features may have missing values
        text: encoder of the one feature, a column of text
        na_values: numbers that stand for missing values, by column
        recode: values to replace, by column
        ranges: the lowest and the highest value that a column may have
    """

    labels: tuple[str, ...]
    client: str | None = None
    split: str | None = None
    features: tuple[str, ...] | None = None
    categories: tuple[str, ...] = ()
    allow_missing: bool = False
    text: TextEncoder | None = None
    na_values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    recode: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def prepared(self) -> bool:
        """True if an encoder computes the features from the columns."""
        return bool(self.categories) or self.allow_missing

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
    rows: Int64 | None = None  # their places in the file, where some rows are left out

    def select(self, rows: Int64) -> Block:
        """Return the block with some of its rows."""

        def some(values: Any) -> Any:
            return None if values is None else values[rows]

        return replace(
            self,
            x=self.x[rows],
            y=self.y[rows],
            client=some(self.client),
            test=some(self.test),
            weight=some(self.weight),
            texts={name: text[rows] for name, text in self.texts.items()},
            numbers=some(self.numbers),
            rows=rows if self.rows is None else self.rows[rows],
        )


def concatenate(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate arrays; a single one is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def read_table(
    path: Path, columns: Columns, like: Block | None, exact: bool, dialect: Dialect = PLAIN
) -> Block:
    """Read a CSV or parquet file. Features are float64 if `exact`, else float32.

    Args:
        like: the first file, whose features every other file must have too
    """
    names = read_header(path, dialect)
    for role, column in columns.roles.items():
        if column not in names:
            taken = {*(columns.features or ()), *(like.features if like is not None else ())}
            free = [name for name in names if name not in taken]
            close = next((name for name in free if are_near(column, name)), None)
            guess = "" if close is None else f"did you mean '{close}'? "
            raise MusterError(
                f"{path}: no {role} column '{column}'; name it in manifest.toml, "
                f"{role.split()[0]} = ..., {guess}{list_names(free)} ({CHECK})"
            )
        twice = next((r for r, c in columns.roles.items() if c == column and r != role), None)
        if twice is not None:
            raise MusterError(f"{path}: column '{column}' is both {role} and {twice}; name two")
    others = tuple(name for name in names if name not in columns.roles.values())
    features = columns.features or (others if like is None else like.features)
    if columns.features is None and like is None and "" in others:
        warnings.warn(
            f"{path}: a column without a name is taken for a feature, which may be an index; name "
            "those to use: features = [...] in manifest.toml, or data.features",
            MusterWarning,
            stacklevel=2,
        )
    if not features:
        raise MusterError(f"{path}: no feature column; it has only {', '.join(names)}")
    for name in features:
        if name in columns.roles.values():
            raise MusterError(f"{path}: column '{name}' is a feature and has another role as well")
        if name not in names:
            known = "" if like is None else f", which {like.where} has"
            raise MusterError(f"{path}: no feature column '{name}'{known}; {nearest(name, names)}")
    extra = [name for name in others if name not in features]
    if columns.features is None and extra:
        assert like is not None
        what = f"column '{extra[0]}'" if extra[0] else "a column without a name"
        raise MusterError(
            f"{path}: {what} is not in {like.where}; give every file the same "
            "columns, or name those to use: features = [...] in manifest.toml, or data.features"
        )
    for name in columns.categories:
        if name not in features:
            raise MusterError(f"{path}: category '{name}' is no feature; {nearest(name, features)}")
    frame = read_columns(path, [*columns.roles.values(), *features], dialect)
    frame = null_na_values(recode_values(frame, columns.recode), columns.na_values)
    if not len(frame):
        raise MusterError(f"{path}: no rows; give at least one")
    if columns.text is not None:
        x = read_tokens(frame, columns.text, path)
    else:
        plain = [name for name in features if name not in columns.categories]
        x = read_numbers(
            frame, plain, path, exact or columns.prepared, allow_missing=columns.allow_missing
        )
        check_ranges(x, plain, columns.ranges, path)
    targets = None
    if len(columns.labels) > 1:
        advice = "write it as one, or drop the row"
        targets = read_numbers(frame, columns.labels, path, True, advice)
    return Block(
        path.stem,
        str(path),
        x,
        read_values(frame[columns.labels[0]], path, "labels", MISSING),
        features,
        None if columns.client is None else read_clients(frame[columns.client], path),
        None if columns.split is None else parse_split(frame[columns.split], path),
        texts={c: read_levels(frame[c], path, columns.allow_missing) for c in columns.categories},
        numbers=targets,
    )


def read_tokens(frame: pl.DataFrame, text: TextEncoder, path: Path) -> NDArray[Any]:
    """Read a column of text as tokens."""
    texts = read_values(frame[text.column], path, "texts").cast(pl.String)
    return text(texts.to_list(), str(path))


def null_na_values(frame: pl.DataFrame, na_values: Mapping[str, tuple[float, ...]]) -> pl.DataFrame:
    """Replace numbers that stand for missing values by nulls."""

    def empty(name: str) -> pl.Expr:
        number = pl.col(name).cast(pl.String).cast(pl.Float64, strict=False)
        return number.is_in(na_values[name]).fill_null(False)

    return frame.with_columns(pl.when(~empty(name)).then(pl.col(name)) for name in na_values)


def read_levels(column: pl.Series, path: Path, allow_missing: bool) -> pl.Series:
    """Read a column of categories as text, whole numbers in one spelling. With `allow_missing`,
    null where a value is missing."""
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
    return (
        text.set(text.is_in(MISSING), None)
        if allow_missing
        else require_present(text, path, MISSING)
    )


def encode_categories(
    x: NDArray[Any],
    texts: dict[str, pl.Series],
    features: tuple[str, ...],
    levels: dict[str, tuple[str, ...]],
    where: str = "",
    advice: str = "",
) -> NDArray[Any]:
    """Return all features in their order: numbers, and categories as positions of their levels; NaN
    for missing values. A level that no training row has is an error, which `advice` ends."""
    table = np.full((len(x), len(features)), np.nan)
    table[:, [j for j, name in enumerate(features) if name not in levels]] = x
    for name, text in texts.items():
        known = levels[name]
        at = text.replace_strict(known, range(len(known)), default=None, return_dtype=pl.Int64)
        strange = at.is_null() & text.is_not_null()
        if strange.any():
            row = int(strange.arg_max() or 0)
            raise MusterError(
                f"{where}: column '{name}', row {row + 1}: '{text[row]}' is no level the model "
                f"knows; {nearest(str(text[row]), known)}{advice}"
            )
        table[:, features.index(name)] = at.cast(pl.Float64).fill_null(np.nan).to_numpy()
    return table


def read_numbers(
    frame: pl.DataFrame,
    names: Sequence[str],
    path: Path,
    exact: bool,
    advice: str = "write it as one, or leave the column out with features=[...]",
    allow_missing: bool = False,
) -> NDArray[Any]:
    """Read columns as one array of finite numbers; `advice` ends the error about what is no number.
    With `allow_missing`, NaN for missing values."""
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
    if allow_missing and wrong.any():
        absent = pl.all().is_null() | pl.all().cast(pl.String).is_in(MISSING)
        wrong &= ~frame.select(absent).to_numpy()
    if wrong.any():
        i, j = (int(at[0]) for at in np.nonzero(wrong))
        value, name = frame[i, j], frame.columns[j]
        if value is None or value == "":
            what = "is missing; fill it in or drop the row"
        elif parsed[i, j] is None:
            shown = one_line(str(value))
            what = f"'{shown}' is not a number; {suggest_decimal(value) or advice}"
        else:
            what = f"{value} is not finite as {x.dtype}; fix it or drop the row"
        raise MusterError(f"{path}: column '{name}', row {i + 1}: {what}")
    return x


def check_ranges(
    x: NDArray[Any], names: Sequence[str], ranges: Mapping[str, tuple[float, float]], path: Path
) -> None:
    """Refuse values outside the range that was agreed on for their column."""
    for j, name in enumerate(names):
        low, high = ranges.get(name, (-np.inf, np.inf))
        wrong = (x[:, j] < low) | (x[:, j] > high)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise MusterError(
                f"{path}: column '{name}', row {row + 1}: {x[row, j]:g} is outside its range, "
                f"{low:g} to {high:g}; fix it, or widen [range] in the manifest"
            )


def require_present(column: pl.Series, path: Path, missing: Sequence[str] = ("",)) -> pl.Series:
    """Return a column, or raise an error if it has a missing value, in one of these spellings."""
    absent = column.is_null() | (column.is_in(missing) if column.dtype == pl.String else False)
    if absent.any():
        row = absent.arg_max()
        assert row is not None
        written = f" ('{column[row]}')" if column[row] else ""
        raise MusterError(
            f"{path}: column '{column.name}', row {row + 1}: is missing{written}; fill it in or "
            "drop the row"
        )
    return column


def read_values(
    column: pl.Series, path: Path, what: str, missing: Sequence[str] = ("",)
) -> pl.Series:
    """Read a column of names or numbers without missing values; categories as their names."""
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if not (column.dtype.is_numeric() or column.dtype in (pl.String, pl.Boolean)):
        raise MusterError(
            f"{path}: column '{column.name}' holds {column.dtype}; {what} are text or whole numbers"
        )
    return require_present(column, path, missing)


def read_clients(column: pl.Series, path: Path) -> pl.Series:
    """Read each row's client, by name."""
    if column.dtype.is_float():
        raise MusterError(
            f"{path}: column '{column.name}' holds {column.dtype}; clients are text or whole "
            "numbers"
        )
    named = read_values(column, path, "clients").cast(pl.String)
    long = named.str.len_chars() > LONGEST
    if long.any():
        row = int(long.arg_max() or 0)
        raise MusterError(
            f"{path}: column '{column.name}', row {row + 1}: a client's name of "
            f"{len(str(named[row]))} characters; allowed: up to {LONGEST}"
        )
    return named


def parse_split(column: pl.Series, path: Path) -> Bool:
    """Return the mask of the test rows of a split column."""
    splits = read_values(column, path, "splits").cast(pl.String)
    wrong = ~splits.is_in(["train", "test"])
    if wrong.any():
        row = wrong.arg_max()
        assert row is not None
        raise MusterError(
            f"{path}: column '{column.name}', row {row + 1}: '{splits[row]}'; allowed: train, test"
        )
    return (splits == "test").to_numpy()
