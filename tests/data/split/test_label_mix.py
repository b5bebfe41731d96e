"""Label mixes: as many rows each, labels drawn as if row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.base.arrays import Int64
from muster.base.errors import MusterError
from muster.data import Dirichlet, LabelMix
from muster.data.split.partition import draw_label_counts

labels = st.lists(st.integers(0, 4), min_size=1, max_size=120).map(lambda v: np.array(v, np.int64))


@given(
    labels,
    st.integers(1, 20),
    st.one_of(st.floats(1e-300, 1e300), st.floats(1e-3, 10)),
    st.one_of(st.none(), st.integers(1, 5)),
    st.integers(0, 2**32),
)
def test_label_mix_gives_everyone_as_many_rows(
    y: Int64, clients: int, alpha: float, size: int | None, seed: int
) -> None:
    part = LabelMix(alpha, size)
    if clients * (size or 1) > len(y):
        with pytest.raises(MusterError, match="clients"):
            part.split(y, clients, seed)
        return
    parts = part.split(y, clients, seed)
    assert len(parts) == clients
    assert {len(p) for p in parts} == {size or len(y) // clients}
    assert len(np.unique(parts.rows)) == len(parts.rows)
    again = part.split(y, clients, seed)
    assert np.array_equal(parts.rows, again.rows)
    assert np.array_equal(parts.offsets, again.offsets)


def one_by_one(stock: Int64, clients: int, size: int, alpha: float, seed: int) -> Int64:
    """Hsu, Qi, Brown (2019) as they say it: row by row, proportions renormalised on the way."""
    draw = np.random.default_rng(seed)
    concentration, left = alpha * stock / stock.sum(), stock.copy()
    taken = np.zeros((clients, len(stock)), np.int64)
    for k in range(clients):
        mix = draw.dirichlet(concentration)
        for _ in range(size):
            now = mix * (left > 0)
            c = draw.choice(len(stock), p=now / now.sum())
            taken[k, c] += 1
            left[c] -= 1
    return taken


@pytest.mark.parametrize("alpha", [0.8, 5.0])
def test_label_mix_is_drawn_as_if_row_by_row(alpha: float) -> None:
    """The first two moments of each client's counts, over many seeds, against the slow way. Few
    clients and all rows dealt: labels run out in most turns, so the redrawing is tested too."""
    stock, clients, size = np.array([24, 4, 8]), 3, 12
    tries = 800
    slow = np.stack([one_by_one(stock, clients, size, alpha, s) for s in range(tries)])
    fast = np.stack(
        [
            draw_label_counts(stock, clients, size, alpha, np.random.default_rng(s))
            for s in range(tries)
        ]
    )
    assert (fast.sum(axis=2) == size).all()
    assert (fast.sum(axis=1) == stock).all()
    for power in (1, 2):
        a, b = slow.astype(float) ** power, fast.astype(float) ** power
        error = np.sqrt((a.var(axis=0) + b.var(axis=0)) / tries)
        assert (np.abs(a.mean(axis=0) - b.mean(axis=0)) < 4.5 * error).all()


def test_label_mix_alpha_sets_how_uneven_labels_are() -> None:
    """Shares of Dir(alpha p) have variance p (1 - p) / (alpha + 1); drawing n rows from them adds
    the multinomial's part: p (1 - p) (1 + (n - 1) / (alpha + 1)) / n in all."""
    y = np.repeat(np.arange(10), 40_000)
    clients, size = 2000, 50
    for alpha in (0.1, 1.0, 10.0):
        parts = LabelMix(alpha, size).split(y, clients, seed=3)
        shares = np.stack([np.bincount(y[p], minlength=10) for p in parts]) / size
        expected = 0.1 * 0.9 * (1 + (size - 1) / (alpha + 1)) / size
        assert np.var(shares) == pytest.approx(expected, rel=0.05)


def test_label_mix_works_where_dirichlet_cannot() -> None:
    y = np.repeat(np.arange(10), 6000)
    with pytest.raises(MusterError, match="raise alpha"):
        Dirichlet(0.05).split(y, 200, seed=0)
    parts = LabelMix(0.05).split(y, 200, seed=0)
    kinds = [len(np.unique(y[p])) for p in parts]
    assert sorted(parts.rows) == list(range(60_000))
    assert np.mean(kinds) < 2


def test_the_last_clients_are_like_the_first() -> None:
    """Who draws last gets what is left, of many labels: that must not be always the unseen."""
    y = np.repeat(np.arange(10), 600)
    kinds = np.array(
        [[len(np.unique(y[p])) for p in LabelMix(0.05).split(y, 60, s)] for s in range(80)]
    )
    first, last = kinds[:, :30].mean(axis=1), kinds[:, 30:].mean(axis=1)
    error = np.sqrt((first.var() + last.var()) / len(kinds))
    assert abs(first.mean() - last.mean()) < 4 * error


def test_too_large_mixes_say_how_many_rows_there_are() -> None:
    with pytest.raises(MusterError, match=r"10 clients of size=7 need 70 rows and there are 60"):
        LabelMix(size=7).split(np.zeros(60, np.int64), 10, 0)
