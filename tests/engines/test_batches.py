"""Batches: every epoch visits every row once, or every step draws afresh; whatever else is trained
at the same time."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from muster.engines.batches import plan_batches
from muster.federation.ragged_rows import RaggedRows
from muster.local import Local


def ragged(sizes):
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    n = int(offsets[-1])
    return RaggedRows(torch.zeros(n, 1), torch.zeros(n, dtype=torch.int64), offsets)


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.integers(1, 9),
    st.integers(1, 3),
    st.booleans(),
)
def test_every_epoch_visits_every_row_once(sizes, batch, epochs, merge):
    data = ragged(sizes)
    local = Local(epochs=epochs, batch_size=batch)
    (p,) = plan_batches(data, np.arange(len(sizes)), local, seed=1, round=2, merge_single=merge)
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
    (p,) = plan_batches(data, np.arange(len(sizes)), Local(steps=steps, batch_size=batch), 0, 0)
    assert (p.steps == steps).all()
    assert (p.count >= 1).all()
    assert (p.count <= batch).all()


@pytest.mark.parametrize(
    ("local", "rows", "count"),
    [
        (Local(steps=7, batch_size=5), 3289919842, 1384281760),
        (Local(epochs=2, batch_size=4), 1300270399, 2110231941),
    ],
)
def test_the_default_draws_what_it_always_drew(local, rows, count):
    """Checksums from before there was a choice: kept runs go on with the same batches."""
    (p,) = plan_batches(ragged([20, 7, 33]), np.arange(3), local, seed=3, round=2)
    assert zlib.crc32(np.ascontiguousarray(p.rows).tobytes()) == rows
    assert zlib.crc32(np.ascontiguousarray(p.count).tobytes()) == count


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=5),
    st.integers(1, 9),
    st.lists(st.integers(0, 6), min_size=5, max_size=5),
)
def test_independent_batches_are_whole_and_have_no_row_twice(sizes, batch, steps):
    data, steps = ragged(sizes), np.array(steps[: len(sizes)])
    local = Local(steps=1, batch_size=batch, batches="independent")
    (p,) = plan_batches(data, np.arange(len(sizes)), local, seed=1, round=2, steps=steps)
    assert (p.steps == steps[p.clients]).all()
    assert (np.diff(p.steps) <= 0).all()
    for i, k in enumerate(p.clients):
        own = np.arange(data.offsets[k], data.offsets[k + 1])
        assert np.isin(p.rows[i], own).all()  # padding too
        for s in range(p.rows.shape[1]):
            some = p.rows[i, s, : p.count[i, s]]
            assert len(some) == (min(batch, sizes[k]) if s < p.steps[i] else 0)
            assert len(np.unique(some)) == len(some)


def test_an_epoch_of_independent_batches_is_as_many_steps():
    data = ragged([20, 7, 33])
    for merge in (False, True):
        shuffled, drawn = (
            plan_batches(
                data, np.arange(3), Local(epochs=2, batch_size=4, batches=rule), 0, 0, merge
            )[0]
            for rule in ("shuffled", "independent")
        )
        assert shuffled.steps.tolist() == drawn.steps.tolist()
        assert (drawn.count[drawn.count > 0] == 4).all()


def seen_together(rule, clients=4000, n=12, b=4):
    """How often row i was in a client's first batch and row j in its second, [i, j]."""
    local = Local(steps=2, batch_size=b, batches=rule)
    (p,) = plan_batches(ragged([n] * clients), np.arange(clients), local, seed=5, round=0)
    rows, counts = p.rows % n, np.zeros((n, n))
    np.add.at(counts, (rows[:, 0, :, None], rows[:, 1, None, :]), 1)
    return counts


def test_independent_batches_do_not_know_of_each_other():
    clients, p = 4000, (4 / 12) ** 2
    off = (seen_together("independent") - clients * p) / np.sqrt(clients * p * (1 - p))
    assert np.abs(off).max() < 4  # of 144 counts that are nearly normal
    # Of one shuffle, no row is in both batches: each is told by the one before it.
    cut = seen_together("shuffled")
    assert np.diag(cut).max() == 0
    assert cut[0, 1:].sum() == pytest.approx(clients * 4 * 4 / 12, rel=0.05)


@pytest.mark.parametrize("rule", ["shuffled", "independent"])
def test_batches_depend_on_round_client_and_seed_but_not_on_company(rule):
    data = ragged([20, 20, 20])
    local = Local(steps=2, batch_size=5, batches=rule)

    def rows(clients, seed=0, round=0):
        (p,) = plan_batches(data, np.array(clients), local, seed, round)
        return {int(k): (p.rows[i] - data.offsets[k]).tolist() for i, k in enumerate(p.clients)}

    alone, together = rows([1]), rows([0, 1, 2])
    assert alone[1] == together[1]
    assert together[0] != together[1]
    assert rows([1], round=1)[1] != alone[1]
    assert rows([1], seed=1)[1] != alone[1]
    (own,) = plan_batches(data, np.array([0]), local, 0, 0, ids=np.array([1]))
    assert own.rows[0].tolist() == alone[1]  # keyed by who it is, not by where it stands


def test_full_batches_of_very_different_clients_are_grouped():
    data = ragged([3, 500, 4, 600, 1])
    groups = plan_batches(data, np.arange(5), Local(steps=2, batch_size=None), 0, 0)
    padded = sum(g.rows.size for g in groups)
    assert padded <= 2 * 2 * sum([3, 500, 4, 600, 1])
    assert sorted(np.concatenate([g.at for g in groups]).tolist()) == list(range(5))


@pytest.mark.parametrize("secret", [False, True])
def test_poisson_draws_each_row_by_itself(secret):
    """Each row of each step with probability b / n, whatever the others; a small client's all."""
    sizes, b, steps = [50, 8, 3], 8, 4000
    local = Local(steps=steps, batch_size=b, batches="poisson")
    (p,) = plan_batches(ragged(sizes), np.arange(3), local, 5, 1, secret=secret)
    drawn = np.zeros((3, steps, 61))
    for i, k in enumerate(p.clients):
        for s in range(steps):
            rows = p.rows[i, s, : p.count[i, s]]
            assert len(np.unique(rows)) == len(rows)
            drawn[k, s, rows] = 1
    first = drawn[0, :, :50]
    error = np.sqrt(0.16 * 0.84 / steps)
    assert np.abs(first.mean(0) - 0.16).max() < 5 * error
    assert np.abs(np.corrcoef(first.T) - np.eye(50)).max() < 5.5 / np.sqrt(steps)
    assert first[:, 0] @ np.roll(first[:, 0], 1) / steps == pytest.approx(0.16**2, abs=0.02)
    assert drawn[1, :, 50:58].all()
    assert drawn[2, :, 58:].all()
    assert drawn[0, :, 50:].sum() == 0


def test_secret_draws_do_not_come_from_the_seed():
    local = Local(steps=3, batch_size=5, batches="poisson")

    def plan(secret):
        (p,) = plan_batches(ragged([100]), np.arange(1), local, 0, 0, secret=secret)
        return p.rows[0, 0, : p.count[0, 0]].tolist()

    assert plan(False) == plan(False)
    assert len({tuple(plan(True)) for _ in range(5)}) > 1
