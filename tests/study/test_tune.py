"""Tuning: the same budget for every method, and no look at reported seeds or test rows."""

from __future__ import annotations

import io
import shutil
import tomllib
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from rich.console import Console

import muster
from muster.base import registry
from muster.base.errors import MusterError
from muster.base.registry import part
from muster.config import load, override
from muster.results import store
from muster.study import tune, units

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
                fed = muster.data.for_tuning(fed, 0.25, seed, apart=True)
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
    chosen = load(tomllib.loads((tmp_path / "chosen.toml").read_text()))
    for label, values in done.chosen.items():
        assert chosen.jobs[label].local.lr == values["local.lr"]
        assert chosen.jobs[label].local.steps == 2
    assert chosen.settings.all_seeds == (0, 1), "the reported ones"
    assert chosen.settings.left_out == 0.25, "digits are divided by the seed"


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
    with pytest.raises(MusterError, match=r"scored with left_out = 0.25, this tuning has 0.5"):
        muster.tune(BASE, {**TUNE, "share": 0.5}, tmp_path, jobs=1)


def test_candidates_are_measured_once_and_score_as_when_measured_often(tmp_path, monkeypatch):
    once = muster.tune(BASE, TUNE, tmp_path / "once", jobs=1)
    kept = store.load(next((tmp_path / "once").glob("*/*-seed*")))
    assert kept.rounds["test_loss"].drop_nulls().len() == 1
    own = tune.candidate_cell

    def often(*given):
        cell, table = own(*given)
        return cell, {**table, "evaluate_every": 1}

    with monkeypatch.context() as patch:
        patch.setattr(tune, "candidate_cell", often)
        before = muster.tune(BASE, TUNE, tmp_path / "often", jobs=1)
    assert once.frame.equals(before.frame)
    # What was begun that way, by an earlier version, goes on that way.
    shutil.rmtree(next((tmp_path / "often").glob("*/*-seed6")))
    assert muster.tune(BASE, TUNE, tmp_path / "often", jobs=1).frame.equals(before.frame)
    monkeypatch.setattr(units, "run_unit", lambda unit: pytest.fail("it is finished"))
    muster.tune(BASE, TUNE, tmp_path / "often", jobs=1)


def official(seed):
    """Digits with the same test rows in every seed, shared by all clients."""
    every = muster.data.digits().train
    x, y = every.x.numpy(), every.y.numpy()
    parts = muster.data.Shards(2).split(y[300:], 5, seed)
    return muster.data.federate(
        x[300:], y[300:], parts, test=(x[:300], y[:300]), priority=2, classes=10
    )


@pytest.fixture
def poisoned():
    """A data set whose test rows can be spoilt."""
    before = dict(registry._parts[muster.Federation])

    @part(muster.Federation, "spoilt")
    def spoilt(how: str = "", seed: int = 0) -> muster.Federation:
        fed = official(seed)
        x, y = fed.test.x.clone(), fed.test.y.clone()
        if how == "nan":
            x[:] = torch.nan
        if how == "labels":
            y = 9 - y
        return replace(fed, test=replace(fed.test, x=x, y=y))

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
            load({**BASE, "data": {"name": "spoilt", "how": spoil}}).federation(0),
            muster.methods.fedavg(), muster.models.Softmax(), 2,
        ).rounds["test_accuracy"].to_list()
        for spoil in ("", how)
    ]  # fmt: skip
    assert runs[0] != runs[1]


