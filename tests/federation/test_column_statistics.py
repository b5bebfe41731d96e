"""What clients tell of their columns adds up to what their rows would."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.federation import ColumnStatistics, Scaler, TableEncoder, column_statistics

SIZES = np.array([1, 40, 7, 300])


def rows(seed=0, missing=0.3):
    """Columns of very different sizes, one far from 0, some of it missing."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(SIZES.sum(), 5)) * [1e-12, 1.0, 1e9, 3.0, 1e-3] + [0, 5, -2e9, 1e7, 0]
    x[draw.uniform(size=x.shape) < missing] = np.nan
    x[0] = np.nan  # a client that has nothing at all
    return x


def test_together_they_are_the_statistics_of_all_rows():
    x = rows()
    told = ColumnStatistics.of(x, SIZES)
    all_of_it = told.combine()
    there = [column[~np.isnan(column)] for column in x.T]
    assert all_of_it.count[0].tolist() == [len(column) for column in there]
    for j, column in enumerate(there):
        mean = pytest.approx(column.mean(), rel=1e-12, abs=1e-12 * column.std())
        assert all_of_it.mean[0, j] == mean
        assert all_of_it.deviation[0, j] == pytest.approx(column.std(), rel=1e-12)
    assert told.mean[0].tolist() == [0] * 5
    assert told.count[0].tolist() == [0] * 5


def test_a_client_sends_the_same_statistics_alone():
    x, ends = rows(), np.cumsum(SIZES)
    told = ColumnStatistics.of(x, SIZES)
    for k, (start, end) in enumerate(zip(ends - SIZES, ends, strict=True)):
        alone = ColumnStatistics.of(x[start:end].copy(), SIZES[k : k + 1])
        for name in ("rows", "count", "mean", "spread"):
            assert np.array_equal(getattr(alone, name)[0], getattr(told, name)[k])


def test_how_many_columns_are_looked_at_together_makes_no_difference(monkeypatch):
    whole = ColumnStatistics.of(rows(), SIZES)
    monkeypatch.setattr(column_statistics, "AT_ONCE", 700)  # two columns
    few = ColumnStatistics.of(rows(), SIZES)
    for name in ("count", "mean", "spread"):
        assert np.array_equal(getattr(whole, name), getattr(few, name))


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(range(4)), seed=st.integers(0, 50))
def test_the_order_of_clients_makes_no_difference_to_the_bit(order, seed):
    told = ColumnStatistics.of(rows(seed), SIZES)
    other = ColumnStatistics(*(values[list(order)] for values in vars(told).values()))
    for name in ("rows", "count", "mean", "spread"):
        assert np.array_equal(getattr(told.combine(), name), getattr(other.combine(), name))


@given(value=st.floats(-1e12, 1e12), n=st.integers(1, 60))
def test_a_column_that_never_varies_has_no_spread(value, n):
    x = np.full((3 * n, 1), value)
    all_of_it = ColumnStatistics.of(x, np.array([n, 2 * n])).combine()
    assert all_of_it.mean[0, 0] == value
    assert all_of_it.spread[0, 0] == 0
    assert all_of_it.deviation[0, 0] == 1
    assert (Scaler.fit(all_of_it, np.array([True]), (1,))(x) == 0).all()


def test_numbers_are_of_those_that_count_and_holes_of_everybody():
    x = np.array([[1.0, 0.0], [3.0, 1.0], [np.nan, 0.0], [100.0, 2.0]])
    told = ColumnStatistics.of(x, np.array([2, 2]))
    levels = {"b": ("x", "y", "z")}
    first, both = np.array([True, False]), np.array([True, True])
    made = TableEncoder.fit(told, first, ("a", "b"), levels, scaled=True, fills=True)
    assert vars(made) == vars(
        TableEncoder(("a", "b"), levels, ("a",), (2.0, 0.0), (1.0, 1.0), fills=True)
    )
    everybody = TableEncoder.fit(told, both, ("a", "b"), levels, scaled=False, fills=True)
    assert everybody.mean[0] == pytest.approx(104 / 3)
    assert everybody.std == ()


def test_a_column_that_those_who_count_lack_is_fitted_to_everybody():
    x = np.array([[1.0, np.nan], [3.0, np.nan], [10.0, 5.0], [20.0, 9.0]])
    made = Scaler.fit(ColumnStatistics.of(x, np.array([2, 2])), np.array([True, False]), (2,))
    assert made.mean.tolist() == [2.0, 7.0]
    assert made.std.tolist() == [1.0, 2.0]


def test_nobody_with_rows_leaves_numbers_as_they_are():
    told = ColumnStatistics.of(np.full((2, 1), np.nan), np.array([2, 0]))
    assert (told.combine().mean[0, 0], told.combine().deviation[0, 0]) == (0, 1)
    assert told.rows.tolist() == [2, 0]
