"""One round as it is recorded: silence, warm-up, weights, theta."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import muster
from helpers import nine_clients
from muster.local import Local

M = muster.methods


@pytest.fixture
def fed():
    return nine_clients()


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_a_silent_client_uploads_nothing_and_trains_nothing(fed, engine, monkeypatch):
    """Count every gradient step that is really taken, client by client."""
    taken = []
    if engine == "loop":
        from muster.engines.loop import LoopCohort

        real = LoopCohort._batches

        def one_client(self):
            for batches in real(self):
                taken.append(int(self.group.clients[0]))
                yield batches

        monkeypatch.setattr(LoopCohort, "_batches", one_client)
    else:
        from muster.engines import stacked

        real_batches = stacked.StackedCohort._batches

        def batches(self):
            for n, batch in real_batches(self):
                taken.extend(self.group.clients[:n].tolist())
                yield n, batch

        monkeypatch.setattr(stacked.StackedCohort, "_batches", batches)
    run = muster.simulate(
        fed, M.fedalign(0.05, warmup=0), muster.models.MLP((4,)), 6, Local(steps=3, batch_size=4),
        engine=engine, processes=1 if engine == "loop" else None,
    )  # fmt: skip
    silent = run.clients.filter(~run.clients["joined"])
    assert len(silent) > 5
    assert silent["bytes_up"].sum() == 0
    assert silent["steps"].sum() == 0
    assert silent["weight"].sum() == 0
    joined = run.clients.filter("joined")
    assert len(taken) == 3 * len(joined) == run.rounds["steps"].sum()
    counted = np.bincount(taken, minlength=fed.n)
    expected = np.bincount(joined["client"].to_numpy(), minlength=fed.n) * 3
    assert np.array_equal(counted, expected)
    size = sum(w.nbytes for w in run.weights.values())
    assert (joined["bytes_up"] == size + 8).all()
    assert (run.clients["bytes_down"] == size + 16).all()


def test_warm_up_asks_only_priority_clients(fed):
    args = {"model": muster.models.Softmax(), "rounds": 20}
    for warmup, rounds in ((0.25, 5), (3, 3), (0, 0)):
        run = muster.simulate(fed, M.fedalign(10.0, warmup=warmup), **args)
        asked = run.rounds["asked"].to_list()
        assert asked == [3] * rounds + [9] * (20 - rounds)


def test_theta_is_recorded_from_what_was_admitted(fed):
    run = muster.simulate(fed, M.fedalign(0.4, warmup=0), muster.models.Softmax(), rounds=10)
    others = run.clients.filter(run.clients["admitted"] & ~run.clients["priority"])
    for t, theta in run.rounds.select("round", "theta").iter_rows():
        who = others.filter(others["round"] == t)["client"].to_numpy()
        assert theta == pytest.approx(1 / (1 + fed.share[who].sum()))


def test_weights_in_the_ledger_are_shares_of_the_step(fed):
    run = muster.simulate(fed, M.fedalign(0.4, warmup=0), muster.models.Softmax(), rounds=10)
    sums = run.clients.group_by("round").agg(total=pl.col("weight").sum())["total"]
    assert np.allclose(sums, 1.0)
