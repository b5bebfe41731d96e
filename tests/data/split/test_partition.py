"""Partitions: nobody's row twice, nobody's row lost, the same seed the same split."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import muster
from muster.base.arrays import Int64
from muster.base.errors import MusterError
from muster.config import load
from muster.data import (
    IID,
    PARTITIONS,
    Dirichlet,
    Few,
    LabelMix,
    Partition,
    Shards,
    by_column,
    federate,
    hold_out,
)
from muster.data.split.partition import largest_shard
from muster.data.split.train_test import held_out_sizes

labels = st.lists(st.integers(0, 4), min_size=1, max_size=120).map(lambda v: np.array(v, np.int64))
seeds = st.integers(0, 2**32)


def flat(parts: Sequence[Int64]) -> Int64:
    return np.concatenate(parts)


def assert_same(a: Sequence[Int64], b: Sequence[Int64]) -> None:
    assert len(a) == len(b)
    assert all(np.array_equal(p, q) for p, q in zip(a, b, strict=True))


@given(labels, st.integers(1, 20), seeds)
def test_iid_deals_every_row_once_and_evenly(y: Int64, clients: int, seed: int) -> None:
    clients = min(clients, len(y))
    parts = IID().split(y, clients, seed)
    assert sorted(flat(parts)) == list(range(len(y)))
    sizes = [len(p) for p in parts]
    assert len(sizes) == clients
    assert max(sizes) - min(sizes) <= 1
    assert all(p.dtype == np.int64 for p in parts)
    assert_same(parts, IID().split(y, clients, seed))


@given(labels, st.integers(1, 6), st.integers(1, 3), st.booleans(), seeds)
def test_shards_hold_one_class_each(
    y: Int64, clients: int, per_client: int, shared: bool, seed: int
) -> None:
    part = Shards(per_client, shared=shared)
    if clients > len(y) or (per_client if shared else clients * per_client) > len(y):
        with pytest.raises(MusterError):
            part.split(y, clients, seed)
        return
    parts = part.split(y, clients, seed)
    assert len(parts) == clients
    size = len(parts[0]) // per_client
    for rows in parts:
        assert len(rows) == size * per_client == len(np.unique(rows))
        for shard in rows.reshape(per_client, size):
            assert len(np.unique(y[shard])) == 1
    if not shared:
        assert len(np.unique(flat(parts))) == len(flat(parts))
    assert_same(parts, part.split(y, clients, seed))


@given(labels, st.integers(1, 30))
def test_the_default_shard_is_the_largest_that_fits(y: Int64, needed: int) -> None:
    counts = np.unique(y, return_counts=True)[1]
    fitting = [s for s in range(1, len(y) + 1) if sum(c // s for c in counts) >= needed]
    assert largest_shard(counts, needed) == max(fitting, default=1)


def test_shards_of_fashion_mnist_use_every_row() -> None:
    y = np.repeat(np.arange(10), 6000)
    given_size = Shards(per_client=2, size=500).split(y, 60, seed=1)
    assert sorted(flat(given_size)) == list(range(60_000))
    assert_same(given_size, Shards(per_client=2).split(y, 60, seed=1))


def test_too_few_shards_say_how_many_there_are_and_what_to_do() -> None:
    y = np.repeat(np.arange(10), 6000)
    with pytest.raises(MusterError, match=r"120 single-class shards of 500 .* 122 are needed.*low"):
        Shards(per_client=2, size=500).split(y, 61, seed=0)
    with pytest.raises(MusterError, match=r"120 .* 121 are needed .*lower size or per_client$"):
        Shards(per_client=121, size=500, shared=True).split(y, 2, seed=0)


def test_shared_shards_serve_more_clients_than_disjoint_ones_can() -> None:
    y = np.repeat(np.arange(47), 2400)
    parts = Shards(per_client=24, size=180, shared=True).split(y, 60, seed=0)
    assert {len(p) for p in parts} == {24 * 180}
    assert len(np.unique(flat(parts))) < len(flat(parts))
    pool = set(map(tuple, np.sort(flat(parts).reshape(-1, 180), axis=1).tolist()))
    rows = [row for shard in pool for row in shard]
    assert len(rows) == len(set(rows)), "two different shards overlap"


@settings(deadline=None)
@given(labels, st.integers(1, 8), st.floats(1e-6, 1e6), seeds)
def test_dirichlet_covers_every_row_once(y: Int64, clients: int, alpha: float, seed: int) -> None:
    part = Dirichlet(alpha, min_rows=1, retries=20)
    try:
        parts = part.split(y, clients, seed)
    except MusterError:
        assert clients > 1
        return
    assert sorted(flat(parts)) == list(range(len(y)))
    assert len(parts) == clients
    assert min(len(p) for p in parts) >= 1
    assert_same(parts, part.split(y, clients, seed))


def test_dirichlet_alpha_sets_how_uneven_labels_are() -> None:
    """Proportions of Dir(alpha) over K clients have variance (1/K)(1 - 1/K) / (K alpha + 1)."""
    clients, per_class, classes = 5, 2_000, 400
    y = np.repeat(np.arange(classes), per_class)
    for alpha in (0.1, 1.0, 10.0):
        parts = Dirichlet(alpha).split(y, clients, seed=3)
        shares = np.stack([np.bincount(y[p], minlength=classes) for p in parts]) / per_class
        expected = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
        assert np.var(shares) == pytest.approx(expected, rel=0.1)
        assert shares.mean(axis=1) == pytest.approx(1 / clients, abs=0.08)


def test_dirichlet_gives_up_with_advice() -> None:
    y = np.repeat(np.arange(2), 50)
    with pytest.raises(MusterError, match=r"7 draws with alpha=0.001.*min_rows=2.*raise alpha"):
        Dirichlet(0.001, retries=7).split(y, 20, seed=0)
    with pytest.raises(MusterError, match=r"need 120 rows and there are 100; lower clients"):
        Dirichlet(min_rows=6).split(y, 20, seed=0)


def test_dirichlet_redraws_until_everyone_has_enough() -> None:
    y = np.repeat(np.arange(3), 40)
    sizes = [len(p) for p in Dirichlet(1.0, min_rows=15, retries=10_000).split(y, 4, seed=0)]
    assert min(sizes) >= 15
    assert sum(sizes) == len(y)


@given(st.sampled_from(sorted(PARTITIONS)), labels, st.integers(1, 12), seeds)
def test_every_partition_is_disjoint_seeded_and_leaves_nobody_out(
    name: str, y: Int64, clients: int, seed: int
) -> None:
    part: Partition = PARTITIONS[name]()
    try:
        parts = part.split(y, clients, seed)
    except MusterError:
        # Only these may find that there are too few rows of a class, or too uneven ones.
        assert (
            clients > len(y) or (name == "shards" and 2 * clients > len(y)) or name == "dirichlet"
        )
        return
    rows = flat(parts)
    assert len(parts) == clients
    assert min(len(p) for p in parts) >= 1
    assert len(np.unique(rows)) == len(rows)
    assert rows.min() >= 0
    assert rows.max() < len(y)
    assert_same(parts, part.split(y, clients, seed))


@pytest.mark.parametrize("name", sorted(PARTITIONS))
def test_seeds_differ(name: str) -> None:
    y = np.repeat(np.arange(10), 60)
    part: Partition = PARTITIONS[name]()
    a, b = (flat(part.split(y, 10, seed)) for seed in (0, 1))
    assert not np.array_equal(a, b)


@pytest.mark.parametrize("name", sorted(PARTITIONS))
@pytest.mark.parametrize(
    ("clients", "message"),
    [(0, "clients: 0"), (7, "clients: 7; allowed: at most one per row, so 6")],
)
def test_impossible_numbers_of_clients(name: str, clients: int, message: str) -> None:
    with pytest.raises(MusterError, match=message):
        PARTITIONS[name]().split(np.arange(6) % 2, clients, 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Shards(per_client=0), "per_client: 0"),
        (lambda: Shards(size=0), "size: 0"),
        (lambda: Dirichlet(alpha=0), "alpha: 0"),
        (lambda: Dirichlet(alpha=float("nan")), "alpha: nan"),
        (lambda: Dirichlet(min_rows=0), "min_rows: 0"),
        (lambda: Dirichlet(retries=0), "retries: 0"),
        (lambda: LabelMix(alpha=0), "alpha: 0"),
        (lambda: LabelMix(alpha=float("inf")), "alpha: inf"),
        (lambda: LabelMix(size=0), "size: 0"),
    ],
)
def test_bad_fields_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(MusterError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


@given(st.lists(st.text(max_size=2), min_size=1, max_size=40))
def test_by_column_gives_each_value_its_rows(values: list[str]) -> None:
    # numpy strips trailing nulls of fixed-width text, so text with nulls is not kept apart.
    values = [v.replace("\0", "_") for v in values]
    parts, names = by_column(values)
    assert names == sorted(set(values))
    for part, name in zip(parts, names, strict=True):
        assert part.tolist() == [i for i, v in enumerate(values) if v == name]


def test_by_column_refuses_rows_without_an_owner() -> None:
    with pytest.raises(MusterError, match="one value for each row"):
        by_column([])
    with pytest.raises(MusterError, match="row 1 is nan"):
        by_column([1.0, float("nan")])
    with pytest.raises(MusterError, match="cannot be sorted"):
        by_column(np.array(["a", None], dtype=object))


@given(
    st.lists(st.integers(2, 60), min_size=1, max_size=8),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
    seeds,
)
def test_hold_out_cuts_each_client_in_two(sizes: list[int], fraction: float, seed: int) -> None:
    parts = np.split(np.arange(sum(sizes))[::-1], np.cumsum(sizes)[:-1])
    labels = np.arange(sum(sizes)) % 3
    train, test = hold_out(parts, labels, fraction, seed)
    for whole, a, b in zip(parts, train, test, strict=True):
        assert sorted([*a, *b]) == sorted(whole)
        assert min(len(a), len(b)) >= 1
        near = abs(len(b) - fraction * len(whole))
        assert near <= 0.5 or len(b) in (1, len(whole) - 1)
    again = hold_out(parts, labels, fraction, seed)
    assert_same(train, again[0])
    assert_same(test, again[1])


def test_hold_out_shuffles_by_seed_and_client() -> None:
    parts = [np.arange(100), np.arange(100)]
    picked = [hold_out(parts, np.zeros(100, np.int64), 0.2, seed)[1] for seed in (0, 1)]
    sets = [frozenset(rows.tolist()) for held in picked for rows in held]
    assert len(set(sets)) == 4


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=80), min_size=1, max_size=5),
    st.floats(0.1, 0.9),
    seeds,
)
def test_hold_out_takes_from_every_class(mine: list[list[int]], fraction: float, seed: int) -> None:
    sizes = [len(labels) for labels in mine]
    labels = np.concatenate(mine).astype(np.int64)
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    for a, b in zip(*hold_out(parts, labels, fraction, seed), strict=True):
        before, held = (np.bincount(labels[rows], minlength=4) for rows in (np.append(a, b), b))
        several = before > 1
        if len(b) >= several.sum():
            assert (held[several] >= 1).all(), "a class of several rows has one to be tested on"
        share = len(b) / (len(a) + len(b))
        # A class gives its share of the rows that are held out, give or take a row and what the
        # classes of one row do not give.
        alone = (before == 1).sum()
        assert (np.abs(held - share * before)[several] <= 2 + alone).all()
        if several.any() and len(b) <= before[several].sum() - several.sum():
            assert held[before == 1].sum() == 0, "a single row is there to be learned"


def test_hold_out_draws_each_row_of_a_class_with_equal_probability() -> None:
    """Four rows of a rare class among 40, a quarter held out: each in a quarter of the draws."""
    labels = np.array([1] * 4 + [0] * 36)
    drawn = np.zeros(40)
    for seed in range(400):
        drawn[hold_out([np.arange(40)], labels, 0.25, seed)[1][0]] += 1 / 400
    assert np.abs(drawn - 0.25).max() < 0.1
    assert drawn[:4].sum() == pytest.approx(1.0)


def test_hold_out_needs_two_rows_and_a_fraction() -> None:
    with pytest.raises(MusterError, match=r"client 1 has 1 row"):
        hold_out([np.arange(5), np.arange(1)], np.zeros(5, np.int64), 0.2, 0)
    for fraction in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(MusterError, match="test_fraction"):
            held_out_sizes(np.array([5]), fraction)


def test_federate_points_into_the_arrays_it_was_given() -> None:
    x, y = np.arange(12, dtype=np.uint8).reshape(6, 2), np.array([0, 1, 2, 0, 1, 2])
    parts = [np.array([5, 0]), np.array([1, 2, 3])]
    fed = federate(x, y, parts, test_parts=[np.array([4]), np.array([4, 4])], priority=1)
    assert fed.test is not None
    for ragged in (fed.train, fed.test):
        assert ragged.x.data_ptr() == x.ctypes.data
        assert ragged.y.data_ptr() == y.ctypes.data
        assert ragged.x.dtype == torch.uint8
    assert fed.train.client(0)[1].tolist() == [2, 0]
    assert fed.train.client(1)[0].tolist() == [[2, 3], [4, 5], [6, 7]]
    assert fed.test.client(1)[1].tolist() == [1, 1]
    assert fed.priority.tolist() == [True, False]
    assert fed.test.weight is None
    assert federate(x, y, parts, priority=[1]).priority.tolist() == [False, True]
    assert federate(x, y, parts).priority.tolist() == [True, True]
    assert federate(x, y, parts, priority=1, importance=0.5).importance.tolist() == [1.0, 0.5]


@given(labels, labels, st.integers(1, 5), seeds)
def test_an_official_test_set_takes_each_clients_label_proportions(
    y: Int64, y_test: Int64, clients: int, seed: int
) -> None:
    y, clients = np.append(y, [0, 1]), min(clients, len(y))
    parts = IID().split(y, clients, seed)
    x_test = np.arange(len(y_test), dtype=np.float32)[:, None]
    test = (x_test, y_test)
    if any(not set(y[p]) & set(y_test) for p in parts):
        with pytest.raises(MusterError, match="no row of any label of client"):
            federate(np.zeros((len(y), 1)), y, parts, test=test)
        return
    held = federate(np.zeros((len(y), 1)), y, parts, test=test).test
    assert held is not None
    for k, part in enumerate(parts):
        own = [label for label in y[part] if label in y_test]
        rows = held.client(k)[0][:, 0].long().numpy()
        weight = held.row_weights(held.positions(np.array([k])))
        assert sorted(rows) == [i for i, label in enumerate(y_test) if label in own]
        assert weight.sum() == pytest.approx(1)
        for row, w in zip(rows, weight, strict=True):
            label = y_test[row]
            expected = own.count(label) / len(own) / np.sum(y_test == label)
            assert w == pytest.approx(expected)


def test_federate_names_what_is_wrong() -> None:
    x, y = np.zeros((4, 1)), np.array([0, 0, 1, 1])
    parts = [np.arange(4)]
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: federate(x, y, parts, test=(x, y), test_parts=parts), "both given"),
        (lambda: federate(x, y[:3], parts), r"train: x has shape \(4, 1\) and y \(3,\)"),
        (lambda: federate(x, y, parts, test=(x, y[:3])), r"test: x has shape \(4, 1\)"),
        (lambda: federate(x, y, []), "parts is empty"),
        (lambda: federate(x, y, [parts[0], np.array([0, 4])]), "client 1 has row number 4"),
        (lambda: federate(x, y, parts, test_parts=[np.array([-1])]), "test_parts: client 0"),
        (lambda: federate(x, y, [parts[0], parts[0][:0]]), "client 1 is empty"),
        (
            lambda: federate(x, y, parts, priority=0),
            r"priority \(of 1 clients\): 0; allowed: whole",
        ),
        (lambda: federate(x, y, parts, priority=2), r"priority \(of 1 clients\): 2; allowed"),
        (lambda: federate(x, y, parts, priority=[1]), "no client 1"),
        (lambda: federate(x, y, parts, priority=True), "priority"),
    ]
    for call, message in calls:
        with pytest.raises(MusterError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_few_cuts_the_first_clients_short_and_leaves_the_others():
    y = np.repeat(np.arange(10), 60)
    whole = Shards(per_client=2, size=25)
    many = whole.split(y, 8, 3)
    for rows in (5, 20):
        parts = Few(of=whole, first=2, rows=rows).split(y, 8, 3)
        for k in range(8):
            if k < 2:
                assert len(parts[k]) == rows
                assert set(parts[k]) <= set(many[k])
            else:
                assert np.array_equal(parts[k], many[k])
    fewer, more = (Few(of=whole, first=1, rows=n).split(y, 8, 3)[0] for n in (5, 20))
    assert np.array_equal(fewer, more[:5])
    other = Few(of=whole, first=1, rows=20).split(y, 8, 4)[0]
    assert not np.array_equal(other, more)
    # One that has fewer anyway keeps them all.
    assert len(Few(of=whole, first=1, rows=500).split(y, 8, 3)[0]) == 50
    with pytest.raises(MusterError, match="few first: 13; allowed: whole numbers from 1 to 8"):
        Few(of=whole, first=13).split(y, 8, 3)


def test_few_is_named_in_a_configuration():
    table = {"kind": "few", "of": {"kind": "shards", "size": 20}, "first": 2, "rows": 6}
    data = {"name": "digits", "clients": 10, "priority": 2, "partition": table}
    fed = load({"data": data}).federation(0)
    assert fed.train.sizes.tolist() == [6, 6] + [32] * 8
    assert fed.test.sizes.tolist() == [34, 34] + [8] * 8


def test_few_covers_all_priority_clients_unless_it_says_how_many():
    def sizes(**more):
        return muster.data.digits(clients=10, **more).train.sizes[:4].tolist()

    few = Few(of=Shards(size=20), rows=6)
    assert sizes(partition=few) == [6, 6, 32, 32]
    assert sizes(partition=few, priority=3) == [6, 6, 6, 32]
    assert sizes(partition=few, priority=(1, 0, 2)) == [6, 6, 6, 32]
    assert sizes(partition=few, priority=(3,)) == [6, 32, 32, 32]
    assert sizes(partition=few, priority="all") == [6, 32, 32, 32]
    assert sizes(partition=dataclasses.replace(few, first=1), priority=3) == [6, 32, 32, 32]
    table = {"kind": "few", "of": {"kind": "shards", "size": 20}, "rows": 6}
    chosen = load({"data": {"name": "digits", "clients": 10, "partition": table}})
    assert chosen.federation(0).train.sizes[:3].tolist() == [6, 6, 32]
    assert load(chosen.resolve()).federation(0).train.sizes[:3].tolist() == [6, 6, 32]


def test_rows_of_data_that_is_partitioned_points_to_the_partition():
    hint = "give data.partition = few and data.partition.rows = 20"
    with pytest.raises(MusterError, match=f"data.rows: digits is dealt .*; {hint}"):
        load({"data": {"name": "digits", "rows": 20}})
    with pytest.raises(MusterError, match=r"unknown key 'data\.rows'"):
        load({"data": {"name": "diabetes", "rows": 20}})


def test_who_keeps_few_rows_is_tested_on_its_others():
    whole = Shards(size=20)
    few = muster.data.digits(clients=10, partition=Few(of=whole, first=2, rows=6), seed=3)
    many = muster.data.digits(clients=10, partition=whole, seed=3)

    def rows(half, k):
        return half.rows[half.offsets[k] : half.offsets[k + 1]].tolist()

    for k in range(10):
        mine, tested = rows(few.train, k), rows(few.test, k)
        own = rows(many.train, k) + rows(many.test, k)
        assert sorted(mine + tested) == sorted(own)
        if k >= 2:
            assert (mine, tested) == (rows(many.train, k), rows(many.test, k))
    # Its intervals: the two are tested on 68 of all 400 rows.
    assert few.variation.ratio(True, "objective") == pytest.approx(68 / (400 - 68))
    with pytest.raises(MusterError, match="few rows: 40, and client 0 has 40 in all; lower them"):
        muster.data.digits(clients=10, partition=Few(of=whole, rows=40))
