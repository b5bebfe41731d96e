"""Soak: round after round with every fifth reply broken, and nothing lost but those replies.

`make test-slow` runs ten thousand rounds.
"""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import muster
from helpers import roster_of
from muster.parts.guard import guard
from muster.parts.threats.faults import FAULTS, Faults
from muster.protocol import Appraisal, Offer, Replies

M = muster.methods
LOCAL = muster.Local(steps=2, batch_size=16, lr=0.1)


def soaked(rounds, method, attack, **more):
    fed = muster.data.digits(clients=10, priority=5, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", muster.MusterWarning)
        return muster.simulate(
            fed, method, muster.models.Softmax(), rounds, LOCAL, attack=attack, evaluate_every=0,
            **more,
        )  # fmt: skip


def check(run, rounds, clean, slower=0.05):
    assert len(run.rounds) == rounds
    assert all(np.isfinite(w).all() and np.abs(w).max() < 1e3 for w in run.weights.values())
    assert run.rounds["test_accuracy"][-1] > clean.rounds["test_accuracy"][-1] - slower
    asked = run.clients
    assert asked["weight"].is_finite().all()
    assert (asked["reason"].str.len_chars() > 0).all(), "everyone's answer has its reason"
    refused = asked.filter(pl.col("joined") & ~pl.col("admitted"))
    assert refused["reason"].str.contains("malformed: not finite").any()
    assert run.rounds["skipped"].sum() < 0.02 * rounds


def test_a_hundred_rounds_with_every_fifth_reply_broken():
    rounds = 100
    method = M.fedalign(0.5, trust=True)
    # Every fifth of the priority clients' replies is lost too, so it takes longer.
    check(soaked(rounds, method, Faults(rate=0.2)), rounds, soaked(rounds, method, None), 0.15)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("method", [M.fedalign(0.5, trust=True)], ids=lambda m: m.name)
def test_ten_thousand_rounds_with_every_fifth_reply_broken(method, tmp_path):
    rounds = 10_000
    clean = soaked(2000, method, None)
    run = soaked(rounds, method, Faults(rate=0.2), checkpoint=tmp_path, checkpoint_every=500)
    check(run, rounds, clean)


QUICK = {("nan", "stacked"), ("huge", "loop"), ("turned", "stacked"), ("loss nan", "loop")}
EVERY = [(kind, engine) for kind in FAULTS for engine in ("stacked", "loop")]


@pytest.mark.parametrize(
    ("kind", "engine"),
    [pair if pair in QUICK else pytest.param(*pair, marks=pytest.mark.slow) for pair in EVERY],
)
def test_no_single_fault_costs_the_model_whatever_runs_the_clients(kind, engine):
    """One kind of fault in every fifth reply, the priority clients' included."""
    rounds = 12
    run = soaked(
        rounds, M.fedalign(0.5, trust=True), Faults(rate=0.2, kinds=(kind,)), engine=engine,
        processes=1,
    )  # fmt: skip
    assert all(np.abs(w).max() < 50 for w in run.weights.values())
    assert len(run.rounds) == rounds
    assert not run.rounds["skipped"].all()


numbers = st.floats(width=32)  # NaN and infinity among them


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(numbers, numbers, numbers, numbers), min_size=1, max_size=6),
    st.booleans(),
    st.sampled_from([float("nan"), 0.25, 1.0]),
)
def test_the_guard_lets_only_finite_possible_replies_through_and_never_raises(said, by_loss, most):
    rows = np.array(said, np.float64)
    n = len(rows)
    models = {"w": torch.from_numpy(rows[:, :2].astype(np.float32))}
    replies = Replies(
        roster_of(np.arange(n) % 2 == 0), models, Appraisal(rows[:, 2], np.full(n, 0.5)), rows[:, 3]
    )
    offer = Offer(0, 0, 1, {"w": torch.zeros(2)})
    verdict = guard(offer, replies, appraised=True, most_claim=most, by_loss=by_loss)
    through = verdict.yes
    assert np.isfinite(rows[through]).all() or np.isnan(most)
    assert np.isfinite(rows[through, :3]).all()
    assert (rows[through, 2] >= 0).all()
    if not np.isnan(most):
        assert ((rows[through, 3] >= 0) & (rows[through, 3] <= most)).all()
    assert all(verdict.reason[~through]), "with a reason"
    assert not any(verdict.reason[through])
