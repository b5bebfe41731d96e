"""docs/advise.md has the table that its rows give, and its error rates are what it claims."""

from __future__ import annotations

import polars as pl
import pytest
from scipy.stats import binom


@pytest.fixture
def advise(benchmark):
    return benchmark("advise")


def test_the_page_has_the_table_that_its_rows_give(advise):
    text = advise.PAGE.read_text()
    assert advise.page(text) == text
    assert text.count("| linear |") == 1


@pytest.mark.parametrize("by_seeds", [False, True], ids=["by rows", "by seeds"])
def test_wrong_joins_are_under_five_per_cent(advise, by_seeds):
    """Of all joins advised; a world of few joins is not clearly above that; and of the federations
    of each world at most one in a hundred has a wrong join."""
    rows = pl.read_parquet(advise.ROWS).filter(pl.col("world").str.contains("by seeds") == by_seeds)
    joins = rows.filter(pl.col("verdict") == "join")
    assert joins["wrong"].sum() < 0.05 * len(joins)
    for (world,), mine in rows.group_by("world"):
        federations = mine["federation"].n_unique()
        assert federations == advise.TRAINED.get(world, advise.CLOSED), world
        advised = mine.filter(pl.col("verdict") == "join")
        wrong = advised.filter("wrong")
        assert binom.sf(len(wrong) - 1, len(advised), 0.05) > 0.05, world
        assert wrong["federation"].n_unique() <= 0.01 * federations, world
