"""Batches: every epoch visits every row once, whatever else is trained at the same time."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from muster.engines.batches import plan
from muster.federation.ragged import Ragged
from muster.local import Local


def ragged(sizes):
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    n = int(offsets[-1])
    return Ragged(torch.zeros(n, 1), torch.zeros(n, dtype=torch.int64), offsets)


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.integers(1, 9),
    st.integers(1, 3),
    st.booleans(),
)
def test_every_epoch_visits_every_row_once(sizes, batch, epochs, merge):
    data = ragged(sizes)
    local = Local(epochs=epochs, batch_size=batch)
    (p,) = plan(data, np.arange(len(sizes)), local, seed=1, round=2, merge_single=merge)
    assert (np.diff(p.steps) <= 0).all()
    for i, k in enumerate(p.clients):
        seen = [p.rows[i, s, : p.count[i, s]] for s in range(p.steps[i])]
        counts = np.bincount(np.concatenate(seen), minlength=sum(sizes))
        own = slice(data.offsets[k], data.offsets[k + 1])
        assert (counts[own] == epochs).all()
        assert counts.sum() == epochs * sizes[k]
        each = len(seen) // epochs
        for e in range(epochs):
            assert len(np.unique(np.concatenate(seen[e * each : (e + 1) * each]))) == sizes[k]
        if merge and sizes[k] > 1:
            assert batch == 1 or min(len(s) for s in seen) > 1
        assert (p.count[i, p.steps[i] :] == 0).all()


@given(st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(1, 7), st.integers(1, 12))
def test_steps_are_steps_whatever_the_size(sizes, batch, steps):
    data = ragged(sizes)
    (p,) = plan(data, np.arange(len(sizes)), Local(steps=steps, batch_size=batch), 0, 0)
    assert (p.steps == steps).all()
    assert (p.count >= 1).all()
    assert (p.count <= batch).all()


def test_batches_depend_on_round_client_and_seed_but_not_on_company():
    data = ragged([20, 20, 20])
    local = Local(steps=2, batch_size=5)

    def rows(clients, seed=0, round=0):
        (p,) = plan(data, np.array(clients), local, seed, round)
        return {int(k): (p.rows[i] - data.offsets[k]).tolist() for i, k in enumerate(p.clients)}

    alone, together = rows([1]), rows([0, 1, 2])
    assert alone[1] == together[1]
    assert together[0] != together[1]
    assert rows([1], round=1)[1] != alone[1]
    assert rows([1], seed=1)[1] != alone[1]


def test_full_batches_of_very_different_clients_are_grouped():
    data = ragged([3, 500, 4, 600, 1])
    groups = plan(data, np.arange(5), Local(steps=2, batch_size=None), 0, 0)
    padded = sum(g.rows.size for g in groups)
    assert padded <= 2 * 2 * sum([3, 500, 4, 600, 1])
    assert sorted(np.concatenate([g.at for g in groups]).tolist()) == list(range(5))
