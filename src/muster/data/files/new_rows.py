"""Reader of new rows for a trained model: the columns of its training rows, and labels if known.

The model's `Inputs` decide what is read: features by name, in the model's order; a column of labels
if there is one; other columns only where training ignored them too, or to be carried through. Rows
unlike those of training are flagged: values far from theirs, levels that none of them had.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import Int64
from ...base.checks import check_one_of
from ...base.errors import MusterError, MusterWarning, command_line, first_line, nearest
from ...base.lazy import pl
from ...federation import Inputs, TableEncoder
from .dialect import PLAIN, detect_dialect
from .image_folders import read_new_images
from .npz import build_block, load_npz
from .table_reader import read_columns, read_header, recode_values
from .tabular import (
    ENDINGS,
    MISSING,
    TABLES,
    encode_categories,
    null_na_values,
    read_levels,
    read_numbers,
    read_tokens,
    read_values,
)

Unknown = Literal["error", "missing"]
AS_MISSING = '; or count it as missing and flag the row: --unknown missing (unknown="missing")'


@dataclass(frozen=True, eq=False)
class NewRows:
    """New rows for a model.

    Attributes:
        x: features, before scaling
        y: labels, as numbers of classes or numbers to predict; None: there are none
        flags: what is unlike training rows, for each row; empty: nothing to compare by
        kept: columns that are carried through
    """

    x: NDArray[Any]
    y: NDArray[Any] | None
    flags: list[str] = field(default_factory=list)
    kept: pl.DataFrame | None = None


@dataclass(frozen=True)
class RowOptions:
    """Settings for new rows.

    Attributes:
        keep: columns to carry through
        unknown: for a level that no training row has: "error", or "missing" to treat it as missing
    """

    keep: tuple[str, ...] = ()
    unknown: Unknown = "error"

    def __post_init__(self) -> None:
        check_one_of("unknown", self.unknown, ("error", "missing"))


def read_rows(path: Path, inputs: Inputs, options: RowOptions = RowOptions()) -> NewRows:
    """Read the features of a file, and its labels if it has some. The dialect of a CSV file is
    detected, and a warning says so where it is not the usual one."""
    if not path.exists():
        raise MusterError(f"{path}: no such file; give a {', '.join(ENDINGS)} file")
    if path.is_dir() or path.suffix not in ENDINGS:
        what = "is a folder" if path.is_dir() else f"ends in '{path.suffix}'"
        raise MusterError(f"{path}: {what}; allowed: {', '.join(ENDINGS)} files")
    if path.suffix not in TABLES:
        return read_arrays(path, inputs, options)
    dialect = detect_dialect(path)
    if dialect != PLAIN:
        warnings.warn(f"{path}: read with {dialect}", MusterWarning, stacklevel=2)
    names = select_columns(read_header(path, dialect), inputs, path, options.keep)
    return split_frame(read_columns(path, names, dialect), inputs, path, options)


def select_columns(
    names: list[str], inputs: Inputs, where: Path, keep: tuple[str, ...] = ()
) -> list[str]:
    """Select the columns to read; the model's must all be there, and no others but those to
    keep."""
    if inputs.columns is None:
        shape = ", ".join(map(str, inputs.shape))
        raise MusterError(
            f"{where}: the model was trained on rows without column names; give an npz file whose "
            f"x has the shape (rows, {shape})"
        )
    for name in inputs.columns:
        if name not in names:
            raise MusterError(
                f"{where}: no column '{name}', which the model was trained on; "
                f"{nearest(name, names)}"
            )
    labels = [name for name in inputs.label_columns if name in names]
    if labels and len(labels) < len(inputs.label_columns):
        (lacks, *_) = (name for name in inputs.label_columns if name not in names)
        raise MusterError(f"{where}: label '{labels[0]}' without '{lacks}'; give all, or none")
    for name in keep:
        if name not in names:
            raise MusterError(f"{where}: keep: no column '{name}'; {nearest(name, names)}")
    known = {*inputs.columns, *labels, *(inputs.aside or ()), *keep}
    extra = [name for name in names if name not in known]
    if extra and inputs.aside is not None:
        raise MusterError(
            f"{where}: column '{extra[0]}' is not one the model was trained on; remove it, or "
            f"carry it through with keep ({command_line('--keep', extra[0])})"
        )
    return list(dict.fromkeys([*inputs.columns, *labels, *keep]))


def split_frame(
    frame: pl.DataFrame,
    inputs: Inputs,
    where: Path = Path("rows"),
    options: RowOptions = RowOptions(),
) -> NewRows:
    """Split a frame into features, labels, and columns to keep."""
    names = select_columns(frame.columns, inputs, where, options.keep)
    if not len(frame):
        raise MusterError(f"{where}: no rows; give at least one")
    kept = frame.select(options.keep) if options.keep else None
    frame = recode_values(frame, inputs.recode)
    encoder, strange = inputs.encoder, dict[str, pl.Series]()
    if encoder is not None:
        frame = null_na_values(frame, encoder.nothing)
    if inputs.text is not None:
        x = read_tokens(frame, inputs.text, where)
    elif encoder is not None:
        texts = {name: read_levels(frame[name], where, encoder.fills) for name in encoder.levels}
        warn_missing_levels(texts, encoder, where)
        if options.unknown == "missing":
            strange = find_unknown(texts, encoder)
            texts = {c: texts[c].set(mark.is_not_null(), None) for c, mark in strange.items()}
        plain = [name for name in encoder.columns if name not in encoder.levels]
        x = read_numbers(frame, plain, where, True, "fix it or drop the row", encoder.fills)
        x = encode_categories(x, texts, encoder.columns, encoder.levels, str(where), AS_MISSING)
        for name, mark in strange.items():  # where nothing may be missing: none of the levels
            if not encoder.fills:
                x[mark.is_not_null().to_numpy(), encoder.columns.index(name)] = -1.0
    else:
        x = read_numbers(
            frame, inputs.columns or (), where, inputs.scaler is not None, "fix it or drop the row"
        )
    return NewRows(x, read_labels(frame, names, inputs, where), flag_rows(x, inputs, strange), kept)


def read_labels(
    frame: pl.DataFrame, names: list[str], inputs: Inputs, where: Path
) -> NDArray[Any] | None:
    """Read the labels of a frame: the numbers of classes, or numbers to predict; None without."""
    labels = inputs.label_columns
    if not labels or labels[0] not in names:
        return None
    if not inputs.classes:
        targets = read_numbers(frame, labels, where, True, "fix it or drop the row")
        return targets if inputs.target else targets[:, 0]
    return encode_classes(read_values(frame[labels[0]], where, "labels", MISSING), inputs, where)


def find_unknown(texts: dict[str, pl.Series], encoder: TableEncoder) -> dict[str, pl.Series]:
    """Return the values of each category that are no levels of the model; null for the others."""
    return {
        name: text.set(text.is_in(encoder.levels[name]).fill_null(True), None)
        for name, text in texts.items()
    }


def flag_rows(
    x: NDArray[Any], inputs: Inputs, strange: Mapping[str, pl.Series] | None = None
) -> list[str]:
    """Return what is unlike training rows in each row, "" for nothing; an empty list where there
    are no columns to compare by."""
    columns, ranges = inputs.columns or (), inputs.find_ranges()
    if not (ranges or strange) or x.shape[1:] != (len(columns),):
        return []
    found: list[list[str]] = [[] for _ in x]
    for j, name in enumerate(columns):
        low, high = ranges.get(name, (-np.inf, np.inf))
        for i in np.flatnonzero((x[:, j] < low) | (x[:, j] > high)):
            found[i].append(f"{name} {x[i, j]:g} outside {low:.4g} to {high:.4g}")
        values = (strange or {}).get(name, pl.Series(dtype=pl.String))
        for i in values.is_not_null().arg_true():
            found[i].append(f"{name} '{values[i]}' unknown")
    return ["; ".join(texts) for texts in found]


def warn_missing_levels(texts: dict[str, pl.Series], encoder: TableEncoder, where: Path) -> None:
    """Warn about missing categories in columns without a feature for them: a missing number is
    imputed by the mean, a missing category is not."""
    for name, text in texts.items():
        if name not in encoder.holes and text.null_count():
            row = int(text.is_null().arg_max() or 0)
            warnings.warn(
                f"{where}: column '{name}', row {row + 1}: is missing, as it is in no training "
                "row; it counts as none of the levels",
                MusterWarning,
                stacklevel=2,
            )


def encode_classes(y: pl.Series, inputs: Inputs, where: Path) -> Int64:
    """Encode labels as the numbers of classes, by their names in the model; whole numbers in the
    spelling used there."""
    text = y.cast(pl.String)
    whole = text.cast(pl.Float64, strict=False)
    whole = whole.set(whole.fill_null(0.5) != whole.fill_null(0.5).floor(), None)
    text = pl.select(
        pl.when(text.is_in(inputs.names))
        .then(text)
        .otherwise(pl.coalesce(whole.cast(pl.Int64, strict=False).cast(pl.String), text))
    ).to_series()
    wrong = ~text.is_in(inputs.names)
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        raise MusterError(
            f"{where}: column '{y.name}', row {row + 1}: label '{y[row]}' is none of the model's "
            f"classes; {nearest(str(y[row]), inputs.names)}"
        )
    known = inputs.names
    return text.replace_strict(known, range(len(known)), return_dtype=pl.Int64).to_numpy()


def read_images(path: Path, inputs: Inputs) -> tuple[NDArray[np.uint8], Int64 | None, list[str]]:
    """Read images: one, a folder of them, or a folder for each class; with their files."""
    if not path.exists():
        raise MusterError(f"{path}: no such file; give an image, or a folder of them")
    x, labels, files = read_new_images(path, inputs)
    if labels is None:
        return x, None, files
    return x, encode_classes(pl.Series("class", labels), inputs, path), files


def read_arrays(path: Path, inputs: Inputs, options: RowOptions) -> NewRows:
    """Read the x of an npz file, and its y if it has one."""
    arrays = load_npz(path)
    if "x" not in arrays:
        raise MusterError(f"{path}: no array 'x'; it holds {', '.join(arrays) or 'none'}")
    has_labels = "y" in arrays
    if not has_labels:
        arrays["y"] = np.zeros(len(arrays["x"]), np.int64)
    block = build_block(path, arrays, "x", "y", test=False)
    rows = convert_array(block.x, inputs, path, options)
    if not has_labels:
        return rows
    if inputs.classes:
        return replace(rows, y=encode_classes(block.y, inputs, path))
    y = block.numbers
    if y is None or y.dtype.kind not in "fiub" or y.shape[1:] != inputs.target:
        shape = ", ".join(map(str, ("rows", *inputs.target)))
        raise MusterError(f"{path}: y: the model's targets are numbers of shape ({shape})")
    return replace(rows, y=y)


def convert_array(
    x: NDArray[Any],
    inputs: Inputs,
    where: Path = Path("rows"),
    options: RowOptions = RowOptions(),
) -> NewRows:
    """Return an array of rows; where an encoder computes features from a table's columns and the
    array has those, they are encoded."""
    if options.keep:
        raise MusterError(f"{where}: keep: an array has no columns to carry through; give a table")
    encoder = inputs.encoder
    if encoder is None or x.ndim != 2 or x.shape[1] != len(encoder.columns):
        return NewRows(x, None, flag_rows(x, inputs) if x.dtype.kind in "fiu" else [])
    frame = to_frame(dict(zip(encoder.columns, x.T, strict=True)))
    return split_frame(frame, inputs, where, options)


def to_frame(rows: Any) -> pl.DataFrame:
    """Convert a mapping or another library's frame to a polars frame."""
    if isinstance(rows, pl.DataFrame):
        return rows
    names = list(rows) if isinstance(rows, Mapping) else list(rows.columns)

    def column(name: Any) -> pl.Series:
        values = np.asarray(rows[name])
        # Numbers next to text or to None: polars finds a type for them all.
        plain = values.tolist() if values.dtype == object else values
        return pl.Series(str(name), plain, strict=False)

    try:
        return pl.DataFrame([column(name) for name in names])
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        raise MusterError(f"rows: not a table ({first_line(error)}); give a frame") from None
