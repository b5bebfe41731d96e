"""`muster new method NAME` writes a method that runs, and a test that can fail."""

from __future__ import annotations

import runpy
import sys

import pytest

import muster
from muster.base import registry
from muster.cli.main import main


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with registry.temporary_parts():
        yield tmp_path
    sys.modules.pop("half_way", None)


def test_what_is_written_runs_and_its_test_passes_and_can_fail(desk, capsys, monkeypatch):
    assert main(["new", "method", "half-way"]) == 0
    said = capsys.readouterr().out
    assert "--method half_way:half_way" in said
    flags = ["--data", "digits", "--data.clients", "4", "--rounds", "2", "--name", "mine"]
    assert main(["run", *flags, "--method", "half_way:half_way"]) == 0
    monkeypatch.syspath_prepend(str(desk))
    check = runpy.run_path("test_half_way.py")["test_one_round_is_what_the_formula_says"]
    check("stacked")
    check("loop")
    monkeypatch.setitem(check.__globals__, "half_way", lambda server_lr: muster.methods.fedavg())
    with pytest.raises(AssertionError):
        check("stacked")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "give what and its name"),
        (["method"], "give what and its name"),
        (["methods", "a"], "unknown kind 'methods'; did you mean 'method'"),
        (["method", "two words"], "'two words'; give a name such as"),
        (["method", "class"], "'class'; give a name such as"),
        (["method", "fedavg"], "there is a 'fedavg' already"),
        (["method", "numpy"], "there is a module 'numpy' already"),
        (["method", "muster"], "there is a module 'muster' already"),
        (["method", "../x"], "give a name such as"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(desk, capsys, words, says):
    assert main(["new", *words]) == 2
    assert says in capsys.readouterr().err
    assert list(desk.iterdir()) == []


def test_nothing_is_replaced(desk, capsys):
    (desk / "test_half_way.py").write_text("mine")
    assert main(["new", "method", "half_way"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert [p.name for p in desk.iterdir()] == ["test_half_way.py"]
