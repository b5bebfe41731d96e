"""Replies that do not fit in memory at once are taken in portions, of which the mean is kept."""

from __future__ import annotations

import numpy as np
import pytest

import muster
from helpers import nine_clients
from muster.run import local_clients

M = muster.methods
MEANS = [
    M.fedavg(), M.fedalign(0.4, warmup=0), M.fedavgm(), M.fedadam(), M.maxfl(), M.fedprox(0.1),
]  # fmt: skip
OTHERS = [M.scaffold(), M.qffl(), M.afl(), M.mwfed(), M.ditto()]


def go(method, **more):
    fed = muster.with_solo(nine_clients(), muster.models.MLP((4,)), 1, muster.Local(steps=3))
    return muster.simulate(
        fed, method, muster.models.MLP((4,)), 4, muster.Local(steps=2, batch_size=4),
        dtype="float64", **more,
    )  # fmt: skip


@pytest.fixture
def two_at_once(monkeypatch):
    """Room for two models; counts how many are ever asked for together."""
    asked = []
    real = local_clients.LocalClients.respond

    def respond(self, offer, roster, *rest):
        asked.append(len(roster))
        return real(self, offer, roster, *rest)

    monkeypatch.setattr(local_clients.LocalClients, "max_replies", lambda self, model: 2)
    monkeypatch.setattr(local_clients.LocalClients, "respond", respond)
    return asked


def close(a, b):
    return max(float(np.abs(a.weights[n] - b.weights[n]).max()) for n in a.weights) < 1e-12


@pytest.mark.parametrize("method", MEANS, ids=lambda m: m.name)
def test_portions_give_the_same_model_and_the_same_ledger(method, two_at_once, monkeypatch):
    portions = go(method)
    assert max(two_at_once) == 2
    monkeypatch.undo()
    whole = go(method)
    assert close(whole, portions)
    for name in ("clients", "rounds"):
        a, b = (getattr(r, name).drop("seconds", strict=False) for r in (whole, portions))
        assert a.columns == b.columns
        for column in a.columns:
            x, y = a[column], b[column]
            same = (x - y).abs().max() < 1e-12 if x.dtype.is_float() and x.count() else x.equals(y)
            assert same, column


@pytest.mark.parametrize("method", OTHERS, ids=lambda m: m.name)
def test_steps_that_need_every_reply_get_them_all(method, two_at_once):
    go(method)
    assert max(two_at_once) == 9


def test_what_attackers_gain_is_the_same_in_portions(two_at_once, monkeypatch):
    attack = muster.attacks.InflateAndNoise(fraction=0.3)
    portions = go(M.fedalign(0.4, warmup=0), attack=attack)
    monkeypatch.undo()
    whole = go(M.fedalign(0.4, warmup=0), attack=attack)
    assert close(whole, portions)
    for column in ("weight", "honest_weight"):
        gap = (whole.attackers[column] - portions.attackers[column]).abs().max()
        assert gap < 1e-12


def test_a_portion_that_is_refused_whole_counts_for_nothing(two_at_once):
    class Broken(muster.parts.ScaleUpdate):
        def send(self, offer, models, clients):
            return {n: t * float("nan") for n, t in models.items()}

    run = go(M.fedavg(), attack=Broken(fraction=0.5))
    assert all(np.isfinite(w).all() for w in run.weights.values())
    assert run.rounds["refused"].min() > 0
