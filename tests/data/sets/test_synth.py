"""SYNTH: the statistics of the generator, checked against its formulas."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from muster.base import rng
from muster.base.errors import MusterError
from muster.data import synth
from muster.data.sets.synth import (
    User,
    client_sizes,
    draw_pool_rows,
    noise_levels,
    perturb,
    sample,
    swap_in,
)
from muster.federation import Federation
from muster.federation.ragged_rows import RaggedRows


def draw(seed: int = 0) -> np.random.Generator:
    return rng.generator(seed, "test synth")


def keys(data: RaggedRows, k: int) -> list[bytes]:
    """Each row's features as bytes: equal only for the very same row."""
    return [row.tobytes() for row in data.client(k)[0].numpy()]


def both(fed: Federation) -> tuple[RaggedRows, RaggedRows]:
    assert fed.test is not None
    return fed.train, fed.test


def test_a_user_has_the_moments_of_its_definition() -> None:
    users = [User.draw(4.0, 9.0, draw(i)) for i in range(4000)]
    u = np.array([user.weight.mean() for user in users])
    b = np.array([user.mean.mean() for user in users])
    # The mean over m entries of N(u, 1) has variance alpha + 1/m.
    assert np.var(u) == pytest.approx(4.0 + 1 / 600, rel=0.08)
    assert np.var(b) == pytest.approx(9.0 + 1 / 60, rel=0.08)
    assert np.mean([np.var(user.weight) for user in users]) == pytest.approx(1, rel=0.05)
    assert np.mean([np.var(user.mean, ddof=1) for user in users]) == pytest.approx(1, rel=0.05)
    together = np.corrcoef(u, [user.bias.mean() for user in users])[0, 1]
    assert together > 0.95, "W and b share one u"


def test_rows_follow_their_user() -> None:
    user = User.draw(1, 1, draw())
    x, y = user.rows(40_000, draw(1))
    assert x.dtype == np.float32
    assert y.dtype == np.int64
    assert x.shape == (40_000, 60)
    variance = np.arange(1, 61) ** -1.2
    assert np.var(x, axis=0) == pytest.approx(variance, rel=0.05)
    assert np.abs(x.mean(axis=0) - user.mean).max() < 0.03
    scores = x.astype(np.float64) @ user.weight.T + user.bias
    # float32 rounding may turn over a near tie, nothing else.
    assert np.mean(scores.argmax(axis=1) == y) > 0.9999


def test_alpha_moves_all_scores_equally() -> None:
    (x, a), (z, b) = (User.draw(alpha, 1, draw()).rows(1000, draw(1)) for alpha in (0.0, 1.0))
    assert np.array_equal(x, z)
    assert np.array_equal(a, b)


def test_sizes_are_lognormal_plus_fifty() -> None:
    sizes = client_sizes(20_000, seed=0)
    assert sizes.min() >= 50
    logs = np.log(sizes[sizes > 50 + 20] - 50 + 0.5)
    below = np.mean(sizes - 50 < np.e**4)
    assert below == pytest.approx(0.5, abs=0.02)
    assert np.mean(sizes - 50 > np.e**6) == pytest.approx(0.1587, abs=0.01)  # one deviation up
    assert logs.max() > 10, "the tail is heavy"
    assert np.array_equal(client_sizes(20_000, 0, 60), np.minimum(sizes, 60))


def test_noise_levels_follow_the_formula_and_rise_with_the_skew() -> None:
    for skew in (0.5, 1.5, 5.0):
        expected = [((j - 0.5) / 10) ** (1 / skew) for j in range(1, 11)]
        assert noise_levels(10, skew) == pytest.approx(expected)
        assert noise_levels(100_000, skew).mean() == pytest.approx(skew / (skew + 1), abs=1e-4)
    assert len(noise_levels(0, 1.0)) == 0


def normal_cdf(z: float) -> float:
    return float(torch.special.ndtr(torch.tensor(z, dtype=torch.float64)))


