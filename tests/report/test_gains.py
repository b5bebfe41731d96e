"""Gains over training alone, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import muster
from muster.report.gains import Gains, describe_rows, describe_work, measure_gains

WORK = muster.Local(steps=5, batch_size=16, lr=0.2)
ROUNDS = 8


def clinics(seed):
    """Two clinics alike, and a small one whose labels mean the opposite; 12 of its rows tested."""
    draw = np.random.default_rng(seed)

    def rows(n, sign):
        x = draw.normal(size=(n, 3)).astype("f4")
        return x, (sign * x[:, 0] + 0.3 * draw.normal(size=n) > 0).astype(int)

    train = [rows(60, 1), rows(60, 1), rows(20, -1)]
    test = [rows(40, 1), rows(40, 1), rows(12, -1)]
    return muster.Federation.from_arrays(train=train, test=test, varies="data")


@pytest.fixture(scope="module")
def done():
    methods = [muster.methods.fedavg(), muster.methods.local()]
    return muster.compare(clinics, methods, muster.models.Softmax(), ROUNDS, WORK, seeds=4)


def test_the_gain_is_held_out_against_alone_over_all_seeds(done):
    gains = measure_gains(done.runs, "fedavg")
    assert isinstance(gains, Gains)
    both = [
        np.stack([run.final["test_accuracy"].to_numpy() for run in done[label]])
        for label in ("fedavg", "local")
    ]
    gap = both[0] - both[1]
    half = stats.t.ppf(0.975, 3) * gap.std(axis=0, ddof=1) / 2
    for k, interval in enumerate(gains.intervals):
        assert interval.mean == pytest.approx(gap[:, k].mean())
        assert interval.half == pytest.approx(half[k])
    assert gains.rows.tolist() == [40, 40, 12]
    assert gains.work == "40 steps"


def test_a_client_whose_loss_fell_may_have_lost(done):
    """Its training loss is lower than at first, its test rows say that it has more alone."""
    run = done["fedavg"][0]
    gains = measure_gains(done.runs, "fedavg")
    assert gains.intervals[2].mean < -0.3
    assert gains.intervals[2].excludes_zero
    assert run.final["test_accuracy"][2] < done["local"][0].final["test_accuracy"][2]


def test_requirements_of_the_same_work_are_alone_too():
    fed = clinics(0)
    alone = muster.with_solo(fed, muster.models.Softmax(), ROUNDS, WORK)
    method = muster.methods.fedavg()
    run = muster.simulate(alone, method, muster.models.Softmax(), ROUNDS, WORK)
    gains = measure_gains({"fedavg": [run]}, "fedavg")
    expected = run.final["test_accuracy"].to_numpy() - alone.solo_score
    assert [g.mean for g in gains.intervals] == pytest.approx(expected.tolist())
    assert all(np.isnan(g.half) for g in gains.intervals), "one seed"
    assert describe_work([run]) == ["each client's work: 40 steps in a run, 40 steps alone"]


def test_less_work_alone_is_no_gain_and_both_are_stated():
    fed = muster.with_solo(clinics(0), muster.models.Softmax(), 1, WORK)
    run = muster.simulate(fed, muster.methods.fedavg(), muster.models.Softmax(), ROUNDS, WORK)
    missing = measure_gains({"fedavg": [run]}, "fedavg")
    assert isinstance(missing, str)
    assert "5 steps alone" in missing
    assert "40 steps" in missing
    (stated,) = describe_work([run])
    assert stated.startswith("each client's work: 40 steps in a run, 5 steps alone")
    assert "not the same" in stated


def test_without_alone_it_says_how_to_get_it(done):
    missing = measure_gains({"fedavg": done["fedavg"]}, "fedavg")
    assert isinstance(missing, str)
    assert "method local" in missing
    assert "muster.with_solo" in missing
    assert "each client's own" in measure_gains(done.runs, "local")


def test_other_work_of_the_method_local_is_no_comparison(done):
    shorter = [replace(r, facts={**r.facts, "work": "20 steps"}) for r in done["local"]]
    missing = measure_gains({"fedavg": done["fedavg"], "local": shorter}, "fedavg")
    assert "20 steps" in missing


def test_fewer_errors_are_a_gain():
    """Of a score where less is better the sign is turned."""
    draw = np.random.default_rng(0)
    data = [(draw.normal(size=(20, 2)), draw.normal(size=20)) for _ in range(3)]
    fed = muster.Federation.from_arrays(train=data, test=data)
    done = muster.compare(
        fed, [muster.methods.fedavg(), muster.methods.local()], muster.models.Linear(), 2,
        seeds=2, task=muster.tasks.regression(scores=("mae",)),
    )  # fmt: skip
    gains = measure_gains(done.runs, "fedavg")
    assert gains.score == "mae"
    got = [done[m][0].final["test_mae"].to_numpy() for m in ("local", "fedavg")]
    assert gains.values[0] == pytest.approx(got[0] - got[1])


def test_rows_are_counted():
    assert describe_rows(12, "accuracy") == "12 test rows: one is 8 points"
    assert describe_rows(8, "accuracy") == "8 test rows: one is 12.5 points"
    assert describe_rows(1, "accuracy") == "1 test row: one is 100 points"
    assert describe_rows(400, "accuracy") == "400 test rows: one is 0.25 points"
    assert describe_rows(12, "auc") == "12 test rows"
