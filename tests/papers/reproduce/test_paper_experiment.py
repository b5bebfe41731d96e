"""Every experiment of SPEC is a file, every file is a set of configurations that can run."""

from __future__ import annotations

import re
import tomllib

import pytest

from muster.base.errors import MusterError
from muster.papers.reproduce.findings import OWN
from muster.papers.reproduce.paper_experiment import (
    FILES,
    SIZES,
    find_checkout,
    find_experiment,
    list_experiments,
    merge_tables,
    read_experiment,
)
from muster.results.measures import MEASURES
from muster.study.sweep import plan_sweep

SPEC = [
    *(f"fig{n}" for n in range(1, 11)), "decay", "bound",
    "table1", "table2", "table3", "table4", "ablation-rho", "ablation-fair", "toy",
]  # fmt: skip
EXPERIMENTS = list_experiments()


def test_every_experiment_of_the_papers_is_there():
    assert set(SPEC) <= set(EXPERIMENTS)
    assert {id for id, experiment in EXPERIMENTS.items() if experiment.about == "paper"} == set(
        SPEC
    )


@pytest.mark.parametrize("id", EXPERIMENTS)
@pytest.mark.parametrize("size", SIZES)
def test_every_panel_is_a_configuration_that_can_run(id, size):
    for panel in EXPERIMENTS[id].panels(size):
        experiment = plan_sweep(panel.config, panel.over or {"rounds": [panel.config["rounds"]]})
        assert set(experiment.over) - {"rounds"} == set(panel.over)


@pytest.mark.parametrize("id", EXPERIMENTS)
def test_claims_checks_and_figures_refer_to_what_is_run(id):
    experiment = EXPERIMENTS[id]
    panels = [p for one in (id, *experiment.uses) for p in EXPERIMENTS[one].panels()]
    labels = {m.get("label", m["name"]) for p in panels for m in p.config["methods"]}
    keys = {"panel", *(key for p in panels for key in p.over)}
    names = {*experiment.panel_tables}
    for one in experiment.uses:
        names |= {
            f"{one}/{name}" if name in experiment.panel_tables else name
            for name in EXPERIMENTS[one].panel_tables
        }
    assert (experiment.claims and experiment.checks) or experiment.studies
    for claim in (*experiment.claims, *experiment.checks):
        assert set(claim.panels) <= names
        for side in (claim.left, claim.right):
            assert set(side) - set(OWN) <= keys
            assert side.get("panel") in {None, *names}
            if "value" in side:
                continue
            whose = side.get("method", "*")  # a correlation is over all of them
            assert set(whose if isinstance(whose, list) else [whose]) <= {*labels, "*"}
            assert side.get("with", "loss") in MEASURES
            for key, value in side.items():
                if key not in (*OWN, "panel"):
                    swept = [v for p in panels for v in p.over.get(key, [])]
                    each = value if isinstance(value, list) else [value]
                    assert all(v in (*swept, "none") for v in each)
            assert side["measure"] in MEASURES
            assert side.get("minus") in {None, *labels}
    for drawing in experiment.drawings:
        assert drawing.x in {"round", "panel", "method", *keys, *MEASURES}
        assert drawing.y in {"", *keys}
        assert set(drawing.measures) <= set(MEASURES)
        assert drawing.against in {"", *labels}
        assert set(drawing.panels) <= names
    ids = [claim.id for claim in experiment.claims]
    assert len(set(ids)) == len(ids)


def test_what_names_another_part_takes_its_place():
    below = {"data": {"name": "synth", "noise": "low"}, "local": {"steps": 5, "lr": 0.1}}
    assert merge_tables(below, {"data": {"noise": "high"}})["data"] == {
        "name": "synth",
        "noise": "high",
    }
    assert merge_tables(below, {"data": {"name": "digits"}})["data"] == {"name": "digits"}
    assert merge_tables(below, {"local": {"epochs": 5}})["local"] == {"lr": 0.1, "epochs": 5}


