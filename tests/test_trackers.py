"""Trackers: against the real packages where they are there, offline."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing

import pytest

import muster
from muster.cli.main import main
from muster.trackers import Tracker


class Recorder(Tracker):
    """A tracker that records its calls."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def begin(self, name, settings):
        self.calls.append(("begin", name, dict(settings)))

    def log(self, values, round):
        self.calls.append((round, values["loss"]))

    def end(self):
        self.calls.append("end")


@pytest.fixture(scope="module")
def fed():
    return muster.data.digits(clients=4, priority=2)


def simulated(fed, tracker, rounds=2, seed=0):
    return muster.simulate(
        fed, muster.methods.fedavg(), muster.models.Softmax(), rounds, seed=seed, on_round=tracker
    )


def test_every_round_is_logged_and_another_run_begins_by_itself(fed):
    with Recorder() as recorder:
        first, second = simulated(fed, recorder), simulated(fed, recorder, seed=1)
    assert recorder.calls == [
        ("begin", "run-1", {}), *enumerate(first.rounds["loss"], 1), "end",
        ("begin", "run-2", {}), *enumerate(second.rounds["loss"], 1), "end",
    ]  # fmt: skip


def test_a_comparison_announces_the_run_that_follows(fed):
    methods = {"a": muster.methods.fedavg(), "b": muster.methods.fedalign()}
    with Recorder() as recorder:
        muster.compare(fed, methods, muster.models.Softmax(), 1, seeds=2,
                       on_start=recorder.start, on_round=recorder)  # fmt: skip
    names = [call[1] for call in recorder.calls if call[0] == "begin"]
    assert names == ["a-seed0", "b-seed0", "a-seed1", "b-seed1"]
    assert recorder.calls.count("end") == 4


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb", "trackio"])
def test_a_missing_package_is_an_error_of_one_line(name, monkeypatch):
    for module in [
        m for m in sys.modules if m.split(".")[0] == name or m == "torch.utils.tensorboard"
    ]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(muster.MusterError, match=rf"pip install 'muster-fl\[{name}\]'"):
        muster.trackers.TRACKERS[name]("x")


def test_nothing_is_tracked_unless_asked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["run", "--data", "digits", "--data.clients", "4", "--rounds", "1"]
    assert main([*words, "--track", "everything"]) == 2
    assert "mlflow, tensorboard, trackio, wandb" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def package(name, command=None):
    """The real package, or a skip with the command that gets it."""
    return pytest.importorskip(name, reason=f"run `pip install {command or name}`")


@pytest.mark.filterwarnings("ignore")
def test_tensorboard(fed, tmp_path):
    package("tensorboard")
    loading = package("tensorboard.backend.event_processing.event_accumulator", "tensorboard")
    with muster.trackers.tensorboard(tmp_path) as tracker:
        run = simulated(fed, tracker, 3)
    seen = loading.EventAccumulator(str(tmp_path / "run-1")).Reload()
    events = seen.Scalars("loss")
    assert [e.step for e in events] == [1, 2, 3]
    assert [e.value for e in events] == pytest.approx(run.rounds["loss"].to_list(), rel=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_from_the_command_line(tmp_path, monkeypatch, capsys):
    package("tensorboard")
    monkeypatch.chdir(tmp_path)
    words = ["--data", "digits", "--data.clients", "4", "--rounds", "1", "--track", "tensorboard"]
    assert main(["run", *words, "--name", "one"]) == 0
    two = ["--method", "fedalign", "--method", "fedavg", "--seeds", "1", "--name", "two"]
    assert main(["compare", *words, *two]) == 0
    assert "tracked: tensorboard, in runs/one/tensorboard" in capsys.readouterr().out
    assert [p.name for p in (tmp_path / "runs/one/tensorboard").iterdir()] == ["fedalign-seed0"]
    assert len(list((tmp_path / "runs/two/tensorboard").iterdir())) == 2


@pytest.mark.filterwarnings("ignore")
def test_mlflow(fed, tmp_path, monkeypatch):
    real = package("mlflow", "mlflow-skinny")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    where = (tmp_path / "mlruns").as_uri()
    with muster.trackers.mlflow("tests", where) as tracker:
        tracker.start("fedavg", 0)
        run = simulated(fed, tracker, 3)
    client = real.MlflowClient(where)
    (stored,) = client.search_runs([client.get_experiment_by_name("tests").experiment_id])
    assert stored.info.run_name == "fedavg-seed0"
    assert stored.info.status == "FINISHED"
    assert stored.data.params == {"method": "fedavg", "seed": "0"}
    history = client.get_metric_history(stored.info.run_id, "loss")
    assert {m.step: m.value for m in history} == pytest.approx(
        dict(enumerate(run.rounds["loss"], 1))
    )


@pytest.mark.filterwarnings("ignore")
def test_wandb(fed, tmp_path, monkeypatch):
    package("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with muster.trackers.wandb("tests", mode="offline", folder=tmp_path) as tracker:
        run = simulated(fed, tracker, 2)
        assert tracker.run.summary["loss"] == pytest.approx(run.rounds["loss"][-1])
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


@pytest.mark.filterwarnings("ignore")
def test_trackio(fed, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    package("trackio")
    with muster.trackers.trackio("tests") as tracker:
        run = simulated(fed, tracker, 2)
    (file,) = tmp_path.glob("*.db")
    with closing(sqlite3.connect(file)) as database:
        rows = database.execute("select step, metrics from metrics order by step").fetchall()
    losses = {step: json.loads(metrics)["loss"] for step, metrics in rows}
    assert losses == pytest.approx(dict(enumerate(run.rounds["loss"], 1)))
