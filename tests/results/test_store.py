"""Results and checkpoints: read back whole, resume to the same bits, survive interruption."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from rich.console import Console

import muster
import reference
from helpers import federation, same_bits
from muster.cli.main import main
from muster.report import tables as report
from muster.results import store

M = muster.methods


@pytest.fixture(scope="module")
def fed():
    data, priority = reference.problem(0, clients=8)
    return federation(data, priority)


class Stop(Exception):
    """Stands for a crash."""


def stop_at(round, error):
    def on_round(row):
        if row["round"] == round:
            raise error

    return on_round


def args(method=None, **more):
    settings = {
        "method": method or M.fedalign(0.4),
        "model": muster.models.MLP((4,)),
        "rounds": 12,
        "local": muster.Local(steps=3, batch_size=4, lr=0.1),
    }
    return {**settings, **more}


def test_a_saved_run_reads_back_in_one_call(fed, tmp_path):
    run = muster.simulate(fed, **args())
    muster.save(run, tmp_path / "there")
    back = muster.load(tmp_path / "there")
    assert same_bits(run, back)
    assert back.rounds.equals(run.rounds)
    assert back.final.equals(run.final)
    assert (back.method, back.seed, back.engine, back.complete) == ("fedalign", 0, "stacked", True)


def test_weights_read_back_lie_in_the_order_of_the_module(fed, tmp_path):
    run = muster.simulate(fed, **args(M.ditto(), rounds=1))
    back = muster.load(muster.save(run, tmp_path / "there"))
    assert list(back.weights) == list(run.weights) != sorted(run.weights)
    assert list(back.own.models) == list(run.own.models) != sorted(run.own.models)


def test_results_say_what_must_be_said_of_their_data(fed, tmp_path, capsys):
    noted = replace(fed, note="a subset of [something]")
    assert noted.fingerprint() == fed.fingerprint()
    runs = {name: [muster.simulate(noted, **args(method))] for name, method in
            (("a", M.fedalign(0.4)), ("b", M.fedavg()))}  # fmt: skip
    muster.save(runs["a"][0], tmp_path / "there")
    back = muster.load(tmp_path / "there")
    assert back.note == runs["a"][0].note == noted.note
    console = Console(width=200)
    console.print(report.run_table(back))
    assert capsys.readouterr().out.rstrip().endswith("data: a subset of [something]")
    console.print(*report.comparison_tables(runs, [12]))
    assert capsys.readouterr().out.count("data: a subset of [something]") == 1
    console.print(report.run_table(muster.simulate(fed, **args())))
    assert "data:" not in capsys.readouterr().out


def test_loading_from_a_wrong_place_says_so(tmp_path):
    with pytest.raises(muster.MusterError, match="no run here"):
        muster.load(tmp_path)


@pytest.mark.parametrize("method", [M.fedalign(0.4), M.local()], ids=lambda m: m.name)
@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_resume_after_a_crash_reaches_the_same_bits(fed, tmp_path, method, engine):
    more = {"engine": engine} | ({"processes": 1} if engine == "loop" else {})
    whole = muster.simulate(fed, **args(method, **more))
    keep = {"checkpoint": tmp_path, "checkpoint_every": 4}
    with pytest.raises(Stop):
        muster.simulate(fed, **args(method, **more), **keep, on_round=stop_at(7, Stop()))
    assert store.get_last_checkpoint_round(tmp_path) == 4
    seen = []
    resumed = muster.simulate(
        fed, **args(method, **more), **keep, resume=True, on_round=lambda r: seen.append(r["round"])
    )
    assert seen == list(range(5, 13))
    assert same_bits(whole, resumed)


@pytest.mark.parametrize("round", [1, 4, 7])
def test_ctrl_c_leaves_a_usable_result_and_resumes_to_the_same_bits(fed, tmp_path, round):
    whole = muster.simulate(fed, **args())
    with pytest.raises(muster.Interrupted) as caught:
        muster.simulate(
            fed, **args(), checkpoint=tmp_path, on_round=stop_at(round, KeyboardInterrupt())
        )
    partial = caught.value.run
    assert not partial.complete
    assert len(partial.rounds) == round
    assert partial.clients["round"].max() == round
    assert partial.rounds.drop("seconds").equals(whole.rounds.drop("seconds").head(round))
    assert store.get_last_checkpoint_round(tmp_path) == round
    resumed = muster.simulate(fed, **args(), checkpoint=tmp_path, resume=True)
    assert same_bits(whole, resumed)


def test_interrupts_in_the_middle_of_a_round_lose_only_that_round(fed, tmp_path, monkeypatch):
    from muster.run import training_loop

    space = vars(training_loop)
    real, calls = space["play_round"], []

    def play(*a):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return real(*a)

    monkeypatch.setitem(space, "play_round", play)
    with pytest.raises(muster.Interrupted) as caught:
        muster.simulate(fed, **args(), checkpoint=tmp_path)
    assert len(caught.value.run.rounds) == 5
    assert store.get_last_checkpoint_round(tmp_path) == 5


def test_a_checkpoint_of_another_run_is_refused(fed, tmp_path):
    with pytest.raises(Stop):
        muster.simulate(
            fed, **args(), checkpoint=tmp_path, checkpoint_every=2, on_round=stop_at(3, Stop())
        )
    with pytest.raises(muster.MusterError, match="was made with seed=0, this run has seed=5"):
        muster.simulate(fed, **args(seed=5), checkpoint=tmp_path, resume=True)
    with pytest.raises(muster.MusterError, match="was made with method="):
        muster.simulate(fed, **args(M.fedavg()), checkpoint=tmp_path, resume=True)


def test_a_checkpoint_of_other_data_or_another_model_is_refused(fed, tmp_path):
    with pytest.raises(Stop):
        muster.simulate(
            fed, **args(), checkpoint=tmp_path, checkpoint_every=2, on_round=stop_at(3, Stop())
        )
    data, priority = reference.problem(0, clients=8)
    other = federation([(x + 0.1, y) for x, y in data], priority)
    with pytest.raises(muster.MusterError, match="was made with data="):
        muster.simulate(other, **args(), checkpoint=tmp_path, resume=True)
    with pytest.raises(muster.MusterError, match="was made with model="):
        muster.simulate(
            fed, **args(model=muster.models.MLP((5,))), checkpoint=tmp_path, resume=True
        )


def test_a_checkpoint_half_written_is_never_loaded(fed, tmp_path, monkeypatch):
    real = os.replace

    def fails(source, target):
        if "round-00000008" in str(target):
            raise Stop
        return real(source, target)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(Stop):
        muster.simulate(fed, **args(), checkpoint=tmp_path, checkpoint_every=4)
    monkeypatch.undo()
    assert store.get_last_checkpoint_round(tmp_path) == 4
    whole = muster.simulate(fed, **args())
    resumed = muster.simulate(fed, **args(), checkpoint=tmp_path, checkpoint_every=4, resume=True)
    assert same_bits(whole, resumed)


@pytest.mark.parametrize("name", ["s.safetensors", "rounds.parquet", "identity.json"])
def test_a_damaged_checkpoint_is_one_clear_line(fed, tmp_path, name):
    with pytest.raises(Stop):
        muster.simulate(
            fed, **args(), checkpoint=tmp_path, checkpoint_every=2, on_round=stop_at(3, Stop())
        )
    broken = next(tmp_path.glob("round-*")) / name
    broken.write_bytes(broken.read_bytes()[:20])
    with pytest.raises(muster.MusterError, match=f"{name} is not what was written") as caught:
        muster.simulate(fed, **args(), checkpoint=tmp_path, resume=True)
    assert "\n" not in str(caught.value)


def test_a_damaged_result_is_one_clear_line(fed, tmp_path):
    muster.save(muster.simulate(fed, **args()), tmp_path / "run")
    (tmp_path / "run" / "weights.safetensors").write_bytes(b"not weights")
    with pytest.raises(muster.MusterError, match="run: cannot be read"):
        muster.load(tmp_path / "run")


def test_resume_without_a_checkpoint_starts_from_the_beginning(fed, tmp_path):
    run = muster.simulate(fed, **args(), checkpoint=tmp_path / "new", resume=True)
    assert len(run.rounds) == 12


def test_a_save_that_is_cut_short_leaves_no_run_that_loads(fed, tmp_path, monkeypatch):
    """A folder that held a run already is not left with tables of one and weights of another."""
    folder = tmp_path / "run"
    muster.save(muster.simulate(fed, **args()), folder)
    (folder / "checkpoints").mkdir()
    real = os.replace

    def fails(source, target):
        if str(target).endswith("weights.safetensors"):
            raise Stop
        return real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fails)
        with pytest.raises(Stop):
            muster.save(muster.simulate(fed, **args(seed=1)), folder)
    with pytest.raises(muster.MusterError, match="no run here"):
        muster.load(folder)
    muster.save(muster.simulate(fed, **args(seed=1)), folder)
    assert muster.load(folder).seed == 1
    assert (folder / "checkpoints").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_measuring_seldom_changes_nothing_but_the_measures(fed):
    often = muster.simulate(fed, **args())
    seldom = muster.simulate(fed, **args(evaluate_every=5))
    never = muster.simulate(fed, **args(evaluate_every=0))
    for other in (seldom, never):
        assert all(np.array_equal(often.weights[n], other.weights[n]) for n in often.weights)
        assert often.clients["admitted"].equals(other.clients["admitted"])
    assert seldom.rounds["loss"].is_not_null().to_list() == [t in (5, 10, 12) for t in range(1, 13)]
    assert seldom.rounds["loss"][4] == often.rounds["loss"][4]
    assert never.rounds["loss"].is_not_null().sum() == 1


CHANGED = {
    "priority": lambda f: replace(f, priority=~f.priority, importance=(~f.priority) * 1.0),
    "importance": lambda f: replace(f, importance=np.where(f.priority, 1.0, 0.5)),
    "requirement": lambda f: replace(f, requirement=np.full(f.n, 0.5)),
    "unseen": lambda f: replace(f, unseen=np.arange(f.n) == f.n - 1),
    "held-out rows": lambda f: replace(f, test=f.train),
}


@pytest.mark.parametrize("what", CHANGED)
def test_resume_refuses_other_roles_requirements_and_held_out_rows(fed, tmp_path, what):
    with pytest.raises(Stop):
        muster.simulate(
            fed, **args(), checkpoint=tmp_path, checkpoint_every=2, on_round=stop_at(3, Stop())
        )
    with pytest.raises(muster.MusterError, match="resume: the checkpoint in"):
        muster.simulate(CHANGED[what](fed), **args(), checkpoint=tmp_path, resume=True)
    assert muster.simulate(fed, **args(), checkpoint=tmp_path, resume=True).complete


@pytest.mark.parametrize(
    ("key", "code"),
    [("model", {"kind": "os:system", "command": "touch sprung"}), ("task", {"kind": "os:system"})],
)
def test_a_folder_of_others_names_no_code(fed, tmp_path, monkeypatch, capsys, key, code):
    """`model.json` that names a command, checksum made right: predict and export ran it."""
    monkeypatch.chdir(tmp_path)
    muster.save(muster.simulate(fed, **args(rounds=1)), "theirs")
    recipe = json.loads(Path("theirs/model.json").read_text())
    Path("theirs/model.json").write_text(json.dumps({**recipe, key: code}))
    marker = tomllib.loads(Path("theirs/run.toml").read_text())
    marker["sums"]["model.json"] = store.digest(Path("theirs/model.json"))
    Path("theirs/run.toml").write_text(tomli_w.dumps(marker))
    np.savez("new.npz", x=fed.train.x[:2].numpy())
    for command in (["predict", "theirs", "new.npz"], ["export", "theirs", "--to", "m.pt"]):
        for trust in ([], ["--trust-code"]):  # of ours only the name of a part is ever kept
            status = main([*command, *trust])
            if key == "model":
                assert status == 2
                assert "model.kind: 'os:system' is an import path" in capsys.readouterr().err
    assert not Path("sprung").exists()
