"""Data of one's own from a configuration and the command line."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import muster
from muster.cli.main import main
from muster.cli.progress_bar import Progress
from muster.config.experiment import load
from own_files import MANIFEST, NORTH, NORTH8, SOUTH, SOUTH8, put

# Small numbers to read in a test are large ones to train on.
pytestmark = pytest.mark.filterwarnings("ignore:features need scaling")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_path_in_a_configuration(here, capsys):
    put("h", north=NORTH8, south=SOUTH8, manifest=MANIFEST)
    for data in ("h", "./h", {"name": "folder", "path": "h"}):
        fed = load({"data": data}).federation(0)
        assert fed.names.tolist() == ["north", "south"]
    chosen = load({"data": {"name": "./h", "test_fraction": 0.5}})
    assert chosen.federation(0).test.sizes.tolist() == [4, 4]
    saved = chosen.resolve()
    assert saved["data"] == {"name": "folder", "path": "./h", "test_fraction": 0.5}
    assert load(saved).resolve() == saved


def test_the_command_line_takes_a_path_and_resumes(here, capsys, monkeypatch):
    put("h", north=NORTH, south=SOUTH, manifest=MANIFEST)
    flags = ["--data", "h", "--data.scale", "pooled", "--rounds", "6", "--local.batch_size", "2"]
    assert main(["run", *flags, "--name", "whole"]) == 0

    real = Progress.__call__

    def stop(self, row):
        real(self, row)
        if row["round"] == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "__call__", stop)
        assert main(["run", *flags, "--name", "cut"]) == 130
    config = tomllib.loads(Path("runs/cut/config.toml").read_text())
    assert config["data"] == {"name": "folder", "path": "h", "scale": "pooled"}
    assert main(["run", "--resume", "runs/cut"]) == 0
    a, b = muster.load("runs/whole"), muster.load("runs/cut")
    assert a.rounds.drop("seconds").equals(b.rounds.drop("seconds"))


@pytest.mark.parametrize(("flags", "message"), [
    (["--data", "digist"], "data.name: 'digist' is unknown; did you mean 'digits'"),
    (["--data", "no/where"], "no/where: no such file or folder"),
    (["--data", "./h", "--data.lable", "x"], "unknown key 'data.lable'; did you mean 'label'"),
    (["--data", "folder"], "data.path: missing"),
    (["--data", "folder", "--data.path", "3"], "3: no such file or folder"),
    (["--data", "./h", "--data.path", "h"], "data.name: './h' next to data.path"),
])  # fmt: skip
def test_bad_paths_on_the_command_line_are_one_line(here, capsys, flags, message):
    put("h", north=NORTH)
    assert main(["run", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_file_that_is_not_there_is_no_unknown_data_set():
    with pytest.raises(muster.MusterError, match=r"nope\.csv: no such file"):
        load({"data": "nope.csv"}).federation(0)


def test_a_model_of_yours_that_raises_is_one_line_with_its_place(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = "from torch import nn\n\n\ndef net(width: int = 1):\n    return nn.Linear(2, -width)\n"
    (tmp_path / "nets_that_fail.py").write_text(code)
    assert main(["run", "--data", "digits", "--model", "nets_that_fail:net", "--rounds", "1"]) == 2
    said = capsys.readouterr().err
    assert "model: net raised RuntimeError: Trying to create tensor with negative" in said
    assert "(nets_that_fail.py, line 5)" in said
    assert said.count("\n") == 1
