"""Studies of the theory in an experiment: results of other code than there is are outdated."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import pytest

from muster.cli.reproduce import describe_time
from muster.papers.reproduce import panel_results, run_panels
from muster.papers.reproduce.paper_experiment import (
    RESULTS,
    find_checkout,
    find_experiment,
    list_experiments,
)
from muster.papers.theory import study
from muster.papers.theory.study import STUDIES

EXPERIMENTS = [experiment for experiment in list_experiments().values() if experiment.studies]


def test_a_study_is_built_from_what_it_imports_and_nothing_that_only_judges_or_draws():
    of = {
        name: {path.stem for path in study.find_modules(Path(inspect.getfile(make)))}
        for name, make in STUDIES.items()
    }
    assert of["bound"] == {"study_bound", "bounds", "convex", "trajectory"}
    assert {"study_toy", "toy", "minima"} <= of["toy"]
    assert "study_bound" not in of["toy"]
    others = {"study", "figures", "verdicts", "verdicts_toy"}
    assert not others & set.union(*of.values())


def test_words_do_not_count_and_numbers_do():
    source = '"""What."""\n\nA = 1  # one\n\n\ndef f():\n    """Say\n    so."""\n    return A\n'
    other = '"""That."""\nA = 1  # one\ndef f():\n    # so\n    return A\n'
    assert study.strip_source(source) == study.strip_source(other)
    assert study.strip_source(source) != study.strip_source(source.replace("A = 1", "A = 2"))
    assert "return A" in study.strip_source(source)
    text = 'X = """kept"""\n'
    assert study.strip_source(text) == 'X = """kept"""'


def test_where_a_name_is_imported_from_does_not_count():
    source = "from .a import (\n    f,\n    g,\n)\n\nX = f(g)\n"
    other = "import numpy as np\nfrom ..b import f, g\nX = f(g)\n"
    assert study.strip_source(source) == study.strip_source(other) == "X = f(g)"


def test_another_number_in_another_module_is_another_digest(tmp_path, monkeypatch):
    """The whole folder copied, and a constant of the bound changed in it."""
    folder = Path(inspect.getfile(STUDIES["bound"])).parent
    for path in folder.glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text())
    real = inspect.getfile
    monkeypatch.setattr(inspect, "getfile", lambda make: str(tmp_path / Path(real(make)).name))
    before = study.digest("bound"), study.digest("toy")
    text = (tmp_path / "bounds.py").read_text()
    (tmp_path / "bounds.py").write_text(text.replace("return 12 * c.L**2", "return 6 * c.L**2"))
    assert study.digest("bound") != before[0]
    text = (tmp_path / "minima.py").read_text()
    now = study.digest("bound"), study.digest("toy")
    (tmp_path / "minima.py").write_text(text.replace("STEPS = 32", "STEPS = 16"))
    assert study.digest("bound") == now[0]
    assert study.digest("toy") != now[1]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    experiment = dataclasses.replace(find_experiment("toy"), studies=("weights",))
    return experiment, run_panels.run(experiment, tmp_path_factory.mktemp("toy"), "quick")


def test_results_know_the_code_they_were_made_with(ran, tmp_path):
    experiment, found = ran
    assert found.provenance["weights"].digest == study.digest("weights")
    assert found.outdated_parts(experiment) == []
    panel_results.save(found, tmp_path, "toy")
    again = panel_results.load(tmp_path, "toy")
    assert again is not None
    assert again.outdated_parts(experiment) == []
    for other in ("", "another"):
        made = {"weights": dataclasses.replace(found.provenance["weights"], digest=other)}
        assert dataclasses.replace(found, provenance=made).outdated_parts(experiment) == ["weights"]
    assert describe_time(experiment, found).endswith("(full size)")


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.id)
def test_kept_studies_are_of_the_code_as_it_is(experiment):
    found = panel_results.load(find_checkout() / RESULTS, experiment.id)
    assert found is not None
    assert set(found.studies) == set(experiment.studies)
    assert found.outdated_parts(experiment) == [], (
        f"run muster reproduce {experiment.id} --keep again"
    )
