"""Preprocessing of rows: scaler, one-hot encoder, and the inputs a trained model takes.

`Inputs` holds all that a model needs to predict for new rows: shapes, names, scaler and encoder. A
federation has them for its training rows (`Federation.inputs`); a run stores them next to its
weights (model.json), so that new rows are read, scaled and named the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Bool, Float64
from ..base.errors import MusterError
from .column_statistics import ColumnStatistics
from .population import RowShape
from .text_encoder import TextEncoder

if TYPE_CHECKING:
    from torch import Tensor

PIXELS, WHOLE, REAL = "pixels", "whole", "real"
KEYS = {"scaler": "scale", "encoder": "prepare"}  # names of fields in files and messages
FAR = 7.0  # standard deviations from the mean beyond which a value is unlike training rows

Range = tuple[float, float]


def plausible_range(mean: float, std: float) -> Range:
    """Return the range of a column's plausible values, from what clients may tell: the mean and
    `FAR` standard deviations on both sides; 0 to 1 for a column of 0 and 1, whose variance is mean
    (1 - mean). The lowest and highest value of training rows would be somebody's own.

    >>> plausible_range(50.0, 10.0), plausible_range(0.01, (0.01 * 0.99) ** 0.5)
    ((-20.0, 120.0), (0.0, 1.0))
    """
    if 0 <= mean <= 1 and math.isclose(std**2, mean * (1 - mean), rel_tol=1e-9):
        return (0.0, 1.0)
    return (mean - FAR * std, mean + FAR * std)


@dataclass(frozen=True, eq=False)
class Scaler:
    """A standard scaler: every feature minus its mean, divided by its standard deviation."""

    mean: Float64
    std: Float64

    @classmethod
    def fit(cls, statistics: ColumnStatistics, who: Bool, shape: tuple[int, ...]) -> Scaler:
        """Fit to the column statistics of these clients."""
        fit = statistics.combine_some(who)
        return cls(fit.mean.reshape(shape), fit.deviation.reshape(shape))

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float32]:
        with np.errstate(over="ignore"):  # infinities are reported later, with their row
            return np.asarray((x - self.mean) / self.std, np.float32)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain values."""
        return {"mean": self.mean.ravel().tolist(), "std": self.std.ravel().tolist()}

    @classmethod
    def from_dict(cls, table: dict[str, Any], shape: tuple[int, ...]) -> Scaler:
        """Build the scaler of rows of a shape from `to_dict`'s values."""
        mean, std = (np.array(table[k], np.float64).reshape(shape) for k in ("mean", "std"))
        return cls(mean, std)


