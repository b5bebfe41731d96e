"""What a model takes and what its answers mean: all it needs to be asked about new rows.

A federation knows it of its training rows (`Federation.inputs`); a run keeps it next to its
weights, so that new rows are read, scaled and named as those were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Bool, Float64
from ..base.errors import MusterError
from .column_statistics import ColumnStatistics
from .population import RowShape
from .text import TextEncoder

if TYPE_CHECKING:
    from torch import Tensor

PIXELS, WHOLE, REAL = "pixels", "whole", "real"


@dataclass(frozen=True, eq=False)
class Scaler:
    """Every feature less its mean, by its deviation."""

    mean: Float64
    std: Float64

    @classmethod
    def fitted(cls, told: ColumnStatistics, counts: Bool, shape: tuple[int, ...]) -> Scaler:
        """From what clients tell of their rows, of those that count."""
        numbers = told.over(counts)
        return cls(numbers.mean.reshape(shape), numbers.deviation.reshape(shape))

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float32]:
        with np.errstate(over="ignore"):  # what is not finite then is complained of with its row
            return np.asarray((x - self.mean) / self.std, np.float32)

    def table(self) -> dict[str, Any]:
        """As plain values."""
        return {"mean": self.mean.ravel().tolist(), "std": self.std.ravel().tolist()}

    @classmethod
    def of_table(cls, table: dict[str, Any], shape: tuple[int, ...]) -> Scaler:
        """What a table says of rows of a shape."""
        mean, std = (np.array(table[k], np.float64).reshape(shape) for k in ("mean", "std"))
        return cls(mean, std)


@dataclass(frozen=True, eq=False)
class TableEncoder:
    """Columns of a table as features: categories as 0 and 1 for each level and, where that is asked
    for, missing numbers by the mean, and next to a column in which training rows miss something,
    whether it is missing.

    Fitted from what clients can tell without showing rows: which levels there are, and of each
    column how many numbers, their mean and their spread.

    Attributes:
        columns: of the table, in order
        levels: of those that are categories, by name
        holes: columns in which training rows miss something
        mean: of each column, which stands in for what is missing; 0 for categories
        std: what numbers are divided by, after the mean is taken off; empty: they stay as they are
        fills: whether anything may be missing; else what is missing stays so, and is complained of
        nothing: by column, numbers that mean that nothing was measured, such as a cholesterol of 0
    """

    columns: tuple[str, ...]
    levels: dict[str, tuple[str, ...]]
    holes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...] = ()
    fills: bool = False
    nothing: dict[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """What features are called."""
        made: list[str] = []
        for name in self.columns:
            made += [f"{name}={level}" for level in self.levels.get(name, ())]
            made += [] if name in self.levels else [name]
            made += [f"{name} missing"] if name in self.holes else []
        return tuple(made)

    @classmethod
    def fitted(
        cls,
        told: ColumnStatistics,
        counts: Bool,
        columns: tuple[str, ...],
        levels: dict[str, tuple[str, ...]],
        scaled: bool,
        fills: bool,
        nothing: Mapping[str, tuple[float, ...]] | None = None,
    ) -> TableEncoder:
        """From what clients tell of their training rows. Means and deviations are of the clients
        that count; what is missing anywhere has a feature that says so."""
        numbers = told.over(counts)
        lacks = np.any(told.count < told.rows[:, None], axis=0).tolist()
        plain = np.array([name not in levels for name in columns])
        return cls(
            columns,
            levels,
            tuple(name for name, some in zip(columns, lacks, strict=True) if some),
            tuple(np.where(plain, numbers.mean[0], 0.0).tolist()),
            tuple(np.where(plain, numbers.deviation[0], 1.0).tolist()) if scaled else (),
            fills,
            dict(nothing or {}),
        )

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float32]:
        made: list[NDArray[Any]] = []
        for j, name in enumerate(self.columns):
            column, lacks = x[:, j], np.isnan(x[:, j])
            if name in self.levels:
                known = [column == level for level in range(len(self.levels[name]))]
                made += known if self.fills else [np.where(lacks, np.nan, is_it) for is_it in known]
            else:
                lacks = lacks | np.isin(column, self.nothing.get(name, ()))
                # Where nothing may be missing, what is missing is complained of with its row.
                filled = np.where(lacks, self.mean[j] if self.fills else np.nan, column)
                made.append((filled - self.mean[j]) / self.std[j] if self.std else filled)
            made += [lacks] if name in self.holes else []
        with np.errstate(over="ignore"):
            return np.stack(made, 1).astype(np.float32)

    def table(self) -> dict[str, Any]:
        """As plain values."""

        def plain(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: list(several) for name, several in value.items()}
            return list(value) if isinstance(value, tuple) else value

        return {name: plain(value) for name, value in vars(self).items()}

    @classmethod
    def of_table(cls, table: dict[str, Any]) -> TableEncoder:
        """What a table says."""

        def back(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: tuple(several) for name, several in value.items()}
            return tuple(value) if isinstance(value, list) else value

        # Before `fills` was kept, what had holes was filled.
        known = {"fills": bool(table["holes"]), **table}
        return cls(**{name: back(value) for name, value in known.items()})


@dataclass(frozen=True, eq=False)
class Inputs:
    """The rows a model was trained on, without the rows.

    Attributes:
        shape: of one row
        classes: how many there are; 0: targets are numbers
        target: the shape of one target; () where it is one number or class
        kind: what features are: "pixels" (bytes, seen as 0 to 1), "whole" (tokens), "real"; ""
            where that is not known here
        labels: what classes are called, where the data says so
        image: the shape of a row as an image, where it is one and lies flat
        columns: what features are called, in order, where the data says so
        label: the column of labels (or several), where rows come from tables
        aside: other columns that a table may have; None: any
        scale: what was done to features before training; None: nothing
        prepare: how features were made of columns; None: they are the columns
        text: how features were made of a column of text
        resized: whether images of other sizes are brought to this one
        pad: the token that shorter texts were filled up with, where that is known
        scaled: whether that is known here: across a network clients scale their own rows
    """

    shape: tuple[int, ...]
    classes: int
    kind: str = REAL
    labels: tuple[str, ...] | None = None
    image: tuple[int, ...] | None = None
    columns: tuple[str, ...] | None = None
    label: str | tuple[str, ...] | None = None
    aside: tuple[str, ...] | None = ()
    scale: Scaler | None = None
    scaled: bool = True
    target: tuple[int, ...] = ()
    prepare: TableEncoder | None = None
    text: TextEncoder | None = None
    resized: bool = False
    pad: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What classes are called: as the data says, or else their numbers."""
        return self.labels or tuple(str(c) for c in range(self.classes))

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The columns of labels: none, one or several."""
        return (self.label,) if isinstance(self.label, str) else self.label or ()

    def space(self, outputs: int) -> RowShape:
        """What a model is built for that has this many outputs."""
        whole = self.kind == WHOLE
        return RowShape(self.shape, outputs, self.image, self.target, whole, self.pad)

    def example(self) -> Tensor:
        """A row of zeros."""
        return self.space(0).example()

    def prepared(self, x: NDArray[Any]) -> NDArray[Any]:
        """New rows as the model saw those it was trained on; images may lie flat or stand."""
        if self.prepare is not None and x.ndim == 2 and x.shape[1] == len(self.prepare.columns):
            x = self.prepare(np.asarray(x, np.float64))
        flat = (int(np.prod(self.shape)),)
        known = (self.shape, flat, *([] if self.image is None else [self.image]))
        if x.dtype.kind not in "fiub" or x.ndim < 2 or x.shape[1:] not in known:
            raise MusterError(
                f"rows: {x.dtype} of shape {x.shape}; the model takes numbers of shape "
                f"(rows, {', '.join(map(str, self.shape))})"
            )
        if not len(x):
            raise MusterError("rows: there are none; give at least one")
        x = x.reshape(len(x), *self.shape)
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            i = int(np.argwhere(~np.isfinite(x))[0, 0])
            raise MusterError(f"rows: row {i + 1} is not finite; fix it or drop the row")
        if self.kind == PIXELS and x.dtype.kind in "iu":
            if x.min() < 0 or x.max() > 255:
                raise MusterError(
                    f"rows: {x.min()} to {x.max()}; pixels are whole numbers from 0 to 255, or "
                    "0.0 to 1.0"
                )
            return x.astype(np.uint8)
        if self.kind == WHOLE and (x.dtype.kind == "f" and (x != np.rint(x)).any()):
            raise MusterError("rows: fractions; the model takes whole numbers")
        if self.kind == WHOLE:
            x = x.astype(np.int64)
        elif self.kind == REAL and x.dtype.kind != "f":
            x = x.astype(np.float64)
        return x if self.scale is None else self.scale(x)

    def table(self) -> dict[str, Any]:
        """All of it as plain values; `of_table` reads them back to the same bits."""
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(self).items()}
        for name in ("scale", "prepare", "text"):
            if (made := getattr(self, name)) is not None:
                plain[name] = made.table()
        return plain

    @classmethod
    def of_table(cls, table: dict[str, Any]) -> Inputs:
        """What a table says."""
        values = dict(table)
        values |= {k: tuple(v) for k, v in table.items() if isinstance(v, list)}
        if (scale := values.get("scale")) is not None:
            values["scale"] = Scaler.of_table(scale, values["shape"])
        if (made := values.get("prepare")) is not None:
            values["prepare"] = TableEncoder.of_table(made)
        if (text := values.get("text")) is not None:
            values["text"] = TextEncoder(**text)
        return cls(**values)
