"""What is in a row, as a number: the same for copies, others for others."""

from __future__ import annotations

import numpy as np
import pytest

from muster.federation.row_hashes import WORDS, hash_rows, select_by_hash


def test_copies_go_together_and_a_larger_share_has_the_smaller_one_in_it():
    x = np.random.default_rng(0).normal(size=(400, 3))
    once, twice = hash_rows(x, np.zeros(400)), hash_rows(np.tile(x, (2, 1)), np.zeros(800))
    assert np.array_equal(twice, np.tile(once, 2))
    assert len(np.unique(once)) == 400
    few, many = select_by_hash(once, 0.2), select_by_hash(once, 0.4)
    assert not (few & ~many).any()
    assert 0.1 < few.mean() < 0.3


@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.float64, np.int64])
def test_rows_that_differ_in_one_number_have_other_hashes(kind):
    x = np.zeros((65, 64), kind)
    x[np.arange(64), np.arange(64)] = 1
    assert len(np.unique(hash_rows(x, np.zeros(65)))) == 65
    assert len(np.unique(hash_rows(x[:2] * 0, np.array([0, 1])))) == 2


def test_missing_numbers_and_zeros_hash_the_same_and_chunks_do_not_matter():
    x = np.random.default_rng(0).normal(size=(WORDS // 16 + 9, 40))
    x[0], x[1], x[2], x[3] = 0.0, -0.0, np.nan, -np.nan
    y = np.zeros(len(x))
    found = hash_rows(x, y)
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert found[0] != found[2]
    assert len(np.unique(found)) == len(x) - 2
    assert np.array_equal(found[-5:], hash_rows(x[-5:], y[-5:]))
