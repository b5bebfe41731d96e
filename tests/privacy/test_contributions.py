import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from muster.privacy import Gaussian
from muster.privacy.contributions import (
    clip_rows,
    contribute,
    flatten_updates,
    read_loss,
    restore_update,
)
from muster.privacy.fixed_point import choose_scale, encode

ANY = st.floats(width=64, allow_nan=True, allow_infinity=True)


@given(
    updates=arrays.arrays(np.float64, (3, 5), elements=ANY),
    factor=arrays.arrays(np.float64, 3, elements=ANY),
    loss=arrays.arrays(np.float64, 3, elements=ANY),
    clip=st.floats(1e-3, 1e3),
    beta=st.floats(1e-2, 5),
    folded=st.booleans(),
)
def test_no_contribution_is_longer_than_the_clip_whatever_a_client_has(
    updates, factor, loss, clip, beta, folded
):
    privacy = Gaussian(clip, noise=1.0, loss_share=beta)
    given = contribute(privacy, updates, factor, loss if folded else None, factor)
    assert np.isfinite(given).all()
    assert (np.linalg.norm(given, axis=1) <= clip * (1 + 1e-12)).all()
    scale = choose_scale(100, 1.0)
    whole = encode(given, clip, scale).view(np.int32).astype(object)  # exact integers
    assert all(sum(x * x for x in row) <= scale * scale for row in whole)


def test_contributions_are_those_of_the_formula():
    rng = np.random.default_rng(0)
    updates, weight = rng.normal(size=(4, 6)), np.array([1.0, 0.5, 1.0, 0.0])
    loss = np.array([0.5, 9.0, np.nan, 2.0])
    privacy = Gaussian(2.0, noise=1.0, most_loss=4.0, loss_share=0.75)
    s = np.sqrt(1 + 0.75**2)
    expected = [
        np.append(
            a * u * min(1, 2.0 / s / np.linalg.norm(u)), a * 0.75 * 2.0 / s * min(f, 4.0) / 4.0
        )
        for a, u, f in zip(weight, updates, np.nan_to_num(loss), strict=True)
    ]
    given = contribute(privacy, updates, weight, loss, weight)
    np.testing.assert_allclose(given, expected, rtol=1e-12)
    alone = contribute(privacy, updates[1:2], weight[1:2], loss[1:2], weight[1:2])
    np.testing.assert_array_equal(alone[0], given[1])  # a row depends on its own row alone
    mean = (0.5 + 0.5 * 4.0 + 0.0) / 2.5
    assert np.isclose(read_loss(privacy, given[:, -1].sum(), weight.sum()), mean)


def test_a_row_that_is_not_finite_or_huge_is_harmless():
    rows = np.array([[np.nan, 1.0], [np.inf, 0.0], [1e300, 1e300], [0.0, 0.0], [1e-310, 0.0]])
    short = clip_rows(rows, 1.0)
    np.testing.assert_allclose(np.linalg.norm(short, axis=1), [0, 0, 1, 0, 0], atol=1e-9)


def test_updates_keep_the_order_of_the_model():
    start = {"b": torch.zeros(2, 2), "a": torch.ones(3)}
    models = {"b": torch.arange(8.0).reshape(2, 2, 2), "a": torch.full((2, 3), 5.0)}
    flat = flatten_updates(models, start)
    np.testing.assert_array_equal(flat[1], [4, 5, 6, 7, 4, 4, 4])
    back = restore_update(flat[1], start)
    assert list(back) == ["b", "a"]
    assert torch.equal(back["b"], torch.tensor([[4.0, 5], [6, 7]], dtype=torch.float64))
