"""Portions: every client in one of them, sized by the work alone."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import muster
from helpers import nine_clients
from muster.engines import batches
from muster.engines.batches import (
    CACHE,
    ENOUGH,
    EVEN,
    WORTH,
    BatchPlan,
    blocks,
    cut_portions,
    estimate_work,
)
from muster.parts.solvers import SGD


def plan_of(steps, batch):
    steps = np.sort(np.asarray(steps))[::-1].copy()
    k, most = len(steps), int(steps.max())
    count = np.where(np.arange(most) < steps[:, None], batch, 0)
    rows = np.broadcast_to(np.zeros(1, np.int64), (k, most, batch))
    return BatchPlan(np.arange(k), np.arange(k), steps, rows, count)


def model_of(*widths):
    pairs = zip(widths, widths[1:], strict=False)
    return {f"{i}": torch.empty(b, a + 1) for i, (a, b) in enumerate(pairs)}


# clients, batch, widths of the model: how many portions
WORKLOADS = {
    "a small softmax regression": (10, 10, (60, 10), 1),
    "the MLP of MaxFL, five clients": (5, 64, (784, 64, 30, 10), 2),
    "the same on few rows": (5, 10, (784, 64, 30, 10), 1),
    "W2": (60, 32, (784, 200, 200, 47), 16),
    "one client": (1, 512, (784, 2000, 10), 1),
    "few large models": (3, 64, (2000, 2000, 10), 3),
    "many large models": (100, 8, (2000, 1000, 10), 100),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_cut_by_size(name):
    clients, batch, widths, expected = WORKLOADS[name]
    assert len(cut_portions(plan_of([5] * clients, batch), model_of(*widths))) == expected


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=60),
    st.integers(1, 64),
    st.sampled_from([(4, 3), (100, 50, 10), (784, 200, 10), (3000, 900, 10)]),
    st.integers(1, 8),
)
def test_every_client_is_in_one_portion_and_in_one_block(steps, batch, widths, threads):
    group, model = plan_of(steps, batch), model_of(*widths)
    portions = cut_portions(group, model)
    assert np.array_equal(np.concatenate([p.at for p in portions]), group.at)
    sizes = [len(p.at) for p in portions]
    assert max(sizes) - min(sizes) <= 1
    numbers = sum(t.numel() for t in model.values())
    assert max(sizes) == 1 or max(sizes) * 4 * numbers <= CACHE + 4 * numbers
    if len(portions) > 1 and len(group.at) * 4 * numbers <= CACHE:
        assert len(portions) <= ENOUGH
        assert len(group.at) * batch * numbers >= len(portions) * WORTH
    spans = blocks(group, model, threads)
    assert np.array_equal(np.concatenate([group.at[s] for s in spans]), group.at)
    amount = estimate_work(group, model)
    assert amount.sum() == sum(steps) * batch * numbers
    # A block ends as soon as it is worth a hand-over, or a fair share of them.
    assert len(spans) <= EVEN * threads + 1
    assert all(amount[s][:-1].sum() < max(WORTH, amount.sum() / (EVEN * threads)) for s in spans)


def test_a_portion_is_gone_when_the_next_one_trains(monkeypatch):
    train, trained, sizes = SGD.__call__, [], []

    def watch(self, cohort, offer, memory):
        assert not any(ref() is not None for ref in trained)
        work = train(self, cohort, offer, memory)
        trained[:] = [weakref.ref(t) for t in work.models.values()]
        sizes.append(len(cohort.steps))
        return work

    monkeypatch.setattr(SGD, "__call__", watch)
    monkeypatch.setattr(batches, "CACHE", 1)
    given = nine_clients(), muster.methods.fedavg(), muster.models.MLP((4,)), 1
    muster.simulate(*given, muster.Local(steps=2), engine="stacked", processes=1)
    assert sizes == [1] * 9