@pytest.mark.parametrize("deviation", [0.25, 1.0, 2.5])
def test_labels_slide_by_a_rounded_normal(deviation: float) -> None:
    y = np.repeat(np.arange(10), 10_000)
    moved = perturb(y, deviation, draw())
    assert moved.min() >= 0
    assert moved.max() <= 9
    slide = (moved - y) % 10
    for d in range(10):
        expected = sum(
            normal_cdf((d + turn + 0.5) / deviation) - normal_cdf((d + turn - 0.5) / deviation)
            for turn in range(-50, 60, 10)
        )
        assert np.mean(slide == d) == pytest.approx(expected, abs=0.006)
    assert np.array_equal(perturb(y, 0.0, draw()), y)


def test_swapped_rows_are_a_strangers_with_uniform_labels() -> None:
    stranger = User.draw(1, 1, draw(5))
    x, y = np.full((20_000, 60), 1e6, np.float32), np.full(20_000, 3)
    new_x, new_y = swap_in((x, y), 0.3, stranger, draw())
    swapped = new_x[:, 0] != 1e6
    assert swapped.sum() == 6000
    assert (new_y[~swapped] == 3).all()
    assert (new_x[~swapped] == 1e6).all()
    assert np.abs(new_x[swapped].mean(axis=0) - stranger.mean).max() < 0.06
    assert np.bincount(new_y[swapped]) / 6000 == pytest.approx(0.1, abs=0.02)
    assert (x == 1e6).all(), "the given rows stay as they are"
    assert (y == 3).all()


def test_samples_repeat_rows_only_where_there_are_too_few() -> None:
    for n in (20, 100):
        few = sample(draw().permutation(100), n, draw())
        assert len(few) == len(np.unique(few)) == n
    many = sample(draw().permutation(100), 1000, draw())
    assert len(many) == 1000
    assert set(many.tolist()) == set(range(100))


@pytest.mark.parametrize(("train", "test"), [(80, 20), (800, 200)])
def test_sources_are_rows_of_four_fifths_of_the_pool(train: int, test: int) -> None:
    rows = draw_pool_rows(100, train, test, 0.2, draw())
    assert len(rows) == train
    assert len(np.unique(rows)) == 80


def test_the_federation_has_the_stated_clients() -> None:
    fed = synth(priority=3, others=4, seed=2)
    train, test = both(fed)
    assert fed.n == 7
    assert fed.classes == 10
    assert fed.priority.tolist() == [True] * 3 + [False] * 4
    assert train.x.dtype == torch.float32
    assert train.x.shape[1] == 60
    sizes = client_sizes(7, seed=2)
    assert (train.sizes + test.sizes).tolist() == sizes.tolist()
    assert test.sizes.tolist() == [round(0.2 * n) for n in sizes]
    assert synth(priority=2, others=0, max_rows=60).train.sizes.max() <= 48


def labels_of(data: RaggedRows, clients: range) -> dict[bytes, int]:
    """The label of every row these clients hold."""
    return {
        row: int(label)
        for k in clients
        for row, label in zip(keys(data, k), data.client(k)[1], strict=True)
    }


@pytest.mark.parametrize("noise", ["low", "high"])
def test_noisy_clients_hold_priority_rows_and_the_stated_share_of_strangers(noise: str) -> None:
    fed = synth(priority=4, others=6, noise=noise, random_data=0.8, label_noise=0.0, seed=1)
    levels = noise_levels(6, {"low": 0.5, "high": 5.0}[noise])
    strangers = np.zeros(6)
    for data in both(fed):
        pool = labels_of(data, range(4))
        for k in range(4, 10):
            rows, label = keys(data, k), data.client(k)[1].tolist()
            known = [row in pool for row in rows]
            strangers[k - 4] += len(rows) - sum(known)
            assert all(pool[r] == y for r, y, own in zip(rows, label, known, strict=True) if own)
    sizes = (fed.train.sizes + both(fed)[1].sizes)[4:]
    assert strangers.tolist() == [round(0.8 * r * n) for r, n in zip(levels, sizes, strict=True)]


@pytest.mark.parametrize("noise", ["low", "medium", "high"])
@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_tested_on_a_row_anybody_trains_on(noise: str, seed: int) -> None:
    fed = synth(noise=noise, seed=seed, max_rows=2000)
    train, test = both(fed)
    trained = {row for k in range(fed.n) for row in keys(train, k)}
    for k in range(fed.n):
        assert not trained & set(keys(test, k)), f"client {k}"


