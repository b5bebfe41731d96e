"""Rows that clients share: the same numbers as with a list of rows and weights for each client."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import muster
from muster.base.params import expand, get_params
from muster.engines import Compute, LoopEngine, StackedEngine, row_results
from muster.federation import Federation
from muster.federation.ragged_rows import RaggedRows, SharedRows
from muster.local import Local

LABELS = 3


def listed(shared: SharedRows) -> RaggedRows:
    """The same, written out: for each client every row it sees, and its weight."""
    rows, weight, sizes = [], [], []
    for mix in shared.mix:
        mine = [
            (i, mix[c] / np.sum(shared.codes == c))
            for c in range(len(mix))
            for i in np.flatnonzero(shared.codes == c)
            if mix[c] > 0
        ]
        rows += [i for i, _ in mine]
        weight += [w for _, w in mine]
        sizes.append(len(mine))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return RaggedRows(shared.x, shared.y, offsets, np.array(rows, np.int64), np.array(weight))


@st.composite
def shared_rows(draw):
    codes = draw(arrays(np.int64, st.integers(3, 12), elements=st.integers(0, LABELS - 1)))
    codes[:LABELS] = np.arange(LABELS)  # every label is there
    counts = draw(arrays(np.int64, (draw(st.integers(1, 5)), LABELS), elements=st.integers(0, 4)))
    counts[counts.sum(1) == 0, 0] = 1
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(len(codes), 4)))
    return SharedRows.of(x, torch.from_numpy(codes), counts / counts.sum(1, keepdims=True), codes)


@given(shared_rows())
def test_rows_and_weights_are_those_of_a_list(shared):
    plain = listed(shared)
    assert np.array_equal(shared.offsets, plain.offsets)
    at = np.arange(plain.offsets[-1])
    assert np.array_equal(shared.base(at), plain.base(at))
    assert shared.row_weights(at) == pytest.approx(plain.row_weights(at))
    for k in range(len(shared.mix)):
        mine = shared.row_weights(shared.positions(np.array([k])))
        assert mine.sum() == pytest.approx(1)


@given(shared_rows(), st.data(), st.sampled_from([1, 8, 20, 1000]))
def test_engines_measure_the_same_on_both(shared, data, chunk):
    n = len(shared.mix)
    some = np.array(sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1))))
    train = RaggedRows(shared.x[:1], shared.y[:1], np.arange(n + 1), np.zeros(n, np.int64))
    module = torch.nn.Linear(4, LABELS).double()
    for engine in (StackedEngine, LoopEngine):
        got = []
        for test in (shared, listed(shared)):
            fed = Federation.from_rows(train, test, classes=LABELS)
            work = engine(module, fed, Local(steps=1), Compute(dtype="float64"))
            model = get_params(module, torch.float64, torch.device("cpu"))
            whole = work.appraise(model, some, "test")
            own = expand(model, len(some))
            own["bias"] += torch.arange(len(some) * LABELS).view(-1, LABELS).sin()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(row_results, "CHUNK", chunk)
                each = work.appraise_each(own, some, "test")
            got.append(np.array([whole.loss, whole.accuracy, each.loss, each.accuracy]))
        np.testing.assert_allclose(got[0], got[1], rtol=0, atol=1e-12)


def test_many_clients_are_measured_in_portions(monkeypatch):
    from muster.engines import stacked_engine

    fed = muster.data.digits(clients=6)
    module = torch.nn.Linear(64, 10)
    work = StackedEngine(module, fed, Local(steps=1))
    model = expand(get_params(module, torch.float32, torch.device("cpu")), 6)
    whole = work.appraise_each(model, np.arange(6))
    monkeypatch.setattr(stacked_engine, "AT_ONCE", 100)
    parts = work.appraise_each(model, np.arange(6))
    np.testing.assert_allclose(whole.loss, parts.loss, rtol=1e-6)  # few rows take torch's own way
    assert np.array_equal(whole.accuracy, parts.accuracy)


def test_a_thousand_clients_of_a_large_test_set_take_no_list_each():
    y = np.tile(np.arange(50), 400)
    x = np.zeros((len(y), 1), np.uint8)
    parts = muster.data.IID().split(y, 1000, seed=0)
    fed = muster.data.federate(x, y, parts, test=(x, y), classes=50)
    assert isinstance(fed.test, SharedRows)
    kept = [v for v in vars(fed.test).values() if isinstance(v, np.ndarray)]
    assert sum(v.nbytes for v in kept) < 2_000_000
    assert int(fed.test.offsets[-1]) > 5_000_000  # what a list would have held
