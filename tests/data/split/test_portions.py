"""Portions: a list of each client's rows that is two arrays, however many clients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.data import PARTITIONS, Portions, federate, hold_out


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=8))
def test_parts_read_like_the_list_they_were_made_of(given_parts: list[list[int]]) -> None:
    arrays = [np.array(p, np.int64) for p in given_parts]
    parts = Portions.of(arrays)
    assert [p.tolist() for p in parts] == given_parts
    assert parts.sizes.tolist() == [len(p) for p in given_parts]
    assert [p.tolist() for p in parts[1:-1]] == given_parts[1:-1]
    assert Portions.of(parts) is parts
    for k in range(-len(arrays), len(arrays)):
        assert parts[k].tolist() == given_parts[k]
        assert parts[k].base is not None
    for k in (len(arrays), -len(arrays) - 1):
        with pytest.raises(IndexError):
            parts[k]


def test_a_hundred_thousand_clients_are_two_arrays() -> None:
    y = np.arange(300_000) % 10
    for name in sorted(set(PARTITIONS) - {"dirichlet"}):
        parts = PARTITIONS[name]().split(y, 100_000, 0)
        assert isinstance(parts, Portions)
        train, test = hold_out(parts, y, 0.3, seed=1)
        fed = federate(np.zeros((len(y), 1), np.float32), y, train, test_parts=test, priority=10)
        assert fed.n == 100_000
        assert fed.train.rows is train.rows
        assert not np.intersect1d(train.rows, test.rows).size