def test_the_cleanest_others_are_tested_on_what_priority_clients_are_tested_on() -> None:
    fed = synth(noise="low", random_data=1.0, seed=0)
    train, test = both(fed)
    for data in (train, test):
        pool = labels_of(data, range(10))
        share = np.mean([row in pool for row in keys(data, 10)])
        assert share > 0.9, "client 10 has the lowest level"


def test_label_noise_of_each_client_has_its_level() -> None:
    fed = synth(priority=5, others=4, noise="low", random_data=0.0, label_noise=2.0, seed=4)
    train, test = both(fed)
    pool = {**labels_of(train, range(5)), **labels_of(test, range(5))}
    for k, level in zip(range(5, 9), noise_levels(4, 0.5), strict=True):
        true = np.array([pool[row] for row in keys(train, k) + keys(test, k)])
        label = torch.cat([train.client(k)[1], test.client(k)[1]]).numpy()
        kept = 2 * normal_cdf(0.5 / (2.0 * level)) - 1  # wrapping around adds next to nothing
        assert np.mean(label == true) == pytest.approx(kept, abs=4 * 0.5 / np.sqrt(len(true)))


def wrong_labels(noise: str) -> float:
    """How often the others' labels differ from those of the same rows without noise."""
    quiet, loud = (
        synth(noise=noise, random_data=0.0, label_noise=lnf, seed=3).train for lnf in (0.0, 2.5)
    )
    assert torch.equal(quiet.x, loud.x)
    others = slice(int(quiet.offsets[10]), None)
    return float((quiet.y != loud.y)[others].float().mean())


def test_low_medium_and_high_are_in_order() -> None:
    low, medium, high = (wrong_labels(noise) for noise in ("low", "medium", "high"))
    assert low + 0.05 < medium < high - 0.05


def test_the_same_seed_gives_the_same_bits_and_another_seed_others() -> None:
    a, b, other = synth(seed=7), synth(seed=7), synth(seed=8)
    for p, q in zip(both(a), both(b), strict=True):
        assert torch.equal(p.x, q.x)
        assert torch.equal(p.y, q.y)
        assert np.array_equal(p.offsets, q.offsets)
    assert not np.array_equal(a.train.offsets, other.train.offsets)
    assert not set(keys(a.train, 0)) & set(keys(other.train, 0))


def digest(data: RaggedRows, clients: range) -> str:
    total = hashlib.sha256()
    for k in clients:
        x, y = data.client(k)
        total.update(x.numpy().tobytes() + y.numpy().tobytes())
    return total.hexdigest()[:16]


def test_what_a_seed_gives_stays_what_it_is() -> None:
    """Everything anyone trains on, and what priority clients are tested on: results are compared
    across versions. In seed 2 one of the others has more rows than all priority clients."""
    for seed, expected in {
        0: ("1a310a9fc27bac34", "b331bcd51f0f4fd9"),
        2: ("3a6802088fb1eb25", "55fc010d268d2e53"),
    }.items():
        train, test = both(synth(seed=seed))
        assert (digest(train, range(20)), digest(test, range(10))) == expected


def test_priority_clients_do_not_depend_on_the_noise_or_on_the_others() -> None:
    a, b = synth(priority=3, others=2, noise="low"), synth(priority=3, others=5, noise="high")
    for p, q in zip(both(a), both(b), strict=True):
        for k in range(3):
            assert all(torch.equal(s, t) for s, t in zip(p.client(k), q.client(k), strict=True))


def test_a_number_for_the_skew_stands_in_for_the_name() -> None:
    named, number = synth(noise="medium", others=3), synth(skew=1.5, others=3)
    assert torch.equal(named.train.x, number.train.x)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alpha", -1.0),
        ("beta", float("nan")),
        ("label_noise", -0.1),
        ("priority", 0),
        ("others", -1),
        ("skew", 0.0),
        ("random_data", 1.5),
        ("max_rows", 1),
        ("test_fraction", 1.0),
        ("noise", "lwo"),
    ],
)
def test_bad_settings_are_named(field: str, value: object) -> None:
    with pytest.raises(MusterError, match=field) as caught:
        synth(**{field: value})  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert str(value) in str(caught.value)
