"""Digits: every image once, pixels in [0, 1], each client with a test part of its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from muster.base.errors import MusterError
from muster.data import DATA, IID, Dirichlet, digits
from muster.data.sets import scikit_learn


def test_the_default_is_two_classes_a_client() -> None:
    fed = digits()
    assert (fed.n, fed.classes, int(fed.priority.sum())) == (20, 10, 2)
    assert (fed.label_counts() > 0).sum(axis=1).max() <= 2
    assert fed.test is not None
    share = fed.test.sizes / (fed.train.sizes + fed.test.sizes)
    assert share == pytest.approx(0.2, abs=0.02)
    for k in range(fed.n):
        assert set(fed.test.client(k)[1].tolist()) <= set(fed.train.client(k)[1].tolist())


def test_rows_are_the_images_of_scikit_learn() -> None:
    fed = digits(clients=7, partition=IID(), priority=[3], seed=5)
    images, labels = load_digits(return_X_y=True)
    assert fed.test is not None
    assert fed.train.rows is not None
    assert fed.test.rows is not None
    assert fed.train.x.dtype == torch.float32
    assert fed.train.x.shape == (1797, 64)
    assert np.array_equal(fed.train.x.numpy() * 16, images)
    assert np.array_equal(fed.train.y.numpy(), labels)
    used = np.concatenate([fed.train.rows, fed.test.rows])
    assert sorted(used) == list(range(1797))
    assert fed.priority.tolist() == [k == 3 for k in range(7)]


def test_seeds_decide_the_split() -> None:
    rows = [digits(partition=Dirichlet(), seed=seed).train.rows for seed in (0, 0, 1)]
    assert rows[0] is not None
    assert rows[1] is not None
    assert rows[2] is not None
    assert np.array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])


def test_it_is_registered_and_refuses_too_many_clients() -> None:
    assert DATA["digits"] is digits
    with pytest.raises(MusterError, match="clients: 1798; allowed: at most one per row, so 1797"):
        digits(clients=1798)


def test_the_images_are_scikit_learns_with_and_without_its_table(monkeypatch) -> None:
    x, y = load_digits(return_X_y=True)
    assert all(
        np.array_equal(a, b) for a, b in zip(scikit_learn.load_digits(), (x, y), strict=True)
    )
    monkeypatch.setattr(scikit_learn, "find_spec", lambda name: None)
    assert all(
        np.array_equal(a, b) for a, b in zip(scikit_learn.load_digits(), (x, y), strict=True)
    )
