"""The tutorials as a newcomer walks them: a folder with the examples and nothing else, each block
in its order, so that what a line reads is what a line before it has made.

Runs are cut to two rounds and one seed; `make test-slow` walks the real federation.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

import muster
import muster.cli.options as options
from blank_figures import leave_out_figures
from helpers import cut_short
from muster.cli.main import main

ROOT = Path(__file__).parents[2]


def steps(page):
    """The blocks of a page in their order: Python whole, commands line by line."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    for kind, block in found:
        if kind == "python":
            yield kind, block
        elif kind in ("", "sh"):
            yield from (("sh", line) for line in block.splitlines() if line.startswith("muster "))


def but_sizes(text):
    """Lines without seconds, which are a machine's own, and bytes, of which keys take a few."""
    return re.sub(r"[\d.]+ (s|kB)\b", r"# \1", text).splitlines()


def walk(page, capsys):
    """Do what a page says; what its commands printed."""
    printed = []
    for kind, what in steps(page):
        if kind == "python":
            exec(what, {"__name__": "page"})
            continue
        code = main(shlex.split(what)[1:])
        said = capsys.readouterr()
        assert code == 0, f"{what}: {said.err}"
        assert said.out, what
        printed.append(said.out)
    return "".join(printed)


@pytest.fixture
def desk(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["tutorial-own-files", "tutorial-comparison"])
def test_a_tutorial_in_its_order(name, desk, monkeypatch, capsys):
    monkeypatch.setattr(options, "load", cut_short)
    leave_out_figures(monkeypatch)
    walk(ROOT / "docs" / f"{name}.md", capsys)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_federation_in_its_order_comes_to_what_was_simulated(desk, capsys):
    printed = walk(ROOT / "docs" / "tutorial-federation.md", capsys)
    simulated, real = muster.load("runs/simulated"), muster.load("runs/federate")
    for name, w in simulated.weights.items():
        np.testing.assert_allclose(real.weights[name], w, rtol=0, atol=1e-5)
    who = ["round", "client", "joined", "admitted", "reason"]
    assert real.clients.select(who).equals(simulated.clients.select(who))
    shown = re.search(
        r"^starting a superlink.*?(?=```)", (ROOT / "docs" / "guide.md").read_text(), re.M | re.S
    )
    missing = set(but_sizes(shown[0])) - set(but_sizes(printed))
    assert not missing
