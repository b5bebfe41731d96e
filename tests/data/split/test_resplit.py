"""The same rows divided again: none is lost, none is on both sides, and shares stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import muster
from muster.data.split.resplit import split_again


def contents(fed, k):
    return sorted(
        (*row.tolist(), float(y))
        for half in (fed.train, fed.test)
        for row, y in zip(*half.client(k), strict=True)
    )


def build(test=True, classes=None):
    draw = np.random.default_rng(0)

    def rows(n):
        y = np.arange(n) % 2 if classes is None else draw.normal(size=n)
        return draw.normal(size=(n, 2)), y

    sizes = (40, 12)
    return muster.Federation.from_arrays(
        [rows(n) for n in sizes], [rows(n // 4) for n in sizes] if test else None, classes=classes
    )


@pytest.mark.parametrize("classes", [None, 0])
def test_every_row_stays_with_its_client_and_the_split_is_another(classes):
    fed = build(classes=classes)
    a, b = split_again(fed, 0), split_again(fed, 1)
    for k in range(2):
        assert contents(a, k) == contents(b, k) == contents(fed, k)
        assert not a.test.client(k)[0].equal(b.test.client(k)[0])
    assert a.test.sizes.tolist() == fed.test.sizes.tolist()
    assert a.variation.varies == "split"
    if classes is None:
        held_out = [int(a.test.client(k)[1].sum()) for k in range(2)]
        assert held_out in ([5, 1], [5, 2]), "half of each class, as far as it goes"


def test_without_test_rows_a_quarter_is_held_out():
    again = split_again(build(test=False), 0)
    assert again.test.sizes.tolist() == [10, 3]
    assert again.train.sizes.tolist() == [30, 9]


def test_each_client_keeps_its_own_numbers_of_rows():
    draw = np.random.default_rng(0)

    def rows(n):
        return draw.normal(size=(n, 2)), np.arange(n) % 2

    fed = muster.Federation.from_arrays([rows(6), rows(40)], [rows(60), rows(3)])
    again = split_again(fed, 3)
    assert again.train.sizes.tolist() == [6, 40]
    assert again.test.sizes.tolist() == [60, 3]


def test_an_official_test_set_is_left_out():
    fed = muster.data.digits(clients=3)
    shared = muster.data.federate(
        fed.train.x, fed.train.y, [np.arange(20), np.arange(20, 60)],
        test=(fed.train.x[60:90], fed.train.y[60:90]),
    )  # fmt: skip
    assert split_again(shared, 0).test.sizes.tolist() == [5, 10]


def test_rows_with_weights_are_refused():
    fed = build(test=False)
    heavy = replace(fed, train=replace(fed.train, weight=np.full(52, 1 / 26)))
    with pytest.raises(muster.MusterError, match="weights cannot be divided"):
        split_again(heavy, 0)
