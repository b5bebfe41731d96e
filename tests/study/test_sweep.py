"""Sweeps of configurations: every cell is the comparison it would be by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib

import polars as pl
import pytest
import tomli_w

import muster
from helpers import same_bits
from muster.base.errors import MusterError
from muster.config import load, override
from muster.results import store
from muster.study import sweep, units
from muster.study.experiment_runs import compare_experiment

BASE = {
    "data": {"name": "digits", "clients": 6},
    "rounds": 2,
    "seeds": 2,
    "local": {"steps": 2, "batch_size": 8},
    "methods": ["fedalign", {"name": "fedavg", "label": "all"}],
}
OVER = {"data.priority": [2, 3]}


@pytest.fixture
def counted(monkeypatch):
    """The units that were run."""
    ran = []
    real = units.run_unit
    monkeypatch.setattr(units, "run_unit", lambda unit: (ran.append(unit), real(unit))[1])
    return ran


def test_every_cell_is_a_comparison_by_itself(tmp_path):
    done = muster.sweep(BASE, OVER, tmp_path / "s", jobs=1)
    assert done.complete
    assert done.frame.columns[:4] == ["data.priority", "method", "seed", "round"]
    assert len(done.frame) == 2 * 2 * 2 * 2
    for priority in (2, 3):
        cell = muster.load(tmp_path / "s" / f"data.priority={priority}")
        alone = compare_experiment(
            load({**BASE, "data": {**BASE["data"], "priority": priority}}), None
        )
        for label in ("fedalign", "all"):
            for seed in (0, 1):
                assert same_bits(cell[label][seed], alone[label][seed])
                mine = done.frame.filter(
                    pl.col("data.priority") == priority, method=label, seed=seed
                )
                taken = alone[label][seed].rounds.drop("seconds")
                assert mine.select(taken.columns).equals(taken)
    again = muster.load(tmp_path / "s")
    assert isinstance(again, muster.Sweep)
    assert again.frame.equals(done.frame)
    assert again.complete


@pytest.mark.slow
def test_two_processes_give_the_same_bits(tmp_path):
    small = {**BASE, "seeds": 1}
    here = muster.sweep(small, OVER, tmp_path / "here", jobs=1)
    there = muster.sweep(small, OVER, tmp_path / "there", jobs=2)
    assert here.frame.drop("seconds").equals(there.frame.drop("seconds"))
    for name in ("data.priority=2", "data.priority=3"):
        a, b = (muster.load(tmp_path / side / name) for side in ("here", "there"))
        assert all(same_bits(a[label][0], b[label][0]) for label in a.runs)


def test_what_is_finished_is_not_run_again(tmp_path, counted):
    def stop(done):
        if done.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(muster.SweepInterrupted) as caught:
        muster.sweep(BASE, OVER, tmp_path, jobs=1, on_cell=stop)
    assert not caught.value.sweep.complete
    assert len(caught.value.sweep.frame) == 3 * 2 * 2
    assert [(u.cell, u.seed) for u in counted] == [
        ("data.priority=2", 0), ("data.priority=2", 1), ("data.priority=3", 0),
    ]  # fmt: skip
    counted.clear()
    told = []
    done = muster.sweep(BASE, OVER, tmp_path, jobs=1, on_cell=told.append)
    assert [(u.cell, u.seed) for u in counted] == [("data.priority=3", 1)]
    assert done.complete
    (last,) = told
    assert (last.done, last.total, last.kept, last.whole, last.cells) == (4, 4, 3, 2, 2)
    counted.clear()
    more = muster.sweep({**BASE, "seeds": 3}, OVER, tmp_path, jobs=1)
    assert {u.seed for u in counted} == {2}
    assert more.seeds == (0, 1, 2)
    wide = muster.sweep(BASE, {"data.priority": [2, 3, 4]}, tmp_path, jobs=1)
    assert [u.cell for u in counted[2:]] == ["data.priority=4"] * 2
    assert wide.complete


def test_a_folder_of_other_settings_is_refused(tmp_path):
    muster.sweep({**BASE, "seeds": 1}, OVER, tmp_path, jobs=1)
    for changed, said in (
        ({"local": {"steps": 3}}, "its runs were made with methods.fedalign"),
        ({"data": {"name": "digits", "clients": 7}}, "its runs were made with data"),
        ({"rounds": 3}, "its runs were made with rounds = 2, this has 3"),
        # What was not there before, or is not there any more.
        ({"attack": {"kind": "sign_flip", "fraction": 0.5}}, "attack = none, this has"),
        ({"requirement": 1.0}, "requirement = none, this has 1.0"),
        ({"requirement": 1.0, "participation": {"kind": "flexible", "from_round": 1}},
         "participation = none, this has"),
        ({"tuned_steps": 2}, "tuned_steps = 0, this has 2"),
    ):  # fmt: skip
        with pytest.raises(MusterError, match=said):
            muster.sweep({**BASE, **changed}, OVER, tmp_path, jobs=1)
    written = (tmp_path / "data.priority=2" / "config.toml").read_text()
    assert "attack" not in written
    attacked = {**BASE, "seeds": 1, "attack": {"kind": "sign_flip", "fraction": 0.5}}
    muster.sweep(attacked, OVER, tmp_path / "attacked", jobs=1)
    with pytest.raises(MusterError, match="this has none"):
        muster.sweep(BASE, OVER, tmp_path / "attacked", jobs=1)
    # Other methods are more runs, or fewer: those that are there stay as they are.
    muster.sweep({**BASE, "seeds": 1, "methods": ["fedalign", "fedprox"]}, OVER, tmp_path, jobs=1)


def test_a_folder_of_a_version_that_knew_fewer_settings_goes_on(tmp_path, counted):
    muster.sweep({**BASE, "seeds": 1, "requirement": {"steps": 1}}, OVER, tmp_path, jobs=1)
    for path in tmp_path.glob("*/config.toml"):
        table = tomllib.loads(path.read_text())
        del table["local"]["batches"], table["requirement"]["batches"], table["tuned_steps"]
        path.write_text(tomli_w.dumps(table))
    counted.clear()
    again = muster.sweep({**BASE, "requirement": {"steps": 1}}, OVER, tmp_path, jobs=1)
    assert again.complete
    assert [unit.seed for unit in counted] == [1, 1]


def test_values_that_are_equal_and_mean_different_things_are_cells_of_their_own():
    done = muster.sweep({**BASE, "seeds": 1}, {"method.warmup": [1, 1.0]}, jobs=1)
    assert done.frame["method.warmup"].unique(maintain_order=True).to_list() == ["1", "1.0"]
    one, all_rounds = (done.frame.filter(pl.col("method.warmup") == v) for v in ("1", "1.0"))
    assert one["asked"].sum() > all_rounds["asked"].sum()
    assert done.summary("loss").height == 4


def test_unfinished_cells_are_marked_wherever_they_are_shown(tmp_path, monkeypatch):
    real, ran = units.run_unit, []

    def stop_at_second(unit):
        if ran:
            raise KeyboardInterrupt
        ran.append(unit)
        real(unit)

    monkeypatch.setattr(units, "run_unit", stop_at_second)
    with pytest.raises(sweep.SweepInterrupted):
        muster.sweep(BASE, OVER, tmp_path, jobs=1)
    part = muster.load(tmp_path)
    said = f"not finished: 2 of 8 runs; continue with: muster sweep --resume {tmp_path}"
    assert part.attention == (said, *part.warnings)
    page = part.report(tmp_path / "report.html").read_text()
    assert "not finished: 2 of 8 runs" in page


def test_parts_reach_all_methods_and_what_only_some_use_those_alone():
    base = {**BASE, "methods": ["fedavg", "qffl", "fedalign"]}
    over = {"method.invite": ["full", {"kind": "sample", "m": 2}], "method.warmup": [0, 1]}
    last = sweep.plan_sweep(base, over).cells[-1].chosen
    for label in last.methods:
        assert last.jobs[label].method.invite == muster.parts.Sample(2)
        assert last.jobs[label].method.warmup == 1
    last = sweep.plan_sweep(base, {"method.epsilon": [0.1, 0.4]}).cells[-1].chosen
    assert [m.get("epsilon") for m in last.methods.values()] == [None, None, 0.4]


def test_a_measure_that_nobody_takes_is_known_before_anything_runs(tmp_path, counted):
    for measure, said in (
        ("gm_appeal", r"measure 'gm_appeal': no method takes it here"),
        ("loss, own_loss_nosuch", "unknown measure"),
        ("gm_appeal_tuned", "Taken are loss, train_accuracy, test_loss"),
    ):
        with pytest.raises(MusterError, match=said):
            muster.sweep({**BASE, "measures": measure}, OVER, tmp_path / "s", jobs=1)
    assert not counted
    solo = {
        "data": {"name": "digits", "clients": 4, "priority": "all", "unseen": 1},
        "requirement": {"steps": 1},
        "tuned_steps": 1,
        "measures": "preferred_accuracy_unseen, gm_appeal_tuned, gm_appeal_test",
    }
    done = muster.sweep({**BASE, **solo, "seeds": 1}, {"local.lr": [0.1]}, jobs=1)
    assert done.summary()["mean"].null_count() == 0


def test_mistakes_of_any_cell_are_found_before_anything_runs(tmp_path, counted):
    for over, said in (
        ({"data.priority": [2, 99]}, "data.priority=99: priority"),
        ({"data.nosuch": [2]}, "data.nosuch=2: unknown key 'data.nosuch'"),
        ({"local.lr": [0.1, "fast"]}, "local.lr=fast: local.lr.kind: 'fast' is unknown"),
        ({"method.nosuch": [1]}, "none of the methods (fedalign, all) takes 'nosuch'"),
        ({"methods.fedprox.mu": [1]}, "unknown method in sweep.methods.fedprox.mu: 'fedprox'"),
        ({"seeds": [1, 2]}, "sweep.seeds: cannot be swept"),
        ({"method": ["fedavg", "fedprox"]}, "sweep.method: cannot be swept"),
        ({"methods.all.name": ["fedavg", "fedprox"]}, "every cell has the same methods"),
        ({"method.name": ["fedavg", "fedprox"]}, "every cell has the same methods"),
        ({"local.": [1]}, "sweep.local.: cannot be swept"),
        ({"methods.all.epsilon": [0.1, 0.2]}, "nothing in 'fedavg' uses it"),
        (3, "sweep: 3; give a table of keys"),
        ({"methods.all.solver": ["sgd", "control_variates"]}, 'use step = "scaffold"'),
        ({}, "sweep: over what?"),
    ):
        with pytest.raises(MusterError) as stop:
            muster.sweep(BASE, over, tmp_path / "s", jobs=1)
        assert said in str(stop.value)
        assert not list(tmp_path.rglob("*.toml"))
    assert not counted


def test_keys_reach_the_methods_that_take_them():
    base = {**BASE, "methods": ["fedalign", "fedavg", {"name": "fedalign", "label": "x.y"}]}

    def epsilons(key, *values):
        plan = sweep.plan_sweep(base, {key: list(values)})
        return [
            [m.get("epsilon") for m in c.methods.values()]
            for c in (one.chosen for one in plan.cells)
        ]

    assert epsilons("method.epsilon", 0.1, 0.9) == [[0.1, None, 0.1], [0.9, None, 0.9]]
    assert epsilons("methods.x.y.epsilon", 0.3) == [[None, None, 0.3]]
    plan = sweep.plan_sweep(base, {"method.local.lr": [0.7]})
    assert [plan.first.jobs[label].local.lr for label in plan.first.methods] == [0.7] * 3
    plan = sweep.plan_sweep(base, {"methods.fedavg.local.lr": [0.7]})
    assert [plan.first.jobs[label].local.lr for label in plan.first.methods] == [0.1, 0.7, 0.1]
    plan = sweep.plan_sweep(base, {"method.step": ["average", {"kind": "momentum", "beta": 0.5}]})
    assert [
        type(plan.cells[1].chosen.jobs[label].method.step).__name__ for label in plan.first.methods
    ] == ["Momentum"] * 3
    assert plan.cells[1].cell.name == "method.step=momentum(beta=0.5)"
    assert base["methods"][1] == "fedavg", "what was given stays as it was"


def test_flags_and_files_mean_the_same(tmp_path):
    flags = [("sweep.data.priority", "2,3"), ("sweep.method.epsilon", "[0.1, 0.2]")]
    table = override(BASE, flags)
    assert table["sweep"] == {"data.priority": [2, 3], "method.epsilon": [0.1, 0.2]}
    path = tmp_path / "my.toml"
    path.write_text(
        '[data]\nname = "digits"\n[sweep]\n"data.priority" = [2, 3]\nmethod.epsilon = [0.1, 0.2]\n'
    )
    assert sweep.plan_sweep(path, None).over == sweep.plan_sweep(table, None).over
    assert sweep.plan_sweep(path, None).first.settings.name == "my"
    with pytest.raises(MusterError, match="run it with muster sweep"):
        load(table)


SCRIPT = """
import sys, muster
if __name__ == "__main__":
    base = {"data": {"name": "digits", "clients": 6}, "rounds": 40, "seeds": 4, "method": "fedavg"}
    muster.sweep(base, {"data.priority": [1, 2, 3]}, sys.argv[1], jobs=2)