def test_every_method_gets_as_many_candidates():
    over = {**TUNE, "methods.align.epsilon": [0.1, 0.2, 0.4]}
    plan = tune.plan_tuning(BASE, over)
    assert {label: len(mine) for label, mine in plan.tried.items()} == {"fedavg": 2, "align": 2}
    every = {(c["local.lr"], c["epsilon"]) for c in plan.tried["align"]}
    assert len(every) == 2, "a sample without replacement"
    assert plan.tried == tune.plan_tuning(BASE, over).tried, "the same again"
    others = [tune.plan_tuning(BASE, {**over, "seed": s}).tried["align"] for s in range(5)]
    assert any(tried != plan.tried["align"] for tried in others)
    assert len(tune.plan_tuning(BASE, {**over, "budget": 1}).tried["align"]) == 1


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ({**TUNE, "budget": 3}, "tune.budget: 3, and fedavg has 2 to try"),
        ({**TUNE, "seeds": [1, 7]}, "tune.seeds: 1 is among the reported seeds [0, 1]"),
        ({**TUNE, "share": 1.0}, "tune.share: 1.0; allowed"),
        ({**TUNE, "measure": "speed"}, "unknown measure 'speed'"),
        ({**TUNE, "measure": "gm_appeal"}, "fit on; give gm_appeal_test, of held-out rows"),
        ({**TUNE, "measure": "gm_appeal_unseen"}, "give gm_appeal_test_unseen"),
        ({**TUNE, "measure": "loss"}, "give test_loss"),
        ({**TUNE, "measure": "train_f1"}, "give test_f1"),
        ({"local.lr": [0.1]}, "tune: nothing to choose from"),
        ({"seeds": [7]}, "tune: nothing to choose from"),
        ({"data.clients": [4, 5]}, "tune.data.clients: not a setting of a method"),
        ({"rounds": "3,4"}, "tune.rounds: not a setting of a method; give local.KEY"),
        ({"data": {"clients": [4, 5]}}, "tune.data: not a setting of a method"),
        ({"method.mu": [1.0]}, "none of the methods (fedavg, align) takes 'mu'"),
        ({"methods.fedalign.epsilon": [1.0]}, "unknown method in tune.methods.fedalign.epsilon"),
        ({"local.rate": [1.0, 2.0]}, "local.rate"),
        ({**TUNE, "direction": "up"}, "tune.direction: 'up'"),
        ({**TUNE, "seeds": 5}, "tune.seeds: 5; give a list of them"),
        ({**TUNE, "methods.fedavg.epsilon": [0.1, 0.2]}, "nothing in 'fedavg' uses it"),
        (3, "tune: 3"),
    ],
)
def test_mistakes_are_found_before_anything_runs(over, said):
    with pytest.raises(MusterError) as stop:
        tune.plan_tuning(BASE, over)
    assert said in str(stop.value)


def test_a_candidate_that_learned_nothing_is_not_chosen(tmp_path):
    one = {**BASE, "methods": ["fedavg"]}
    over = {"local.lr": [0.3, 1e30], "seeds": [5], "measure": "test_loss"}
    done = muster.tune(one, over, tmp_path, jobs=1)
    assert done.chosen == {"fedavg": {"local.lr": 0.3}}
    assert done.frame["score"].to_list()[1] is None
    assert any("every reply was refused" in said for said in done.warnings)
    with pytest.raises(MusterError, match="no candidate has a score in every seed"):
        muster.tune(one, {**over, "local.lr": [1e20, 1e30]}, tmp_path / "none", jobs=1)
    assert not (tmp_path / "none" / "chosen.toml").exists()


def test_a_measure_that_is_not_taken_is_found_before_anything_runs(monkeypatch):
    monkeypatch.setattr(units, "run_unit", lambda unit: pytest.fail("it ran"))
    with pytest.raises(MusterError, match="measure 'gm_appeal_test': no method takes it here"):
        muster.tune(BASE, {**TUNE, "measure": "gm_appeal_test"}, jobs=1)


def test_the_share_drawn_of_a_larger_grid_is_stated_and_seeds_that_were_tuned_on_are_refused(
    tmp_path,
):
    done = muster.tune(BASE, {**TUNE, "methods.align.epsilon": [0.1, 0.2, 0.4]}, tmp_path, jobs=1)
    out = io.StringIO()
    Console(file=out, width=120).print(done)
    assert "align: 2 drawn of 6 candidates" in out.getvalue()
    assert "fedavg: test acc on rows held out" in out.getvalue()
    table = tomllib.loads((tmp_path / "chosen.toml").read_text())
    assert table["tuned_on"] == [5, 6]
    assert load(table).settings.tuned_on == (5, 6)
    with pytest.raises(MusterError, match=r"seeds: 5 is one that settings were tuned on \(\[5, 6"):
        load({**table, "seeds": 7})
    with pytest.raises(MusterError, match="tuned on"):
        load({**table, "seed": 6})


