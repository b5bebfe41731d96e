"""Tuning: the same budget for every method, and no look at reported seeds or test rows."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

import muster
from muster import registry
from muster.config import experiment, override, tuning, units
from muster.errors import MusterError
from muster.registry import part

BASE = {
    "data": {"name": "digits", "clients": 5, "priority": 2},
    "rounds": 3,
    "seeds": 2,
    "local": {"steps": 2, "batch_size": 8},
    "methods": ["fedavg", {"name": "fedalign", "label": "align"}],
}
TUNE = {"local.lr": [0.001, 0.3], "seeds": [5, 6]}


def test_the_choice_is_the_best_by_hand(tmp_path):
    done = muster.tune(BASE, TUNE, tmp_path, jobs=1)
    hand: dict = {}
    for label, method in (
        ("fedavg", muster.methods.fedavg()),
        ("align", muster.methods.fedalign()),
    ):
        for lr in (0.001, 0.3):
            for seed in (5, 6):
                fed = muster.data.digits(clients=5, priority=2, seed=seed)
                fed = muster.data.for_tuning(fed, 0.25, seed)
                local = muster.Local(steps=2, batch_size=8, lr=lr)
                run = muster.simulate(fed, method, muster.models.Softmax(), 3, local, seed)
                hand[label, lr, seed] = run.rounds["test_accuracy"][-1]
    found = {
        (row["method"], row["local.lr"], row["seed"]): row["score"]
        for row in done.frame.iter_rows(named=True)
    }
    assert found == hand
    for label in ("fedavg", "align"):
        mean = {lr: (hand[label, lr, 5] + hand[label, lr, 6]) / 2 for lr in (0.001, 0.3)}
        best = max(mean, key=lambda lr: mean[lr])
        assert done.chosen[label] == {"local.lr": best}
        mine = done.frame.filter(pl.col("method") == label)
        assert mine.filter("chosen")["local.lr"].unique().to_list() == [best]
    kept = pl.read_parquet(tmp_path / "tuning.parquet")
    assert kept.equals(done.frame)
    chosen = experiment(tomllib.loads((tmp_path / "chosen.toml").read_text()))
    for label, values in done.chosen.items():
        assert chosen.local_of(label).lr == values["local.lr"]
        assert chosen.local_of(label).steps == 2
    assert chosen.settings.all_seeds == (0, 1), "the reported ones"


def test_what_is_finished_is_not_run_again(tmp_path, monkeypatch):
    ran = []
    real = units.run_unit
    monkeypatch.setattr(units, "run_unit", lambda unit: (ran.append(unit), real(unit))[1])

    def stop(done):
        if done.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(muster.TuningInterrupted):
        muster.tune(BASE, TUNE, tmp_path, jobs=1, on_cell=stop)
    assert not (tmp_path / "chosen.toml").exists()
    muster.tune(BASE, TUNE, tmp_path, jobs=1)
    assert len(ran) == 8, "each once"
    with pytest.raises(MusterError, match=r"scored with share = 0.25, this tuning has 0.5"):
        muster.tune(BASE, {**TUNE, "share": 0.5}, tmp_path, jobs=1)


@pytest.fixture
def poisoned():
    """A data set whose test rows can be spoilt."""
    before = dict(registry._parts[muster.Federation])

    @part(muster.Federation, "spoilt")
    def spoilt(how: str = "", seed: int = 0) -> muster.Federation:
        fed = muster.data.digits(clients=5, priority=2, seed=seed)
        # Rows of their own, so that training rows stay as they are.
        x, y = fed.test.x.double().clone(), fed.test.y.clone()
        rows = fed.test.base(np.arange(fed.test.offsets[-1]))
        if how == "nan":
            x[rows] = torch.nan
        if how == "labels":
            y[rows] = 9 - y[rows]
        train = replace(fed.train, x=fed.train.x.double())
        return replace(fed, train=train, test=replace(fed.test, x=x, y=y))

    yield
    registry._parts[muster.Federation].clear()
    registry._parts[muster.Federation].update(before)


@pytest.mark.parametrize("how", ["nan", "labels"])
def test_test_rows_are_never_looked_at(poisoned, how):
    frames = []
    for spoil in ("", how):
        base = {**BASE, "data": {"name": "spoilt", "how": spoil}, "methods": ["fedavg"]}
        done = muster.tune(base, {**TUNE, "seeds": [5]}, jobs=1)
        frames.append((done.frame, done.chosen))
    assert frames[0][0].equals(frames[1][0])
    assert frames[0][1] == frames[1][1]
    # Reported runs do look at them: the same spoiling is not without effect there.
    runs = [
        muster.simulate(
            experiment({**BASE, "data": {"name": "spoilt", "how": spoil}}).federation(0),
            muster.methods.fedavg(), muster.models.Softmax(), 2,
        ).rounds["test_accuracy"].to_list()
        for spoil in ("", how)
    ]  # fmt: skip
    assert runs[0] != runs[1]


def test_every_method_gets_as_many_candidates():
    over = {**TUNE, "methods.align.epsilon": [0.1, 0.2, 0.4]}
    plan = tuning.planned(BASE, over)
    assert {label: len(mine) for label, mine in plan.tried.items()} == {"fedavg": 2, "align": 2}
    every = {(c["local.lr"], c["epsilon"]) for c in plan.tried["align"]}
    assert len(every) == 2, "a sample without replacement"
    assert plan.tried == tuning.planned(BASE, over).tried, "the same again"
    others = [tuning.planned(BASE, {**over, "seed": s}).tried["align"] for s in range(5)]
    assert any(tried != plan.tried["align"] for tried in others)
    assert len(tuning.planned(BASE, {**over, "budget": 1}).tried["align"]) == 1


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ({**TUNE, "budget": 3}, "tune.budget: 3, and fedavg has 2 to try"),
        ({**TUNE, "seeds": [1, 7]}, "tune.seeds: 1 is among the reported seeds [0, 1]"),
        ({**TUNE, "share": 1.0}, "tune.share: 1.0; allowed"),
        ({**TUNE, "measure": "speed"}, "unknown measure 'speed'"),
        ({"data.clients": [4, 5]}, "tune.data.clients: not a setting of a method"),
        ({"method.mu": [1.0]}, "none of the methods (fedavg, align) takes 'mu'"),
        ({"methods.fedalign.epsilon": [1.0]}, "unknown method in tune.methods.fedalign.epsilon"),
        ({"local.rate": [1.0]}, "local.rate"),
        ({**TUNE, "direction": "up"}, "tune.direction: 'up'"),
    ],
)
def test_mistakes_are_found_before_anything_runs(over, said):
    with pytest.raises(MusterError) as stop:
        tuning.planned(BASE, over)
    assert said in str(stop.value)


def test_seeds_direction_and_flags():
    plan = tuning.planned(BASE, {"local.lr": [0.1, 0.2]})
    assert plan.seeds == (2, 3, 4), "after the reported ones"
    assert tuning.Tune(measure="test_loss").best == "min"
    assert tuning.Tune(measure="test_accuracy").best == "max"
    table = override(BASE, [("tune.local.lr", "0.1,0.2"), ("tune.budget", "2"),
                            ("tune.seeds", "[8, 9]")])  # fmt: skip
    assert table["tune"] == {"local.lr": [0.1, 0.2], "budget": 2, "seeds": [8, 9]}
    with pytest.raises(MusterError, match="run it with muster tune"):
        experiment(table)


def test_a_solo_requirement_is_trained_without_the_rows_it_is_judged_by():
    chosen = experiment({**BASE, "requirement": {"steps": 3}})
    fed = chosen.federation(0, tuning=0.5)
    alone = muster.data.for_tuning(muster.data.digits(clients=5, priority=2), 0.5)
    wanted = muster.with_solo(alone, muster.models.Softmax(), muster.Local(steps=3))
    assert np.array_equal(fed.requirement, wanted.requirement)


def test_what_is_scored_is_the_tasks_own_score():
    table = {
        "data": {"name": "diabetes", "clients": 4, "priority": 2}, "task": "regression",
        "model": "linear", "rounds": 2, "methods": ["fedavg"],
    }  # fmt: skip
    done = muster.tune(table, {"local.lr": [0.001, 0.1], "seeds": [7]}, jobs=1)
    assert (done.measure, done.direction) == ("test_r2", "max")
    assert done.chosen == {"fedavg": {"local.lr": 0.1}}
    assert done.frame["score"].arg_max() == 1
