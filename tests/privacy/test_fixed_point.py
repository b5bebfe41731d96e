"""Whole numbers modulo 2^32: exact sums, no wrap, and a bound that holds in whole numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from muster.base.errors import MusterError
from muster.privacy.fixed_point import MARGIN, add, centre, choose_scale, decode, encode

CLIENTS = st.integers(1, 1000)
NOISE = st.floats(0, 50)
FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=64)


@st.composite
def committees(draw):
    members = draw(st.integers(1, 9))
    return members, draw(st.integers(0, members - 1))


@settings(max_examples=150, deadline=None)
@given(CLIENTS, NOISE, committees())
def test_the_extreme_sum_with_noise_of_eight_deviations_does_not_wrap(clients, noise, committee):
    members, colluders = committee
    scale = choose_scale(clients, noise, members, colluders)
    clip = 3.7
    most = encode(np.array([[clip, 0.0], [-clip, 0.0]]), clip, scale)[:, 0].view(np.int32)
    assert scale - 2 <= most[0] <= scale
    assert most[1] == -most[0]
    # Every client at the bound, and noise of every member at once, in Python's whole numbers.
    deviation = scale * noise / math.sqrt(members - colluders) * math.sqrt(members)
    shift = math.ceil(8 * deviation) if noise else 0
    for sign in (1, -1):
        honest = sign * (clients * scale + shift)
        assert -(2**31) <= honest < 2**31
        parts = np.array([honest % 2**32], np.uint32)
        assert centre(parts)[0] == honest


@settings(max_examples=150, deadline=None)
@given(
    arrays.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 40)), elements=FLOATS),
    st.floats(1e-6, 1e6),
    st.integers(2**10, 2**30),
)
def test_no_vector_is_longer_than_the_scale_in_exact_arithmetic(values, clip, scale):
    coded = encode(values, clip, scale).view(np.int32)
    for row, whole in zip(values, coded, strict=True):
        assert sum(int(x) ** 2 for x in whole) <= scale**2
        square = sum(Fraction(v) ** 2 for v in row.tolist())
        if square <= Fraction(clip) ** 2:  # not shortened: each number is within two units
            for v, x in zip(row.tolist(), whole.tolist(), strict=True):
                exact = Fraction(v) * scale / Fraction(clip)
                assert abs(x) <= abs(exact)
                assert abs(exact - x) < 1 + abs(exact) * Fraction(2 - 2 * MARGIN) + Fraction(1, 999)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 60), st.integers(1, 30), st.integers(0, 2**32 - 1), NOISE)
def test_the_sum_is_the_sum_in_any_order_and_near_the_real_one(clients, size, seed, noise):
    draw = np.random.default_rng(seed)
    values = draw.normal(size=(clients, size))
    values /= np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-9)
    clip, scale = 1.0, choose_scale(clients, noise)
    coded = encode(values, clip, scale)
    total = add(coded)
    assert centre(total).tolist() == coded.view(np.int32).astype(object).sum(0).tolist()
    assert np.array_equal(total, add(coded[draw.permutation(clients)]))
    np.testing.assert_allclose(
        decode(total, clip, scale), values.sum(0), atol=clients * 2 * clip / scale, rtol=1e-8
    )


def test_masks_that_cancel_leave_the_sum():
    count, size = 7, 11
    draw = np.random.default_rng(0)
    coded = encode(draw.normal(size=(count, size)), 1.0, 12345)
    masks = draw.integers(0, 2**32, size=(count, size), dtype=np.uint32)
    assert np.array_equal(add(coded + masks) - add(masks), add(coded))


def test_the_scale_of_the_formula():
    assert choose_scale(100, 6.38) == int((2**31 - 1) // (100 + 8 * 6.38 + 1))
    assert choose_scale(100, 2.0, 3, 1) == int((2**31 - 1) / (101 + 16 * math.sqrt(1.5)))


def test_ranges_are_checked():
    with pytest.raises(MusterError, match="ask fewer clients or add less noise"):
        choose_scale(10**7, 1.0)
    with pytest.raises(MusterError, match="colluders: 3; allowed: whole numbers from 0 to 2"):
        choose_scale(10, 1.0, 3, 3)
    with pytest.raises(MusterError, match="not finite"):
        encode(np.array([[np.nan, 1.0]]), 1.0, 2**20)
