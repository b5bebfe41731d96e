"""docs/advise.md has the table that its rows give, and its error rates are what it claims."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import polars as pl

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


def test_wrong_joins_are_under_five_per_cent():
    rows = pl.read_parquet(load_benchmark().ROWS)
    for (world,), mine in rows.group_by("world"):
        wrong = mine.filter((pl.col("verdict") == "join") & pl.col("wrong"))
        joins = mine.filter(pl.col("verdict") == "join")
        if "by seeds" not in str(world):  # the page states that they are too few to say
            assert len(wrong) <= 0.05 * len(joins), f"{world}: of those advised to join"
        assert wrong["federation"].n_unique() < 0.05 * mine["federation"].n_unique(), world
