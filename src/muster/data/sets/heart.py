"""Heart disease at four hospitals (Janosi et al. 1988): real clients, and what they left out.

303 patients of Cleveland, 294 of Hungary, 123 of Switzerland and 200 of the VA Long Beach; the
hospitals measured different things (hardly any cholesterol in Switzerland, hardly any vessels
coloured outside Cleveland), and the share of patients who are ill goes from 36 to 93 %.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Literal

from ...errors import MusterError
from ...federation import Federation
from ...lazy import pl
from ...registry import part
from ..files.folder import from_folder
from ..sources.cache import root

COLUMNS = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak",
    "slope", "ca", "thal", "num",
)  # fmt: skip
CATEGORIES = ("cp", "restecg", "slope", "thal")
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
TABLE, OFFICIAL = "heart_uci.csv", "processed.{}.data"


@part(Federation, "heart")
def heart(
    folder: str | Path | None = None,
    priority: tuple[str | int, ...] | int | Literal["all"] = ("cleveland",),
    seed: int = 0,
    test_fraction: float = 0.25,
) -> Federation:
    """920 patients of four hospitals: is somebody's heart ill (`num` above 0)? `task = "binary"`.

    Categories (kind of pain, of rest ECG, of slope, of thallium scan) are features of 0 and 1 for
    each level that any hospital has; a missing number is the mean of all training rows, with a
    feature that says so; numbers are standardised. All of it comes from counts, sums and sums of
    squares, which hospitals can add up without showing a row.

    folder    where heart_uci.csv is (hospital and the 14 columns), or the official
              processed.HOSPITAL.data files of the UCI repository; default: $MUSTER_DATA
    priority  names or positions of the priority hospitals, a number n for the first n, or "all"
    """
    place = root() if folder is None else Path(folder).expanduser()
    table = patients(place)
    with tempfile.TemporaryDirectory() as made:
        file = Path(made) / "heart.parquet"
        table.write_parquet(file)
        fed = from_folder(
            file, label="disease", client="hospital", categories=CATEGORIES, missing="mean",
            scale="pooled", priority=priority, test_fraction=test_fraction, seed=seed,
            classes=("healthy", "ill"),
        )  # fmt: skip
    return replace(fed, name="heart", aside=("hospital", "num"))


def patients(place: Path) -> pl.DataFrame:
    """Everybody, whichever way the files lie there: text, with nothing where nothing was measured;
    the last column says who is ill."""
    if (place / TABLE).is_file():
        found = pl.read_csv(place / TABLE, infer_schema=False)
        if set(found.columns) != {"hospital", *COLUMNS}:
            raise MusterError(f"{place / TABLE}: needs the columns hospital, {', '.join(COLUMNS)}")
    else:
        files = [place / OFFICIAL.format(name) for name in HOSPITALS]
        if not all(file.is_file() for file in files):
            raise MusterError(
                f"heart: neither {TABLE} nor the official {OFFICIAL.format('HOSPITAL')} files are "
                f"in {place}; name their folder with data.folder"
            )
        parts = [
            pl.read_csv(
                file, has_header=False, new_columns=list(COLUMNS), infer_schema=False
            ).with_columns(hospital=pl.lit(file.name.split(".")[1]))
            for file in files
        ]
        found = pl.concat(parts)
    found = found.with_columns(pl.col(COLUMNS).str.strip_chars().replace({"?": None, "": None}))
    # Nobody has a cholesterol of 0: it was not measured.
    none = pl.col("chol").cast(pl.Float64) == 0
    ill = pl.col("num").cast(pl.Float64) > 0
    return found.with_columns(
        chol=pl.when(none).then(None).otherwise(pl.col("chol")),
        disease=pl.when(ill).then(pl.lit("ill")).otherwise(pl.lit("healthy")),
    ).drop("num")
