"""Real federations by name: clients are schools, hospitals, districts, states, groups of users.

Every one is an entry of `sources.table_catalogue` and a line here, with the same parameters
(`PARAMETERS`); but for `heart`, whose records need decoding, and `sent140`, which is dealt out.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...base import rng
from ...base.checks import check_whole
from ...base.errors import MusterWarning
from ...base.lazy import pl
from ...base.registry import part
from ...federation import Federation
from ..files.folder import read_folder
from ..sources.cache import Arrays
from ..sources.catalogue import HEART, SENT140
from ..sources.dataset import load_local
from ..sources.readers import HEART_COLUMNS
from ..sources.source_table import Table
from ..sources.table_catalogue import NATURAL, TABLES
from ..split.partition import by_column
from ..split.train_test import federate, hold_out

Priority = tuple[str | int, ...] | int | Literal["all"]

PARAMETERS = """
    Categories are one-hot, missing values imputed by the mean of all training rows with a feature
    that marks them, numbers standardised.

    Args:
        folder: where the files are; default: the cache of `muster data get {name}`, or $MUSTER_DATA
        priority: names or positions of the priority clients, a number n for the first n, or "all"
        rows: number of training rows of each priority client, which is tested on all its others;
            None: it holds out `test_fraction`, as everyone does
        test_fraction: share of its rows that a client holds out
    """


def federate_table(
    table: pl.DataFrame,
    settings: Mapping[str, Any],
    priority: Priority,
    rows: int | None,
    seed: int,
    test_fraction: float,
    na_values: Mapping[str, tuple[float, ...]] | None = None,
) -> Federation:
    """Build the federation of a table, with missing values imputed and all features scaled.

    Args:
        settings: further settings of `from_folder`: columns and their roles
        rows: number of training rows of each priority client; None: by `test_fraction`
        na_values: numbers that stand for missing values, by column
    """
    if rows is not None:
        check_whole("rows", rows)
    common = {"missing": "mean", "scale": "pooled"}
    drawn = {"priority": priority, "test_fraction": test_fraction}
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "table.parquet"
        table.write_parquet(file)
        found = read_folder(file, {**settings, **common, **drawn}, na_values)
        with warnings.catch_warnings():
            # People with the same few answers are no copies of each other; a run's notes say so.
            warnings.filterwarnings("ignore", ".*copies of training rows", MusterWarning)
            return replace(found, train_rows=rows).federation(seed)


def natural_clients(table: Table) -> Callable[..., Federation]:
    """Return the function that builds the federation of a table, registered under its name."""

    def build(
        folder: str | Path | None = None,
        priority: Priority = table.priority,
        rows: int | None = None,
        seed: int = 0,
        test_fraction: float = 0.25,
    ) -> Federation:
        local = load_local(NATURAL[table.name], folder)
        settings: dict[str, Any] = {
            "label": table.label,
            "client": table.client,
            "features": (*table.numbers, *table.categories),
            "categories": table.categories or None,
        }
        if table.classes:
            settings["classes"] = table.classes
        else:
            settings["targets"] = "numbers"
        frame = table.frame(local.arrays)
        fed = federate_table(frame, settings, priority, rows, seed, test_fraction)
        return replace(fed, name=table.name, note=local.note)

    build.__name__ = build.__qualname__ = table.name
    task = f'`task = "{table.task}"`'
    build.__doc__ = f"{table.title}: {table.about}; {task}.\n{PARAMETERS.format(name=table.name)}"
    return part(Federation, table.name)(build)


exam = natural_clients(TABLES["exam"])
azpro = natural_clients(TABLES["azpro"])
contraception = natural_clients(TABLES["contraception"])
vote16 = natural_clients(TABLES["vote16"])
flights = natural_clients(TABLES["flights"])
lending = natural_clients(TABLES["lending"])
indo_rct = natural_clients(TABLES["indo_rct"])
opt = natural_clients(TABLES["opt"])
bdf = natural_clients(TABLES["bdf"])
hsb = natural_clients(TABLES["hsb"])
immun = natural_clients(TABLES["immun"])
stack = natural_clients(TABLES["stack"])
randhie = natural_clients(TABLES["randhie"])
tcga_brca = natural_clients(TABLES["tcga_brca"])


HEART_CATEGORIES = ("cp", "restecg", "slope", "thal")
# Numbers that stand for missing values: nobody has a cholesterol or a blood pressure of 0, and no
# scan has such a result. In the records, and in those of new patients.
HEART_MISSING = {"trestbps": (0.0,), "chol": (0.0,), "thal": (0.0,)}


@part(Federation, "heart")
def heart(
    folder: str | Path | None = None,
    priority: Priority = ("cleveland",),
    seed: int = 0,
    test_fraction: float = 0.25,
    rows: int | None = None,
) -> Federation:
    """920 patients of four hospitals: is somebody's heart ill (`num` above 0)? `task = "binary"`.

    303 patients of Cleveland, 294 of Hungary, 123 of Switzerland and 200 of the VA Long Beach
    (Janosi et al. 1988). The hospitals measured different things (hardly any cholesterol in
    Switzerland, hardly any vessels coloured outside Cleveland), and the share of patients who are
    ill goes from 36 to 93 %.

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
        "categories": HEART_CATEGORIES,
        "classes": ("healthy", "ill"),
    }
    table = patients(load_local(HEART, folder).arrays)
    fed = federate_table(table, settings, priority, rows, seed, test_fraction, HEART_MISSING)
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


@part(Federation, "sent140")
def sent140(
    folder: str | Path | None = None,
    clients: int = 100,
    priority: int | tuple[int, ...] | Literal["all"] = "all",
    unseen: int = 0,
    seed: int = 0,
    test_fraction: float = 0.2,
) -> Federation:
    """Sentiment140 (Go et al. 2009): mean GloVe vectors of tweets, 50 features; negative, positive.

    Most users have a single tweet, so a client is a group of users: users are shuffled and dealt
    evenly, and all tweets of a user are with one client. Each client holds out `test_fraction` of
    its tweets. The words of a tweet are those of `tweets.tokens`.
    """
    local = load_local(SENT140, folder)
    user = local.arrays["user"]
    users = int(user.max()) + 1
    check_whole(f"clients (of {users} users)", clients, 1, users)
    group = rng.generator(seed, "sent140 groups").permutation(users) % clients
    mine = by_column(group[np.asarray(user)])[0]
    train, test = hold_out(mine, local.arrays["y"].astype(np.int64), test_fraction, seed)
    grouped = f"each client is a group of about {users / clients:.0f} users"
    return federate(
        local.arrays["x"],
        local.arrays["y"],
        train,
        test_parts=test,
        priority=priority,
        unseen=unseen,
        classes=2,
        name=SENT140.name,
        varies="deal and split",
        note="; ".join(part for part in (local.note, grouped) if part),
    )
