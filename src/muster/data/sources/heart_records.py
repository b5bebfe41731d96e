"""The heart-disease records of four hospitals (UCI), in either of the ways they come.

An array for each hospital: a row for each patient, the 14 columns of the processed files, NaN where
nothing was measured.
"""

from __future__ import annotations

from pathlib import Path

from ...base.arrays import Float64
from ...base.errors import MusterError
from ...base.lazy import pl
from .cache import Arrays

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
COLUMNS = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak",
    "slope", "ca", "thal", "num",
)  # fmt: skip
TABLE = "heart_uci.csv"
OFFICIAL = tuple(f"processed.{name}.data" for name in HOSPITALS)


def heart_table(paths: list[Path]) -> Arrays:
    """One table of all hospitals, with a column `hospital` and the 14."""
    found = pl.read_csv(paths[0], infer_schema=False)
    if set(found.columns) != {"hospital", *COLUMNS}:
        raise MusterError(f"{paths[0]}: needs the columns hospital, {', '.join(COLUMNS)}")
    return {name: numbers(found.filter(pl.col("hospital") == name)) for name in HOSPITALS}


def heart_files(paths: list[Path]) -> Arrays:
    """The official files, one for each hospital, without a header."""
    tables = (
        pl.read_csv(path, has_header=False, new_columns=list(COLUMNS), infer_schema=False)
        for path in paths
    )
    return dict(zip(HOSPITALS, map(numbers, tables), strict=True))


def numbers(table: pl.DataFrame) -> Float64:
    """The 14 columns as numbers, without empty lines; NaN where a file says nothing, `?` or -9."""
    told = pl.col(COLUMNS).str.strip_chars().replace({"?": None, "": None}).cast(pl.Float64)
    rows = table.select(told.replace({-9.0: None}))
    rows = rows.filter(~pl.all_horizontal(pl.all().is_null()))
    return rows.with_columns(pl.all().fill_null(float("nan"))).to_numpy()
