"""Real federations by name: clients are schools, hospitals, districts, states, airlines.

Every one is an entry of `sources.table_catalogue` and a line here. All take the same
parameters (`PARAMETERS`).
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ...base.checks import check_whole
from ...base.errors import MusterWarning
from ...base.lazy import pl
from ...base.registry import part
from ...federation import Federation
from ..files.folder import read_folder
from ..sources.dataset import load_local
from ..sources.source_table import Table
from ..sources.table_catalogue import NATURAL, TABLES

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
