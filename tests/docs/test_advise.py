"""docs/advise.md has the table that its rows give, and its error rates are what it claims."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import polars as pl
import pytest
from scipy.stats import binom

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "advise.py"


def load_benchmark():
    spec = importlib.util.spec_from_file_location("advise_benchmark", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_table_that_its_rows_give():
    benchmark = load_benchmark()
    text = benchmark.PAGE.read_text()
    assert benchmark.page(text) == text
    assert text.count("| linear |") == 1


@pytest.mark.parametrize("by_seeds", [False, True], ids=["by rows", "by seeds"])
def test_wrong_joins_are_under_five_per_cent(by_seeds):
    """Of all joins advised; a world of few joins is not clearly above that; and of the federations
    of each world at most one in a hundred has a wrong join."""
    benchmark = load_benchmark()
    rows = pl.read_parquet(benchmark.ROWS).filter(
        pl.col("world").str.contains("by seeds") == by_seeds
    )
    joins = rows.filter(pl.col("verdict") == "join")
    assert joins["wrong"].sum() < 0.05 * len(joins)
    for (world,), mine in rows.group_by("world"):
        federations = mine["federation"].n_unique()
        assert federations == benchmark.TRAINED.get(world, benchmark.CLOSED), world
        advised = mine.filter(pl.col("verdict") == "join")
        wrong = advised.filter("wrong")
        assert binom.sf(len(wrong) - 1, len(advised), 0.05) > 0.05, world
        assert wrong["federation"].n_unique() <= 0.01 * federations, world