@dataclass(frozen=True, eq=False)
class TableEncoder:
    """An encoder of table columns as features: one-hot for categories and, where that is asked
    for, mean imputation of missing numbers with an indicator for each column in which training rows
    miss a value.

    It is fitted without rows, from what clients report: the levels of each category, and the
    statistics of each column. Fields are stored in model.json.

    Attributes:
        columns: columns of the table, in order
        levels: levels of each categorical column, by name
        holes: columns in which training rows miss a value
        mean: mean of each column, which replaces missing values; 0 for categories
        std: standard deviation of each column, to scale it by; empty: no scaling
        fills: True if values may be missing; else a missing value stays NaN and is an error later
        nothing: numbers that mean "not measured", by column, such as a cholesterol of 0
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
        """Names of the features."""
        names: list[str] = []
        for name in self.columns:
            names += [f"{name}={level}" for level in self.levels.get(name, ())]
            names += [] if name in self.levels else [name]
            names += [f"{name} missing"] if name in self.holes else []
        return tuple(names)

    @classmethod
    def fit(
        cls,
        statistics: ColumnStatistics,
        who: Bool,
        columns: tuple[str, ...],
        levels: dict[str, tuple[str, ...]],
        scaled: bool,
        fills: bool,
        nothing: Mapping[str, tuple[float, ...]] | None = None,
    ) -> TableEncoder:
        """Fit to column statistics. Means and deviations are those of the clients in `who`; a
        column in which any client misses a value gets an indicator."""
        fit = statistics.combine_some(who)
        lacks = np.any(statistics.count < statistics.rows[:, None], axis=0).tolist()
        plain = np.array([name not in levels for name in columns])
        return cls(
            columns,
            levels,
            tuple(name for name, some in zip(columns, lacks, strict=True) if some),
            tuple(np.where(plain, fit.mean[0], 0.0).tolist()),
            tuple(np.where(plain, fit.deviation[0], 1.0).tolist()) if scaled else (),
            fills,
            dict(nothing or {}),
        )

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float32]:
        features: list[NDArray[Any]] = []
        for j, name in enumerate(self.columns):
            column, lacks = x[:, j], np.isnan(x[:, j])
            if name in self.levels:
                known = [column == level for level in range(len(self.levels[name]))]
                features += (
                    known if self.fills else [np.where(lacks, np.nan, is_it) for is_it in known]
                )
            else:
                lacks = lacks | np.isin(column, self.nothing.get(name, ()))
                # Where no value may be missing, NaN is reported later, with its row.
                filled = np.where(lacks, self.mean[j] if self.fills else np.nan, column)
                features.append((filled - self.mean[j]) / self.std[j] if self.std else filled)
            features += [lacks] if name in self.holes else []
        with np.errstate(over="ignore"):
            return np.stack(features, 1).astype(np.float32)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain values."""

        def plain(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: list(several) for name, several in value.items()}
            return list(value) if isinstance(value, tuple) else value

        return {name: plain(value) for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> TableEncoder:
        """Build the encoder from `to_dict`'s values."""

        def back(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: tuple(several) for name, several in value.items()}
            return tuple(value) if isinstance(value, list) else value

        # Files from before `fills` was stored: columns with holes were filled.
        known = {"fills": bool(table["holes"]), **table}
        return cls(**{name: back(value) for name, value in known.items()})


@dataclass(frozen=True, eq=False)
class Inputs:
    """The inputs a model was trained on: everything about its rows but the rows.

    Attributes:
        shape: shape of one row
        classes: number of classes; 0: targets are numbers
        kind: type of the features: "pixels" (bytes, seen as 0 to 1), "whole" (tokens), "real"; ""
            where that is not known here
        labels: names of the classes, where the data has them
        image: shape of a row as an image, where it is a flattened one
        columns: names of the features, in order, where the data has them
        label: the label column (or several), where rows come from tables
        aside: other columns that a table may have; None: any
        scaler: scaler of the features; None: not scaled (key `scale` in model.json)
        scaled: False if scaling is not known here: across a network clients scale their own rows
        target: shape of one target; () where it is one number or class
        encoder: encoder of the columns; None: features are the columns (key `prepare`)
        text: encoder of a column of text
        resized: True if images of other sizes are resized to this one
        pad: the token that pads shorter texts, where that is known
        ranges: the plausible values of columns, where clients agreed on them, or where there is no
            scaler to compute them from
        recode: values of columns that are replaced before all else; "" for a missing one
    """

    shape: tuple[int, ...]
    classes: int
    kind: str = REAL
    labels: tuple[str, ...] | None = None
    image: tuple[int, ...] | None = None
    columns: tuple[str, ...] | None = None
    label: str | tuple[str, ...] | None = None
    aside: tuple[str, ...] | None = ()
    scaler: Scaler | None = None
    scaled: bool = True
    target: tuple[int, ...] = ()
    encoder: TableEncoder | None = None
    text: TextEncoder | None = None
    resized: bool = False
    pad: int | None = None
    ranges: dict[str, Range] = field(default_factory=dict)
    recode: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes: those of the data, or else their numbers."""
        return self.labels or tuple(str(c) for c in range(self.classes))

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The label columns: none, one or several."""
        return (self.label,) if isinstance(self.label, str) else self.label or ()

    def find_ranges(self) -> dict[str, Range]:
        """Return the plausible values of each column of numbers: as agreed, or by the scaler."""
        columns, moments = self.columns or (), self.encoder or self.scaler
        if moments is None or len(columns) != len(np.ravel(moments.std)):
            return self.ranges
        levels = self.encoder.levels if self.encoder else {}
        both = zip(
            columns, *(np.ravel(v).tolist() for v in (moments.mean, moments.std)), strict=True
        )
        found = {name: plausible_range(m, s) for name, m, s in both if name not in levels}
        return {**found, **self.ranges}

    def space(self, outputs: int) -> RowShape:
        """Return the row shape for a model with this many outputs."""
        whole = self.kind == WHOLE
        return RowShape(self.shape, outputs, self.image, self.target, whole, self.pad)

    def example(self) -> Tensor:
        """Return a row of zeros."""
        return self.space(0).example()

    def transform(self, x: NDArray[Any]) -> NDArray[Any]:
        """Encode and scale new rows like those the model was trained on; images may be flat."""
        if self.encoder is not None and x.ndim == 2 and x.shape[1] == len(self.encoder.columns):
            x = self.encoder(np.asarray(x, np.float64))
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
        return x if self.scaler is None else self.scaler(x)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain values; `from_dict` reads them back to the same bits."""
        plain: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, Scaler | TableEncoder | TextEncoder):
                value = value.to_dict()
            plain[KEYS.get(name, name)] = list(value) if isinstance(value, tuple) else value
        plain["ranges"] = {name: list(limits) for name, limits in self.ranges.items()}
        return plain

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> Inputs:
        """Build the inputs from `to_dict`'s values."""
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in table.items()
        }
        values["ranges"] = {k: tuple(v) for k, v in table.get("ranges", {}).items()}
        scale, prepare = values.pop("scale", None), values.pop("prepare", None)
        text = values.pop("text", None)
        return cls(
            **values,
            scaler=None if scale is None else Scaler.from_dict(scale, values["shape"]),
            encoder=None if prepare is None else TableEncoder.from_dict(prepare),
            text=None if text is None else TextEncoder(**text),
        )
