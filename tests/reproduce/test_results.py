"""Running an experiment: what is kept of it, what is checked, and that nothing is run twice."""

from __future__ import annotations

import dataclasses

import polars as pl
import pytest

from muster.reproduce import pages, results
from muster.reproduce.claims import Claim
from muster.reproduce.plan import read

FILE = """
id = "tiny"
title = "A tiny experiment"
paper = "fedalign"
where = "nowhere"

[common]
rounds = 60
seeds = 2
data = { name = "synth", max_rows = 60 }
local = { steps = 1, batch_size = 10, lr = 0.1 }
methods = [
  { label = "FedALIGN", name = "fedalign", epsilon = 0.4 },
  { label = "None", name = "fedavg_priority" },
]

[panels.low]

[panels.swept]
rounds = 3
[panels.swept.sweep]
"data.noise" = ["low", "high"]

[quick]
rounds = 2

[[figures]]
measures = ["loss"]

[[figures]]
measures = ["loss"]
x = "data.noise"
against = "None"

[[claims]]
id = "tiny-claim"
says = "FedALIGN is better."
where = "nowhere"
left = { method = "FedALIGN", measure = "loss" }
right = { method = "None" }
is = "below"

[[checks]]
says = "FedAvg on the priority clients admits nobody."
left = { method = "None", measure = "admitted_nonpriority" }
right = { value = 0 }
is = "about"
margin = 1e-9
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    path = tmp_path_factory.mktemp("plans") / "tiny.toml"
    path.write_text(FILE)
    return read(path)


@pytest.fixture(scope="module")
def ran(plan, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ran")
    found = results.run(plan, folder / "tiny", jobs=1)
    results.save(found, folder, "tiny")
    return folder, found


def test_every_run_is_kept_in_at_most_fifty_rounds_with_its_last(ran):
    _, found = ran
    low = found.frame.filter(pl.col("panel") == "low")
    counts = low.group_by("method", "seed").agg(pl.len(), pl.col("round").max())
    assert len(counts) == 4
    assert set(counts["round"]) == {60}
    assert counts["len"].max() <= results.POINTS
    assert found.keys == ["data.noise"]
    assert set(found.frame["data.noise"]) == {None, "low", "high"}


def test_what_is_kept_is_read_again_and_finished_runs_are_not_run_again(plan, ran, monkeypatch):
    folder, found = ran
    again = results.load(folder, "tiny")
    assert again is not None
    assert again.frame.equals(found.frame)
    assert again.facts["digest"] == plan.digest

    def never(*_, **__):
        raise AssertionError("run again")

    monkeypatch.setattr("muster.study.compare.simulate", never)
    assert results.run(plan, folder / "tiny", jobs=1).frame.equals(found.frame)


def test_claims_are_judged_and_figures_drawn_from_what_is_kept(plan, ran, tmp_path):
    _, found = ran
    (verdict,) = pages.verdicts(plan, found)
    assert {f.cell["panel"] for f in verdict.findings} == {"low", "swept"}
    assert len(verdict.findings) == 3
    drawn = pages.figures(plan, found, tmp_path)
    assert [path.name for path in drawn] == ["tiny-1.png", "tiny-2.png"]
    assert all(path.stat().st_size > 5000 for path in drawn)


def test_a_check_that_fails_is_said(plan, ran):
    _, found = ran
    assert pages.faults(plan, found) == []
    wrong = Claim.of(
        {
            "id": "x", "says": "FedALIGN admits nobody.", "where": "", "is": "about",
            "margin": 1e-9, "left": {"method": "FedALIGN", "measure": "admitted_nonpriority"},
            "right": {"value": 0},
        }
    )  # fmt: skip
    (*said,) = pages.faults(dataclasses.replace(plan, checks=(wrong,)), found)
    assert said
    assert all("FedALIGN admits nobody" in one for one in said)
    empty = dataclasses.replace(wrong, panels=("nosuch",))
    (fault,) = pages.faults(dataclasses.replace(plan, checks=(empty,)), found)
    assert "nothing to check it by" in fault


def test_data_that_is_not_here_is_named_with_the_command_that_gets_it(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(results, "first_found", lambda entry: None)
    own = {**plan.own, "images": {"data": {"name": "fmnist", "clients": 10}}}
    del own["swept"]
    found = results.run(dataclasses.replace(plan, own=own), tmp_path, "quick", jobs=1)
    assert found.facts["missing"] == {"images": "muster data get fmnist"}
    assert set(found.frame["panel"]) == {"low"}
