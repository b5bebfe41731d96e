"""Studies of the theory in an experiment: results of other code than there is are outdated."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import pytest

from muster.cli.reproduce import STORED, format_time
from muster.papers.reproduce import panel_results, run_panels, theory_studies
from muster.papers.reproduce.plan import find, home, plans
from muster.papers.theory.study import STUDIES

PLANS = [plan for plan in plans().values() if plan.studies]


def test_a_study_is_made_of_what_it_imports_and_nothing_that_only_judges_or_draws():
    of = {
        name: {path.stem for path in theory_studies.made_of(Path(inspect.getfile(make)))}
        for name, make in STUDIES.items()
    }
    assert of["bound"] == {"study_bound", "bounds", "convex", "federations", "trajectory"}
    assert {"study_toy", "toy", "minima", "rate"} <= of["toy"]
    assert "study_bound" not in of["toy"]
    told = {"study", "statement", "figures", "verdicts", "verdicts_bound", "verdicts_toy"}
    assert not told & set.union(*of.values())


def test_words_do_not_count_and_numbers_do():
    source = '"""What."""\n\nA = 1  # one\n\n\ndef f():\n    """Say\n    so."""\n    return A\n'
    other = '"""That."""\nA = 1  # one\ndef f():\n    # so\n    return A\n'
    assert theory_studies.bare(source) == theory_studies.bare(other)
    assert theory_studies.bare(source) != theory_studies.bare(source.replace("A = 1", "A = 2"))
    assert "return A" in theory_studies.bare(source)
    text = 'X = """kept"""\n'
    assert theory_studies.bare(text) == 'X = """kept"""'


def test_another_number_in_another_module_is_another_digest(tmp_path, monkeypatch):
    """The whole folder copied, and a constant of the bound changed in it."""
    folder = Path(inspect.getfile(STUDIES["bound"])).parent
    for path in folder.glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text())
    real = inspect.getfile
    monkeypatch.setattr(inspect, "getfile", lambda make: str(tmp_path / Path(real(make)).name))
    before = theory_studies.digest("bound"), theory_studies.digest("toy")
    text = (tmp_path / "bounds.py").read_text()
    (tmp_path / "bounds.py").write_text(text.replace("return 12 * c.L**2", "return 6 * c.L**2"))
    assert theory_studies.digest("bound") != before[0]
    text = (tmp_path / "minima.py").read_text()
    now = theory_studies.digest("bound"), theory_studies.digest("toy")
    (tmp_path / "minima.py").write_text(text.replace("STEPS = 32", "STEPS = 16"))
    assert theory_studies.digest("bound") == now[0]
    assert theory_studies.digest("toy") != now[1]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    plan = dataclasses.replace(find("toy"), studies=("weights",))
    return plan, run_panels.run(plan, tmp_path_factory.mktemp("toy"), "quick")


def test_results_know_the_code_they_were_made_with(ran, tmp_path):
    plan, found = ran
    assert found.made["weights"].digest == theory_studies.digest("weights")
    assert found.outdated(plan) == []
    panel_results.save(found, tmp_path, "toy")
    again = panel_results.load(tmp_path, "toy")
    assert again is not None
    assert again.outdated(plan) == []
    for other in ("", "another"):
        made = {"weights": dataclasses.replace(found.made["weights"], digest=other)}
        assert dataclasses.replace(found, made=made).outdated(plan) == ["weights"]
    assert format_time(plan, found).endswith("(full size)")


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.id)
def test_kept_studies_are_of_the_code_as_it_is(plan):
    found = panel_results.load(home() / STORED, plan.id)
    assert found is not None
    assert set(found.studies) == set(plan.studies)
    assert found.outdated(plan) == [], f"run muster reproduce {plan.id} --keep again"
