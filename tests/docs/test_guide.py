"""The guide's numbers are what its commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import muster
from helpers import same_bits
from muster.cli.main import main

GUIDE = Path(__file__).parents[2] / "docs" / "guide.md"


def test_the_federation_has_the_loss_and_accuracy_of_its_simulation(tmp_path, monkeypatch):
    """Over the network it comes to the same weights, so the simulation has the same numbers."""
    monkeypatch.chdir(tmp_path)
    assert main(["run", "examples/federate.toml", "--name", "simulated"]) == 0
    last = muster.load("runs/simulated").rounds.row(-1, named=True)
    shown = f"loss {last['loss']:.4f}, test accuracy {last['test_accuracy']:.4f}"
    assert shown in GUIDE.read_text()


def test_the_hospital_on_the_command_line_is_that_of_the_python_above(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = GUIDE.read_text()
    (code,) = re.findall(r"```python\n([^`]*data\.heart\([^`]*)```", page)
    (line,) = re.findall(r"^muster (run --data heart .*)$", page, re.MULTILINE)
    space: dict = {"__name__": "example"}
    exec(compile(code, "guide", "exec"), space)
    assert main(shlex.split(line)) == 0
    assert same_bits(space["run"], muster.load("runs/heart"))