def test_seeds_direction_and_flags():
    plan = tune.plan_tuning(BASE, {"local.lr": [0.1, 0.2]})
    assert plan.seeds == (2, 3, 4), "after the reported ones"
    assert tune.Tune(measure="test_loss").best == "min"
    assert tune.Tune(measure="test_accuracy").best == "max"
    table = override(BASE, [("tune.local.lr", "0.1,0.2"), ("tune.budget", "2"),
                            ("tune.seeds", "[8, 9]")])  # fmt: skip
    assert table["tune"] == {"local.lr": [0.1, 0.2], "budget": 2, "seeds": [8, 9]}
    with pytest.raises(MusterError, match="run it with muster tune"):
        load(table)


def test_a_solo_requirement_is_trained_without_the_rows_it_is_judged_by():
    for apart in (False, True):
        left_out = 0.5 if apart else 0.0
        chosen = load({**BASE, "requirement": {"steps": 3}, "left_out": left_out})
        fed = chosen.federation(0, tuning=0.5)
        alone = muster.data.for_tuning(muster.data.digits(clients=5, priority=2), 0.5, apart=apart)
        wanted = muster.with_solo(alone, muster.models.Softmax(), 1, muster.Local(steps=3))
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


def rows_of(*parts):
    """What is in the rows that clients hold, as bytes."""
    return {
        x.tobytes() + y.tobytes()
        for part in parts
        for k in range(len(part.sizes))
        for x, y in zip(*(t.numpy() for t in part.client(k)), strict=True)
    }


