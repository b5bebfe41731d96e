"""Invitations: who is asked, how often, and with what share."""

from __future__ import annotations

import numpy as np
import pytest

import muster
import reference
from helpers import admitted, gap, layers_of, module_of, nine_clients, random_layers
from muster.local import Local
from muster.parts.invite import Fraction, Full, Sample, WithReplacement

M = muster.methods


@pytest.fixture
def fed():
    return nine_clients()


def no_losses(clients):
    raise AssertionError("this invitation needs no losses")


def test_full_sample_and_fraction(fed):
    pool = np.arange(9)
    assert Full()(fed, pool, 0, 0, no_losses).clients.tolist() == list(range(9))
    asked = Sample(4)(fed, pool, 0, 3, no_losses).clients
    assert len(set(asked.tolist())) == 4
    assert (np.diff(asked) > 0).all()
    assert len(Fraction(0.5)(fed, pool, 0, 0, no_losses)) == 5
    assert len(Sample(40)(fed, pool, 0, 0, no_losses)) == 9
    draws = {tuple(Sample(4)(fed, pool, 0, t, no_losses).clients.tolist()) for t in range(30)}
    assert len(draws) > 20


def test_sampling_is_uniform(fed):
    counts = np.zeros(9)
    for t in range(3000):
        counts[Sample(3)(fed, np.arange(9), 0, t, no_losses).clients] += 1
    assert np.abs(counts / 3000 - 1 / 3).max() < 0.04


def test_draws_with_replacement_average_as_eq_55(fed):
    data, priority = reference.problem(0, clients=9)
    layers = random_layers((5, 4))
    invite = WithReplacement(4)
    method = M.fedalign(1e9, warmup=0, invite=invite)
    local = Local(steps=2, batch_size=None, lr=0.1)
    run = muster.simulate(fed, method, module_of(layers), 1, local, dtype="float64")
    roster = invite(fed, np.arange(9), 0, 0, no_losses)
    total = sum(len(data[k][1]) for k in priority)
    share = dict(zip(roster.clients.tolist(), roster.share.tolist(), strict=True))
    drawn = {k: round(share[k] * 4) for k in priority if k in share}
    assert sum(drawn.values()) == 4
    others = [k for k in range(9) if k not in priority]
    p = {k: len(data[k][1]) / total for k in others}
    own = {k: reference.local_sgd(layers, [data[k]] * 2, 0.1) for k in range(9)}
    scale = 1 + sum(p.values())
    for j in range(2):
        expected = sum(c * own[k][0][j] for k, c in drawn.items()) / 4 / scale
        expected = expected + sum(p[k] / scale * own[k][0][j] for k in others)
        assert np.abs(layers_of(run)[0][j] - expected).max() < 1e-12


def test_draws_with_replacement_follow_the_data_shares(fed):
    total = np.zeros(9)
    for t in range(4000):
        roster = WithReplacement(2)(fed, np.arange(9), 0, t, no_losses)
        total[roster.clients] += roster.share
    assert np.abs(total[fed.priority] / 4000 - fed.share[fed.priority]).max() < 0.02


def test_a_fraction_of_all_clients_agrees_with_numpy(fed):
    """Supplement D.4: F(w) over all priority clients, the average over those asked."""
    data, priority = reference.problem(0, clients=9)
    layers = random_layers((5, 4))
    invite = Fraction(0.5)
    local = Local(steps=2, batch_size=None, lr=0.1)
    method = M.fedalign(0.4, warmup=0, invite=invite)
    run = muster.simulate(fed, method, module_of(layers), 8, local, dtype="float64")
    sizes = np.array([len(y) for _, y in data])
    p = sizes / sizes[priority].sum()
    for t in range(8):
        asked = invite(fed, np.arange(9), 0, t, no_losses).clients.tolist()
        own = [reference.loss(layers, *pair) for pair in data]
        f = sum(p[k] * own[k] for k in priority)
        let_in = [k for k in asked if k in priority or abs(own[k] - f) < 0.4]
        assert admitted(run)[t] == let_in
        if let_in:
            models = [reference.local_sgd(layers, [data[k]] * 2, 0.1) for k in let_in]
            layers = reference.average(models, [p[k] for k in let_in])
    assert gap(layers_of(run), layers) < 1e-9


def test_reference_on_the_asked_needs_only_them(fed):
    args = {"model": muster.models.Softmax(), "rounds": 12, "evaluate_every": 0}
    method = M.fedalign(0.5, warmup=0, invite=Sample(3), reference="asked")
    run = muster.simulate(fed, method, **args)
    for row in run.rounds.iter_rows(named=True):
        asked = run.clients.filter(run.clients["round"] == row["round"])
        members = asked.filter("priority")
        if len(members) == 0:
            assert row["reference_loss"] is None
            assert row["skipped"]
            continue
        weight = fed.share[members["client"].to_numpy()]
        expected = float(weight @ members["loss"].to_numpy() / weight.sum())
        assert row["reference_loss"] == pytest.approx(expected, rel=1e-6)
