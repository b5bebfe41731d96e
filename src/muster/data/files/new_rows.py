"""New rows for a trained model: the same columns as its training rows, labels where they are known.

What is read is decided by the model's `Inputs`: features by name, in the model's order; a column of
labels if there is one; other columns only where training passed over them too.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import Int64
from ...base.errors import MusterError, MusterWarning, first_line, nearest
from ...base.lazy import pl
from ...federation import Inputs, TableEncoder
from .image_folders import new_images
from .npz import array_block, npz_arrays
from .tables import (
    ENDINGS,
    HOLES,
    TABLES,
    as_level,
    coded,
    header,
    measured,
    numbers,
    rows_of,
    tokens,
    values,
)

if TYPE_CHECKING:
    Rows = tuple[NDArray[Any], NDArray[Any] | None]


def read_rows(path: Path, inputs: Inputs) -> Rows:
    """The features of a file, and its labels (None: it has none): the numbers of classes, or
    numbers to predict."""
    if not path.exists():
        raise MusterError(f"{path}: no such file; give a {', '.join(ENDINGS)} file")
    if path.is_dir() or path.suffix not in ENDINGS:
        what = "is a folder" if path.is_dir() else f"ends in '{path.suffix}'"
        raise MusterError(f"{path}: {what}; allowed: {', '.join(ENDINGS)} files")
    if path.suffix not in TABLES:
        return read_arrays(path, inputs)
    names = chosen(header(path), inputs, path)
    return columns_of(rows_of(path, names), inputs, path)


def chosen(names: list[str], inputs: Inputs, where: Path) -> list[str]:
    """The columns to read of those there are; the model's must all be there, and no others."""
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
    known = {*inputs.columns, *labels, *(inputs.aside or ())}
    extra = [name for name in names if name not in known]
    if extra and inputs.aside is not None:
        raise MusterError(
            f"{where}: column '{extra[0]}' is none that the model was trained on; remove it"
        )
    return [*inputs.columns, *labels]


def columns_of(frame: pl.DataFrame, inputs: Inputs, where: Path = Path("rows")) -> Rows:
    """Features and labels of a frame."""
    names = chosen(frame.columns, inputs, where)
    if not len(frame):
        raise MusterError(f"{where}: no rows; give at least one")
    exact = inputs.scaler is not None
    made = inputs.encoder
    if made is not None:
        frame = measured(frame, made.nothing)
    if inputs.text is not None:
        x = tokens(frame, inputs.text, where)
    elif made is not None:
        texts = {name: as_level(frame[name], where, made.fills) for name in made.levels}
        warn_of_new_holes(texts, made, where)
        plain = [name for name in made.columns if name not in made.levels]
        x = numbers(frame, plain, where, True, "fix it or drop the row", made.fills)
        x = coded(x, texts, made.columns, made.levels, str(where))
    else:
        x = plain_numbers(frame, inputs, where, exact)
    labels = inputs.label_columns
    if not labels or labels[0] not in names:
        return x, None
    if not inputs.classes:
        told = numbers(frame, labels, where, True, "fix it or drop the row")
        return x, told if inputs.target else told[:, 0]
    return x, classes_of(values(frame[labels[0]], where, "labels", HOLES), inputs, where)


def warn_of_new_holes(texts: dict[str, pl.Series], made: TableEncoder, where: Path) -> None:
    """A missing number has its mean to stand in for it; a missing category has nothing, where
    training had no feature for that."""
    for name, text in texts.items():
        if name not in made.holes and text.null_count():
            row = int(text.is_null().arg_max() or 0)
            warnings.warn(
                f"{where}: column '{name}', row {row + 1}: is missing, as it is in no training "
                "row; it counts as none of the levels",
                MusterWarning,
                stacklevel=2,
            )


def plain_numbers(frame: pl.DataFrame, inputs: Inputs, where: Path, exact: bool) -> NDArray[Any]:
    """The columns that are features."""
    return numbers(frame, inputs.columns or (), where, exact, "fix it or drop the row")


def classes_of(y: pl.Series, inputs: Inputs, where: Path) -> Int64:
    """Labels as the numbers of classes, by the names the model knows them by; whole numbers as they
    are written there."""
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
    """Images: one, a folder of them, or a folder for each class; with their files."""
    if not path.exists():
        raise MusterError(f"{path}: no such file; give an image, or a folder of them")
    x, labels, files = new_images(path, inputs)
    if labels is None:
        return x, None, files
    return x, classes_of(pl.Series("class", labels), inputs, path), files


def read_arrays(path: Path, inputs: Inputs) -> Rows:
    """The x of an npz file, and its y if it has one."""
    arrays = npz_arrays(path)
    if "x" not in arrays:
        raise MusterError(f"{path}: no array 'x'; it holds {', '.join(arrays) or 'none'}")
    given = "y" in arrays
    if not given:
        arrays["y"] = np.zeros(len(arrays["x"]), np.int64)
    block = array_block(path, arrays, "x", "y", test=False)
    x = array_rows(block.x, inputs, path)
    if not given:
        return x, None
    if inputs.classes:
        return x, classes_of(block.y, inputs, path)
    y = block.numbers
    if y is None or y.dtype.kind not in "fiub" or y.shape[1:] != inputs.target:
        shape = ", ".join(map(str, ("rows", *inputs.target)))
        raise MusterError(f"{path}: y: the model's targets are numbers of shape ({shape})")
    return x, y


def array_rows(x: NDArray[Any], inputs: Inputs, where: Path = Path("rows")) -> NDArray[Any]:
    """An array of rows; where features are made of a table's columns and it has those, they are
    read as such: categories as their values."""
    made = inputs.encoder
    if made is None or x.ndim != 2 or x.shape[1] != len(made.columns):
        return x
    return columns_of(as_frame(dict(zip(made.columns, x.T, strict=True))), inputs, where)[0]


def as_frame(rows: Any) -> pl.DataFrame:
    """Columns as a polars frame: a frame, a mapping, or another library's frame."""
    if isinstance(rows, pl.DataFrame):
        return rows
    names = list(rows) if isinstance(rows, Mapping) else list(rows.columns)

    def column(name: Any) -> pl.Series:
        values = np.asarray(rows[name])
        # Numbers next to text or to None: polars finds a type for them all.
        told = values.tolist() if values.dtype == object else values
        return pl.Series(str(name), told, strict=False)

    try:
        return pl.DataFrame([column(name) for name in names])
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        raise MusterError(f"rows: not a table ({first_line(error)}); give a frame") from None