@pytest.fixture
def clinics(tmp_path):
    """A file of three clinics, without a column that says which rows are for testing."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(240, 3)).round(3)
    table = {"clinic": np.repeat(["a", "b", "c"], 80), "label": (x[:, 0] > 0).astype(int)}
    columns = {name: x[:, j] for j, name in enumerate(("age", "dose", "days"))}
    pl.DataFrame(table | columns).write_csv(tmp_path / "clinics.csv")
    return str(tmp_path / "clinics.csv")


def data_of(name, clinics):
    folder = {"name": "folder", "path": clinics, "client": "clinic", "priority": ["a"]}
    return {
        "digits": {"name": "digits", "clients": 5},
        "diabetes": {"name": "diabetes", "clients": 4},
        "own files": folder,
    }[name]


@pytest.mark.parametrize("name", ["digits", "diabetes", "own files"])
def test_no_reported_run_sees_a_row_that_settings_were_chosen_by(name, clinics):
    base = {"data": data_of(name, clinics), "seeds": 4, "methods": ["fedavg"]}
    if name == "diabetes":
        base |= {"task": "regression", "model": "linear"}
    plan = tune.plan_tuning(base, {"local.lr": [0.1, 0.2], "seeds": [50, 51]})
    assert plan.base["left_out"] == 0.25
    candidate = plan.cells["fedavg"][0].chosen
    judged, fitted = set(), set()
    for seed in plan.seeds:
        fed = candidate.federation(seed, plan.tune.share)
        judges = rows_of(fed.test)
        assert judges
        assert not judges & rows_of(fed.train)
        whole = candidate.rows(seed)
        assert rows_of(fed.train) == rows_of(whole.train) - judges, "as in a run"
        assert judges - rows_of(whole.train), "of its test rows too"
        judged, fitted = judged | judges, fitted | rows_of(fed.train)
    for seed in range(4):
        fed = load(plan.base).federation(seed)
        seen = rows_of(fed.train, fed.test)
        assert not judged & seen
        assert rows_of(fed.train)
        assert rows_of(fed.test)
        whole = candidate.rows(seed)
        every = rows_of(whole.train, whole.test)
        assert 0.6 * len(every) < len(seen) < 0.9 * len(every), "nothing else is left out"
        assert fitted & rows_of(fed.test), "as docs/sweep.md says"


def test_rows_are_the_same_whatever_they_are_scaled_by(clinics):
    """Features are others in every seed where they are scaled by its training rows."""
    data = {**data_of("own files", clinics), "scale": "pooled"}
    base = {"data": data, "seeds": 3, "methods": ["fedavg"]}
    plan = tune.plan_tuning(base, {"local.lr": [0.1, 0.2], "seeds": [50]})
    assert plan.base["left_out"] == 0.25

    def ages(part, fed):
        x = np.concatenate([part.client(k)[0].numpy() for k in range(fed.n)])
        x = x * np.array(fed.encoder.std) + np.array(fed.encoder.mean)
        return {tuple(row) for row in x.round(3).tolist()}

    tuned = plan.cells["fedavg"][0].chosen.federation(50, 0.25)
    judged = ages(tuned.test, tuned)
    assert len(judged) == tuned.test.offsets[-1]
    for seed in range(3):
        fed = load(plan.base).federation(seed)
        assert not judged & (ages(fed.train, fed) | ages(fed.test, fed))


@pytest.mark.parametrize("name", ["official", "split column", "synth"])
def test_data_with_test_rows_of_its_own_is_tuned_on_its_training_rows(name, poisoned, tmp_path):
    data = {"name": "synth"} if name == "synth" else {"name": "spoilt"}
    if name == "split column":
        x = np.random.default_rng(0).normal(size=(60, 2)).round(3)
        half = {"label": (x[:, 0] > 0).astype(int), "split": ["train", "train", "test"] * 20}
        for who in "ab":
            frame = pl.DataFrame({"one": x[:, 0] + (who == "b"), "two": x[:, 1], **half})
            frame.write_csv(tmp_path / f"{who}.csv")
        data = {"name": "folder", "path": str(tmp_path), "split": "split", "priority": ["a"]}
    base = {"data": data, "seeds": 3, "methods": ["fedavg"]}
    plan = tune.plan_tuning(base, {"local.lr": [0.1, 0.2], "seeds": [50, 51]})
    assert "left_out" not in plan.base
    for seed in plan.seeds:
        whole = plan.cells["fedavg"][0].chosen.rows(seed)
        fed = plan.cells["fedavg"][0].chosen.federation(seed, 0.25)
        assert rows_of(fed.train, fed.test) == rows_of(whole.train)
        for reported in range(3):
            test = load(base).federation(reported).test
            assert not rows_of(fed.train, fed.test) & rows_of(test)


def test_what_is_left_out_already_is_what_candidates_are_scored_on(tmp_path):
    base = {**BASE, "left_out": 0.4}
    assert tune.plan_tuning(base, TUNE).tune.share == 0.4
    with pytest.raises(MusterError, match=r"tune.share: 0.3, and left_out = 0.4"):
        tune.plan_tuning(base, {**TUNE, "share": 0.3})
    first = muster.tune(base, {**TUNE, "seeds": [5]}, tmp_path, jobs=1)
    again = muster.tune(first.table, {**TUNE, "seeds": [5]}, tmp_path, jobs=1)
    assert again.frame.equals(first.frame), "kept"
    with pytest.raises(MusterError, match=r"with left_out = 0.4, this tuning has 0.25"):
        muster.tune(BASE, TUNE, tmp_path, jobs=1)
    with pytest.raises(MusterError, match=r"left_out: 1.0; allowed"):
        load({**BASE, "left_out": 1.0})


def test_a_method_with_nothing_to_tune_takes_nothing_from_the_others():
    base = {**BASE, "methods": ["fedavg", "fedalign", "fedprox"]}
    over = {"methods.fedalign.epsilon": [0.1, 0.2, 0.4], "methods.fedprox.mu": [0.1, 1.0]}
    tried = tune.plan_tuning(base, over).tried
    assert {label: len(mine) for label, mine in tried.items()} == {
        "fedavg": 1, "fedalign": 2, "fedprox": 2,
    }  # fmt: skip
    assert tried["fedavg"] == [{}]


def test_ties_are_reported_and_the_first_of_the_grid_is_chosen():
    # Batches of more rows than there are, are all of them.
    base = {**BASE, "methods": ["fedavg"]}
    done = muster.tune(base, {"local.batch_size": [900, 800, 1], "seeds": [5]}, jobs=1)
    assert done.frame["tied"].to_list() == [True, True, False]
    assert done.chosen == {"fedavg": {"local.batch_size": 900}}
    said = io.StringIO()
    Console(file=said, width=120).print(done)
    assert "the first of 2 tied" in said.getvalue()


def test_a_methods_own_value_is_tuned_in_its_place():
    base = {**BASE, "methods": [{"name": "fedavg", "local": {"lr": 7.0}}]}
    plan = tune.plan_tuning(base, TUNE)
    found = [cell.chosen.jobs["fedavg"].local.lr for cell in plan.cells["fedavg"]]
    assert found == [0.001, 0.3]