def test_sizes_are_laid_over_each_panel():
    experiment = find_experiment("fig8")
    full, small = (experiment.panel("cifar10", size) for size in SIZES[:2])
    assert (full.config["rounds"], full.config["data"]["clients"], full.less) == (200, 60, {})
    assert small.config["rounds"] == 60
    assert small.config["methods"] == full.config["methods"]
    assert experiment.panel("emnist", "quick").config["rounds"] == 6
    assert experiment.panel("fmnist", "small").less == {}
    assert experiment.panel("fmnist", "quick", seeds=7).config["seeds"] == 7
    left_out = find_experiment("fig1")
    assert "cifar10" in left_out.skipped_panels("quick")
    assert "cifar10" not in [panel.name for panel in left_out.panels("quick")]
    assert "cifar10" in [panel.name for panel in left_out.panels("full")]


def test_what_decides_results_changes_the_digest_and_words_do_not(tmp_path):
    text = (FILES / "fig7.toml").read_text()

    def digest(text, size="full"):
        (tmp_path / "fig7.toml").write_text(text)
        return read_experiment(tmp_path / "fig7.toml").panel("fmnist", size).digest

    before = digest(text)
    assert digest(text.replace("title = ", "title = '' # ")) == before
    assert digest(text.replace("Some warm-up", "A warm-up")) == before
    assert digest(text.replace("lr = 0.1", "lr = 0.2")) != before
    assert digest(text.replace("20, 30, 40]", "20, 30]")) != before
    # More seeds are more runs of the same kind, and results tell how many they have.
    assert digest(text.replace("seeds = 5", "seeds = 6")) == before
    # Nothing that is kept is of the quick form.
    assert digest(text + "\n[panels.fmnist.quick]\nrounds = 3\n") == before
    smaller = text + "\n[panels.fmnist.small]\nrounds = 3\n"
    assert digest(smaller) == before
    assert digest(smaller, "small") != before
    assert digest(text + "\n[panels.other]\nrounds = 3\n") == before


def test_a_claim_about_a_round_that_is_not_measured_is_refused(tmp_path):
    text = (FILES / "fig2.toml").read_text()
    assert "rounds = 50" in text
    (tmp_path / "fig2.toml").write_text(text.replace("evaluate_every = 5", "evaluate_every = 4"))
    with pytest.raises(MusterError, match=r"'fig2-loss-early': rounds = 50, .* every 4 of 200"):
        read_experiment(tmp_path / "fig2.toml")
    (tmp_path / "fig2.toml").write_text(text.replace("rounds = 50", "rounds = [201, 300]"))
    with pytest.raises(MusterError, match=r"rounds = \[201, 300\]"):
        read_experiment(tmp_path / "fig2.toml")


def test_claims_and_figures_refer_to_an_experiments_own_panels_unless_they_say_so():
    experiment = find_experiment("fig9")
    assert experiment.uses == ("fig1",)
    by_id = {claim.id: claim for claim in experiment.claims}
    assert by_id["fig9-none"].panels == ("fmnist-6", "emnist-9", "emnist-18")
    assert by_id["fig9-gap-shrinks"].panels == ()
    assert all(drawing.panels == tuple(experiment.panel_tables) for drawing in experiment.drawings)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id = 1", "id: missing"),
        ("nosuch = 1", "unknown key 'nosuch'"),
        ("[", "not valid TOML"),
        ("id = 'x'\ntitle = ''\npaper = 'fedalign'\nwhere = ''", "nothing to run"),
        ("id = 'y'\ntitle = ''\npaper = 'fedalign'\nwhere = ''", "a file of another name"),
        ("id = 'x'\ntitle = ''\npaper = 'other'\nwhere = ''", "other"),
    ],
)
def test_a_file_written_wrong_is_one_line(tmp_path, text, said):
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(MusterError, match=said) as error:
        read_experiment(tmp_path / "x.toml")
    assert str(error.value).startswith("x.toml: ")


def test_an_unknown_experiment_suggests_the_nearest():
    with pytest.raises(MusterError, match="unknown experiment 'fig11'"):
        find_experiment("fig11")


def test_the_file_that_the_docs_show_is_the_file():
    page = (find_checkout() / "docs" / "reproduce.md").read_text()
    (block,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    shown = tomllib.loads(block)
    real = tomllib.loads((FILES / f"{shown['id']}.toml").read_text())
    for key in ("title", "paper", "where", "quick"):
        assert shown[key] == real[key], key
    assert shown["panels"].items() <= real["panels"].items()
    assert shown["common"].items() <= real["common"].items()
    assert all(claim in real["claims"] for claim in shown["claims"])
    assert all(figure.items() <= real["figures"][0].items() for figure in shown["figures"])
