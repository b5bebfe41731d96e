"""Robust steps: equal to byzfl's and Flower's where the definitions agree, weighted where they are
not, and composed with every method."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.server.strategy import aggregate as flower
from hypothesis import given
from hypothesis import strategies as st

import byzfl_reference
import muster
from helpers import nine_clients, roster_of
from muster.config.dotted_keys import build_method
from muster.parts import (
    Adaptive,
    Average,
    Bucketing,
    CentredClipping,
    GeometricMedian,
    Krum,
    Median,
    Momentum,
    NearestNeighbours,
    NormBound,
    QFair,
    Scaffold,
    TrimmedMean,
)
from muster.parts.threats.collusion import ALIE, IPM
from muster.protocol import Appraisal, Offer, Replies

M = muster.methods
BYZFL = json.loads(Path(byzfl_reference.PLACE).read_text())
X = np.array(BYZFL["x"])
F = byzfl_reference.F


def stack(rows, model=None, trainable=("w",), **more):
    """An offer at 0 and replies whose updates are these rows."""
    rows = np.asarray(rows, np.float64)
    model = {"w": torch.zeros(rows.shape[1], dtype=torch.float64)} if model is None else model
    models = {"w": torch.from_numpy(rows), **more}
    n = len(rows)
    replies = Replies(roster_of([False] * n), models, Appraisal.unknown(n), np.full(n, np.nan))
    return Offer(3, 2, 10, model, trainable=trainable), replies


def go(step, rows, weight=None, server=None):
    offer, replies = stack(rows)
    server = step.memory(offer.model, np.ones(len(rows), bool)) if server is None else server
    weight = np.ones(len(rows)) if weight is None else np.asarray(weight, float)
    model, after = step(offer, replies, weight, server)
    return model["w"].numpy(), after


SAME = {
    "median": Median(),
    "trimmed": TrimmedMean(F),
    "geometric": GeometricMedian(nu=0.1, iterations=5),
    # byzfl counts n - f - 1 neighbours, Blanchard et al. and Flower n - f - 2: f is one less.
    "krum": Krum(F - 1),
    "multi-krum": Krum(F - 1, m=len(X) - F),
}


@pytest.mark.parametrize("name", SAME)
def test_equal_to_byzfl(name):
    np.testing.assert_allclose(go(SAME[name], X)[0], BYZFL[name], rtol=0, atol=1e-9)


def test_equal_to_byzfl_on_an_even_number_and_over_rounds():
    np.testing.assert_allclose(go(Median(), X[:10])[0], BYZFL["median of ten"], atol=1e-9)
    clip = CentredClipping(radius=2.0, iterations=3)
    first, memory = go(clip, X)
    np.testing.assert_allclose(first, BYZFL["clipping"], atol=1e-9)
    np.testing.assert_allclose(
        go(clip, X + 0.5, server=memory)[0], BYZFL["clipping again"], atol=1e-9
    )


def test_mixing_and_bounding_are_byzfls():
    offer, replies = stack(X)
    mixed, _ = NearestNeighbours(F).prepare(offer, replies, np.ones(len(X)))
    np.testing.assert_allclose(mixed.models["w"].numpy(), BYZFL["mixed"], atol=1e-9)
    middle = np.median(np.linalg.norm(X, axis=1))
    clipped, _ = NormBound(2.5 / middle).prepare(offer, replies, np.ones(len(X)))
    np.testing.assert_allclose(clipped.models["w"].numpy(), BYZFL["clipped"], atol=1e-9)


def test_attacks_are_byzfls():
    offer, replies = stack(X)
    for name, attack in (("alie", ALIE(z=1.5)), ("ipm", IPM(factor=2.0))):
        sent = attack.collude(offer, {"w": torch.zeros(2, 7)}, np.arange(2), replies.models)
        np.testing.assert_allclose(sent["w"].numpy(), [BYZFL[name]] * 2, atol=1e-5)


def test_equal_to_flowers_rules():
    rows = [([x], 1) for x in X]
    for step, theirs in (
        (Median(), flower.aggregate_median(rows)),
        (TrimmedMean(2), flower.aggregate_trimmed_avg(rows, 2 / len(X) + 1e-9)),
        (Krum(F), flower.aggregate_krum(rows, F, 0)),
        (Krum(F, m=5), flower.aggregate_krum(rows, F, 5)),
    ):
        np.testing.assert_allclose(go(step, X)[0], theirs[0], rtol=0, atol=1e-9)


@given(st.lists(st.integers(1, 4), min_size=2, max_size=6), st.integers(0, 1000))
def test_a_reply_of_weight_three_is_three_replies(counts, seed):
    """Where a rule counts by weight: the same as repeating every reply that often."""
    x = np.random.default_rng(seed).normal(size=(len(counts), 3))
    for step in (Median(), TrimmedMean(0.2), GeometricMedian(), CentredClipping(), NormBound(0.7)):
        once = go(step, x, counts)[0]
        often = go(step, np.repeat(x, counts, axis=0))[0]
        np.testing.assert_allclose(once, often, rtol=0, atol=1e-9)


RULES = {
    "median": Median(),
    "trimmed_mean": TrimmedMean(0.3),
    "geometric_median": GeometricMedian(),
    "krum": Krum(0.3),
    "centred_clipping": CentredClipping(),
    "norm_bound": NormBound(),
    "nearest_neighbours": NearestNeighbours(0.3, TrimmedMean(0.3)),
    "bucketing": Bucketing(2, Median()),
}


@pytest.mark.parametrize("name", RULES)
def test_a_liar_of_any_size_does_not_move_it_far(name):
    draw = np.random.default_rng(1)
    x = 1.0 + 0.1 * draw.normal(size=(10, 4))
    x[3] = -1e9
    assert np.abs(go(RULES[name], x)[0] - 1.0).max() < 1.0
    assert np.abs(go(Average(), x)[0]).max() > 1e7, "the mean is moved"


@pytest.mark.parametrize("name", RULES)
def test_every_rule_runs_from_a_table_with_every_kind_of_method(name):
    fed = replace(nine_clients(), requirement=np.full(9, 1.2))
    model = muster.models.Softmax()
    by_name = build_method({"name": "fedavg", "step": {"kind": name}})
    assert type(by_name.step) is type(RULES[name])
    assert not by_name.step.only_mean
    step = RULES[name]
    for method in (M.fedavg(), M.fedalign(5.0, warmup=0), M.maxfl(), M.fedavgm()):
        then = replace(step, then=method.step) if name not in ("nearest_neighbours", "bucketing") \
            else replace(step, then=replace(step.then, then=method.step))  # fmt: skip
        run = muster.simulate(fed, replace(method, step=then), model, 3, evaluate_every=0)
        assert all(np.isfinite(w).all() for w in run.weights.values())
        assert run.facts["moved"]


def test_the_next_step_is_the_methods_own():
    fed = replace(nine_clients(), requirement=np.full(9, 1.2))
    local = muster.Local(steps=2, batch_size=None, lr=0.1)
    # One client is its own median: MaxFL's step on it is MaxFL's step.
    runs = [
        muster.simulate(
            fed,
            replace(M.maxfl(m=1), step=step),
            muster.models.Softmax(),
            2,
            local,
            dtype="float64",
        )
        for step in (Adaptive(), Median(Adaptive()))
    ]
    for name, w in runs[0].weights.items():
        np.testing.assert_allclose(w, runs[1].weights[name], atol=1e-12)
    assert Median(Momentum()).memory({"w": torch.zeros(2)}, np.ones(3, bool)).keys() == {"momentum"}
    for wrong in (QFair(1.0), Scaffold(), Median()):
        with pytest.raises(muster.MusterError, match="a step that uses the mean alone"):
            Median(wrong)


def test_statistics_follow_and_variances_stay_variances():
    draw = np.random.default_rng(2)
    x = draw.normal(size=(7, 4))
    variance = torch.from_numpy(draw.uniform(0.5, 2, (7, 2)))
    variance[0] = 1e9
    model = {"w": torch.zeros(4, dtype=torch.float64), "bn.running_var": torch.ones(2).double()}
    for step in RULES.values():
        offer, replies = stack(x, model, **{"bn.running_var": variance})
        memory = step.memory(model, np.ones(7, bool))
        after, _ = step(offer, replies, np.ones(7), memory)
        assert (after["bn.running_var"] >= 0).all()
        if not isinstance(step, (GeometricMedian, Krum, NearestNeighbours)):
            assert after["bn.running_var"].max() < 10, type(step)


def test_buckets_are_drawn_by_seed_and_round():
    offer, replies = stack(X)
    once, weight = Bucketing(4).prepare(offer, replies, np.arange(1.0, 12.0))
    again, _ = Bucketing(4).prepare(offer, replies, np.arange(1.0, 12.0))
    other, _ = Bucketing(4).prepare(replace(offer, round=5), replies, np.arange(1.0, 12.0))
    assert torch.equal(once.models["w"], again.models["w"])
    assert not torch.equal(once.models["w"], other.models["w"])
    assert len(weight) == 3
    assert weight.sum() == 66
    mean = np.average(once.models["w"].numpy(), axis=0, weights=weight)
    np.testing.assert_allclose(mean, np.average(X, axis=0, weights=np.arange(1.0, 12.0)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TrimmedMean(0.5), "f: 0.5; allowed"),
        (lambda: Krum(-1), "f: -1; allowed"),
        (lambda: Krum(m=0), "m: 0; allowed"),
        (lambda: GeometricMedian(nu=0.0), "nu: 0.0; allowed: above 0"),
        (lambda: CentredClipping(radius=-1.0), "radius: -1.0; allowed"),
        (lambda: Bucketing(0), "size: 0; allowed"),
        (lambda: NormBound(0.0), "most: 0.0; allowed"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(muster.MusterError, match=message):
        make()
