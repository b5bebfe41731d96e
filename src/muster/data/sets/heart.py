"""Heart disease at four hospitals (Janosi et al. 1988): real clients, with missing values.

303 patients of Cleveland, 294 of Hungary, 123 of Switzerland and 200 of the VA Long Beach; the
hospitals measured different things (hardly any cholesterol in Switzerland, hardly any vessels
coloured outside Cleveland), and the share of patients who are ill goes from 36 to 93 %.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...base.lazy import pl
from ...base.registry import part
from ...federation import Federation
from ..sources.cache import Arrays
from ..sources.catalogue import HEART
from ..sources.dataset import load_local
from ..sources.readers import HEART_COLUMNS
from .natural_clients import Priority, federate_table

CATEGORIES = ("cp", "restecg", "slope", "thal")
# Numbers that stand for missing values: nobody has a cholesterol or a blood pressure of 0, and no
# scan has such a result. In the records, and in those of new patients.
NA_VALUES = {"trestbps": (0.0,), "chol": (0.0,), "thal": (0.0,)}


@part(Federation, "heart")
def heart(
    folder: str | Path | None = None,
    priority: Priority = ("cleveland",),
    seed: int = 0,
    test_fraction: float = 0.25,
    rows: int | None = None,
) -> Federation:
    """920 patients of four hospitals: is somebody's heart ill (`num` above 0)? `task = "binary"`.

    Categories (kind of pain, of rest ECG, of slope, of thallium scan) are one-hot, a feature for
    each level that any hospital has; missing values are imputed by the mean of all training rows,
    with a feature that marks them; numbers are standardised. All of it is computed from levels,
    counts, means and deviations, which hospitals can report without showing a row.

    Args:
        folder: where another heart_uci.csv is (hospital and the 14 columns), or the official
            processed.HOSPITAL.data files of the UCI repository; default: the table that comes with
            muster
        priority: names or positions of the priority hospitals, a number n for the first n, or "all"
        rows: number of training rows of each priority hospital, which is tested on all its others;
            None: it holds out `test_fraction`, as everyone does
    """
    settings = {
        "label": "disease",
        "client": "hospital",
        "categories": CATEGORIES,
        "classes": ("healthy", "ill"),
    }
    table = patients(load_local(HEART, folder).arrays)
    fed = federate_table(table, settings, priority, rows, seed, test_fraction, NA_VALUES)
    return replace(fed, name="heart", aside=("hospital", "num"))


def patients(hospitals: Arrays) -> pl.DataFrame:
    """Return the table of all patients, with a column `disease`."""
    everybody = pl.concat(
        pl.DataFrame(rows, schema=list(HEART_COLUMNS)).with_columns(hospital=pl.lit(name))
        for name, rows in hospitals.items()
    ).with_columns(pl.col(HEART_COLUMNS).fill_nan(None))
    num = pl.col("num")
    ill = pl.when(num > 0).then(pl.lit("ill")).when(num == 0).then(pl.lit("healthy"))
    return everybody.with_columns(disease=ill).drop("num")