"""


def runs_in(folder):
    """Every finished run, and when it was."""
    return {p.parent: p.stat().st_mtime_ns for p in folder.glob(f"*/*/{store.MARKER}")}


@pytest.mark.slow  # pytest -m slow tests/config/test_sweeps.py
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_sweep_that_is_stopped_leaves_what_is_finished_and_no_process(tmp_path, how):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    folder = tmp_path / "s"

    def begin():
        return subprocess.Popen([sys.executable, script, folder], stderr=subprocess.DEVNULL)

    def children(pid):
        found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True)
        return [int(line) for line in found.stdout.split()]

    process = begin()
    until = time.monotonic() + 120
    while len(runs_in(folder)) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    workers = children(process.pid)
    process.send_signal(how)
    process.wait(60)
    kept = runs_in(folder)
    assert 2 <= len(kept) < 12
    assert workers
    until = time.monotonic() + 30
    while any(map(alive, workers)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(alive, workers))
    assert begin().wait(120) == 0
    after = runs_in(folder)
    assert len(after) == 12
    assert {place: after[place] for place in kept} == kept, "not written again"


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("own", "key"),
    [({"lr": 0.3}, "local.lr"), ({"epochs": 1}, "local.steps"),
     ({"optimizer": "adam"}, "local.optimizer.momentum")],
)  # fmt: skip
def test_local_work_that_a_method_has_of_its_own_is_not_swept_over(own, key):
    base = {**BASE, "methods": ["fedalign", {"name": "fedavg", "label": "all", "local": own}]}
    with pytest.raises(MusterError, match=rf"sweep.{key}: all has .* sweep methods.all.{key}"):
        sweep.plan_sweep(base, {key: [1, 2]})
    cells = sweep.plan_sweep(base, {"local.batch_size": [4, 8]}).cells
    assert [cell.chosen.jobs["all"].local.batch_size for cell in cells] == [4, 8]


def test_a_setting_of_the_default_part_needs_no_name_of_it():
    cells = sweep.plan_sweep(BASE, {"local.optimizer.momentum": [0.0, 0.9]}).cells
    assert [cell.chosen.local.optimizer.momentum for cell in cells] == [0.0, 0.9]
    cells = sweep.plan_sweep(BASE, {"data.partition.per_client": [2, 3]}).cells
    assert cells[1].chosen.resolve()["data"]["partition"]["per_client"] == 3
    with pytest.raises(MusterError, match="kind"):
        sweep.plan_sweep(BASE, {"local.optimizer.beta1": [0.9]})


def test_a_folder_of_before_left_out_is_no_place_for_runs_with_it(tmp_path):
    muster.sweep(BASE, {"local.lr": [0.1]}, tmp_path, jobs=1)
    for config in tmp_path.glob("*/config.toml"):
        text = config.read_text()
        assert "left_out = 0.0\n" in text
        config.write_text(text.replace("left_out = 0.0\n", ""))
    muster.sweep(BASE, {"local.lr": [0.1]}, tmp_path, jobs=1)
    with pytest.raises(MusterError, match=r"made with left_out = 0.0, this has 0.25"):
        muster.sweep({**BASE, "left_out": 0.25}, {"local.lr": [0.1]}, tmp_path, jobs=1)
