"""Rows for tuning: each training row is fitted or judged by, and no test row is there.

The same rows divided again: none is lost, none is on both sides, and shares stay.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import muster
from helpers import federation
from muster.base.errors import MusterError
from muster.data import for_tuning, leave_out
from muster.data.split.resplit import split_again


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


def test_roles_stay_and_results_on_test_rows_are_dropped():
    fed = muster.with_solo(muster.data.digits(clients=4, priority=2), muster.models.Softmax(), 1)
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


def small_clients(sizes=(30, 30, 2), seed=0):
    draw = np.random.default_rng(seed)
    train = [(draw.normal(size=(n, 2)), np.arange(n) % 2) for n in sizes]
    test = [(draw.normal(size=(n, 2)), np.arange(n) % 2) for n in sizes]
    return federation(train, test=test)


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_a_client_without_held_out_rows_has_no_results_on_them(engine):
    fed = leave_out(small_clients(seed=8), 0.5)
    assert fed.test.sizes.tolist()[2] == 0, "by what is in its rows"
    model, local = muster.models.Softmax(), muster.Local(steps=3)
    alone = muster.solo(fed, model, 1, local, engine=engine).test
    assert np.isnan(alone.loss).tolist() == [False, False, True]
    assert np.isnan(alone.score).tolist() == [False, False, True]
    fed = muster.with_solo(fed, model, 1, local, engine=engine)
    run = muster.simulate(fed, muster.methods.fedavg(), model, 2, engine=engine)
    last = run.rounds.row(-1, named=True)
    assert last["gm_appeal_test"] in (0, 0.5, 1), "of two clients"
    # As if the third were not for anything.
    others = replace(fed, importance=np.array([1.0, 1.0, 0.0]))
    two = muster.simulate(others, muster.methods.fedavg(), model, 2, engine=engine)
    assert last["test_accuracy"] is not None
    assert two.rounds["test_accuracy"][0] == pytest.approx(run.rounds["test_accuracy"][0])
    with pytest.raises(MusterError, match="client 2 has no held-out rows"):
        muster.simulate(
            fed, muster.methods.fedavg(), muster.models.Softmax(), 1, decide_on="held_out"
        )


def test_a_client_left_without_training_rows_is_named():
    with pytest.raises(MusterError, match=r"left_out: 0.9 .* client 2 has no other to train on"):
        leave_out(small_clients(), 0.9)


def test_weights_and_shared_test_rows_are_left_out_too():
    x, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 3
    shared = muster.data.federate(
        x[:30], y[:30], [np.arange(15), np.arange(15, 30)], test=(x[30:], y[30:])
    )
    fed = leave_out(shared, 0.5)
    assert len(fed.test.y) < 30
    assert np.allclose(fed.test.mix.sum(1), 1)
    fed = small_clients()
    weight = np.concatenate([np.arange(1, n + 1) / sum(range(1, n + 1)) for n in (30, 30, 2)])
    fed = leave_out(replace(fed, test=replace(fed.test, weight=weight)), 0.3)
    some = fed.test.sizes > 0
    total = np.bincount(np.repeat(np.arange(3), fed.test.sizes), fed.test.weight, 3)
    assert np.allclose(total[some], 1)


def test_a_client_of_few_training_rows_tunes_on_as_few():
    """Its test rows once became training rows: settings were chosen for seven times its rows."""
    few = muster.data.Few(of=muster.data.IID(), first=2, rows=20)
    fed = muster.data.digits(clients=10, priority=2, partition=few)
    tuned, run = for_tuning(fed, 0.25, apart=True), leave_out(fed, 0.25)
    assert tuned.train.sizes.tolist() == run.train.sizes.tolist()
    assert all(rows_of(tuned.train, k) == rows_of(run.train, k) for k in range(2))
    parts = (tuned.test, run.train, run.test)
    assert sum(part.sizes.sum() for part in parts) == (fed.train.sizes + fed.test.sizes).sum()


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
