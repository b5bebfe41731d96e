"""What an addition costs: every one of CONTRIBUTING's runs, and has as many lines as it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import muster
from muster.base import registry
from muster.config import load
from muster.results import measures

PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
BLOCKS = dict(re.findall(r"<!-- ([^>]*?) -->\n```python\n(.*?)```", PAGE, re.DOTALL))
TABLE = {
    name: (int(files), int(lines))
    for name, files, lines in re.findall(r"^\| (an? .*?) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
}
SMALL = {"rounds": 2, "data": {"name": "digits", "clients": 4, "priority": 2}, "dtype": "float64"}
USES = {
    "a method": {"method": "slow_average"},
    "a part (here a join rule)": {"method": {"name": "fedavg", "join": "even_numbers"}},
    "a data set": {"data": {"name": "two_moons", "clients": 5}},
    "a measure": {"measures": ["loss", "worst_loss"]},
    "a loss": {"task": {"kind": "focal", "gamma": 1.0}},
    "a local optimizer": {"local": {"steps": 2, "optimizer": "signs"}},
    "an aggregator": {"method": {"name": "fedavg", "step": "coordinate_median"}},
}


@pytest.fixture
def added(request, monkeypatch):
    """The block as a module of its own, forgotten afterwards."""
    parts = {role: dict(known) for role, known in registry._parts.items()}
    known = dict(measures._known)
    module = type(sys)("added_part")
    monkeypatch.setitem(sys.modules, "added_part", module)
    exec(compile(BLOCKS[request.param], request.param, "exec"), vars(module))
    yield request.param
    for role, before in parts.items():
        registry._parts[role].clear()
        registry._parts[role].update(before)
    measures._known.clear()
    measures._known.update(known)


def test_all_seven_are_there():
    assert set(TABLE) == set(BLOCKS) == set(USES)


@pytest.mark.parametrize("name", USES)
def test_lines_are_counted_right_and_files_are_few(name):
    code = [line for line in BLOCKS[name].splitlines() if line.strip()]
    assert TABLE[name] == (1, len(code))
    assert TABLE[name][0] <= 3


@pytest.mark.parametrize("added", USES, indirect=True)
@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_it_runs_from_a_table_on_both_engines(added, engine):
    chosen = load({**SMALL, **USES[added], "engine": engine})
    run = muster.run_job(chosen.federation(0), chosen.job, compute=chosen.settings.compute)
    assert run.complete
    assert run.rounds["admitted"].min() > 0
    assert all(np.isfinite(w).all() for w in run.weights.values())
    if added == "a measure":
        assert run.rounds["worst_loss"].min() > 0
    again = load(chosen.resolve())
    assert again.job.method == chosen.job.method
    assert again.settings.task == chosen.settings.task
    assert again.local == chosen.local
