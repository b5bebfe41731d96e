"""Rows for tuning: each training row is fitted or judged by, and no test row is there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import muster
from helpers import federation
from muster.data import for_tuning
from muster.errors import MusterError


def rows_of(ragged, k):
    """A client's rows, by the number in their only column."""
    return sorted(ragged.client(k)[0].flatten().tolist())


@given(
    sizes=st.lists(st.integers(2, 12), min_size=1, max_size=6),
    share=st.floats(0.05, 0.95),
    seed=st.integers(0, 9),
)
def test_training_rows_are_divided_client_by_client(sizes, share, seed):
    number = iter(range(1000))
    clients = [
        (np.array([[float(next(number))] for _ in range(n)]), np.arange(n) % 2) for n in sizes
    ]
    test = [(np.full((3, 1), -1.0), [0, 1, 1])] * len(sizes)
    fed = federation(clients, test=test)
    small = for_tuning(fed, share, seed)
    for k, n in enumerate(sizes):
        fit, judged = rows_of(small.train, k), rows_of(small.test, k)
        assert sorted(fit + judged) == rows_of(fed.train, k)
        assert fit
        assert judged
        assert abs(len(judged) - share * n) <= 1
    again = for_tuning(fed, share, seed)
    assert again.fingerprint() == small.fingerprint()


def test_roles_stay_and_what_told_of_test_rows_goes():
    fed = muster.with_solo(muster.data.digits(clients=4, priority=2), muster.models.Softmax())
    small = for_tuning(fed)
    assert np.array_equal(small.priority, fed.priority)
    assert np.array_equal(small.requirement, fed.requirement)
    assert (small.requirement_test, small.solo_accuracy) == (None, None)
    assert "training rows stands in" in small.note


def test_a_client_of_one_row_is_named():
    one = (np.zeros((1, 2)), [0])
    two = (np.zeros((2, 2)), [0, 1])
    with pytest.raises(MusterError, match="client 1 has one training row"):
        for_tuning(federation([two, one]))
