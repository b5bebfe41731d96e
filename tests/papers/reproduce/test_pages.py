"""docs/claims.md and docs/gallery.md say what the kept results say: made again here."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import polars as pl
import pytest
from PIL import Image

from muster.cli.main import main
from muster.cli.reproduce import STORED
from muster.papers.reproduce import pages, panel_results, run_panels
from muster.papers.reproduce.findings import Finding
from muster.papers.reproduce.judge import KINDS, mark_of
from muster.papers.reproduce.plan import home, plans
from muster.report.intervals import Interval
from muster.results.measures import MEASURES

FOLDER, DOCS = home() / STORED, home().parent / "docs"
PLANS = list(plans().values())


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    docs = tmp_path_factory.mktemp("docs")
    return docs, pages.gallery_page(PLANS, FOLDER, docs)


def test_the_claims_page_is_what_the_results_say():
    assert (DOCS / "claims.md").read_text() == pages.claims_page(PLANS, FOLDER)


@pytest.mark.slow  # draws every figure
def test_the_gallery_is_drawn_from_the_results(gallery):
    docs, text = gallery
    assert (DOCS / "gallery.md").read_text() == text
    drawn = sorted(path.name for path in (docs / "gallery").glob("*.png"))
    assert sorted(path.name for path in (DOCS / "gallery").glob("*.png")) == drawn
    assert set(re.findall(r"gallery/([\w.-]+)", text)) == set(drawn)
    for name in drawn:
        ours, theirs = (
            np.asarray(Image.open(folder / "gallery" / name).convert("L"), np.int16)
            for folder in (docs, DOCS)
        )
        assert ours.shape == theirs.shape, name
        # Fonts may differ by a shade from one machine to another; lines do not move.
        assert (np.abs(ours - theirs) > 64).mean() < 0.002, name


def test_every_claim_has_a_verdict():
    text = (DOCS / "claims.md").read_text()
    for plan in PLANS:
        for verdict in pages.verdicts(plan, panel_results.together(plan, FOLDER)):
            assert verdict.says in text
            assert verdict.kind in KINDS
            assert f"**{verdict.word}**" in text
            for finding in verdict.findings:
                assert pages.fixed(finding.gap, MEASURES[finding.measure].scale, True) in text


def test_every_claim_is_in_the_overview_and_the_counts_add_up():
    text = (DOCS / "claims.md").read_text()
    every = [v for p in PLANS for v in pages.verdicts(p, panel_results.together(p, FOLDER))]
    glance = text.split("at a glance")[1].split("\n## ")[0] + text.split("at a glance")[2]
    assert all(v.says in glance for v in every)
    rows = re.findall(r"^\| (\d+) [^|]*\|((?: \d+ \|)+)$", text, re.MULTILINE)
    assert sum(int(n) for n, _ in rows) == len(every)
    for n, cells in rows:
        assert sum(int(cell) for cell in re.findall(r"\d+", cells)) == int(n)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.id)
def test_kept_results_are_of_the_file_as_it_is_or_said_not_to_be_and_pass_its_checks(plan):
    found = panel_results.load(FOLDER, plan.id)
    if found is None:
        pytest.skip(f"not run here: muster reproduce {plan.id} --keep")
    whole = panel_results.together(plan, FOLDER)
    assert whole is not None
    lacks = {*plan.own, *plan.studies} - {*whole.made, *whole.missing}
    if whole.outdated(plan) or whole.earlier or lacks:
        said = pages.ran(plan, whole)
        assert pages.EARLIER in said or all(f"{name}: not run" in said for name in lacks)
        pytest.skip(f"of an earlier version of its file: muster reproduce {plan.id} --keep")
    assert pages.faults(plan, whole) == []
    for name, made in found.made.items():
        assert made.size in ("full", "small")
        if name in plan.own:
            config = plan.panel(name, made.size).config
            mine = found.frame.filter(pl.col("panel") == name)
            assert set(mine["seed"]) == set(range(config["seeds"]))
            assert mine["round"].max() == config["rounds"]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.id)
def test_claims_can_be_judged_by_the_panels_of_a_quick_run_alone(plan):
    whole = panel_results.together(plan, FOLDER)
    if whole is None or not whole.frame.height:
        pytest.skip(f"no runs of its own: muster reproduce {plan.id} --keep")
    left_out = plan.skipped("quick")
    frame = whole.frame.filter(~pl.col("panel").is_in(list(left_out)))
    keys = [key for key in whole.keys if frame[key].is_not_null().any()]
    few = dataclasses.replace(
        whole,
        frame=frame.drop([key for key in whole.keys if key not in keys]),
        keys=keys,
        made={name: made for name, made in whole.made.items() if name not in left_out},
    )
    judged = pages.verdicts(plan, few)
    assert len(judged) == len(pages.verdicts(plan, whole))
    assert any(v.findings for v in judged) == any(v.findings for v in pages.verdicts(plan, whole))


def test_the_results_are_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 10e6


def test_the_list_names_every_experiment_and_its_data(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["reproduce", "--list"]) == 0
    said = capsys.readouterr().out
    for plan in PLANS:
        assert plan.id in said
    assert "fmnist" in said
    assert "of a core (" in said
    assert "--quick takes about a minute" in said


@pytest.mark.parametrize(
    ("interval", "scale", "said"),
    [
        (Interval(10.25, 0.5), 1.0, "10.250 ± .500"),
        (Interval(0.5, 10.25), 1.0, ".500 ± 10.250"),
        (Interval(-0.5, float("nan")), 1.0, "-.500"),
        (Interval(62800.0, 100.0), 1e-3, "62.800 ± .100"),
    ],
)
def test_numbers_lose_no_digit(interval, scale, said):
    assert pages.fixed(interval, scale) == said


def test_bytes_are_told_as_kilobytes_and_what_a_cell_came_to_is_marked():
    one = Finding(
        {"k": 1}, "bytes_up", ("a", "b"), *[Interval(2000.0, 100.0)] * 3, (1900.0, 2100.0), True,
        "holds", True,
    )  # fmt: skip
    assert "2.000 ± .100 against 2.000 ± .100: +2.000 ± .100, 2 seeds" in pages.line_of(one, [one])
    alone = dataclasses.replace(one, sure=False)
    no = dataclasses.replace(one, cell={"k": 2}, holds=None, answer="undecided", each=(0.0, 1.0))
    assert mark_of(alone, [alone, no]) == "holds, by itself"
    assert mark_of(alone, [alone]) == "holds"
    assert mark_of(no, [no]) == "undecided"
    assert mark_of(dataclasses.replace(no, answer="equal"), [no]) == "equal"
    less = dataclasses.replace(one, holds=False, answer="less")
    assert mark_of(less, [less]) == "less than claimed"
    assert "1 of 3 seeds diverged" in mark_of(dataclasses.replace(no, diverged=1), [no])


def test_an_experiment_without_its_data_is_left_out_and_the_others_run(
    tmp_path, capsys, monkeypatch
):
    def one(plan, *_):
        if plan.id == "fig5":
            raise run_panels.NotHere(
                "fig5: its data is not here; get it with muster data get fmnist"
            )
        done.append(plan.id)
        return True

    done: list[str] = []
    monkeypatch.setattr("muster.cli.reproduce.run_experiment", one)
    assert main(["reproduce", "fig5", "fig6", "fig7"]) == 2
    assert done == ["fig6", "fig7"]
    assert "left out, as their data is not here: fig5" in capsys.readouterr().out
    assert main(["reproduce", "fig6"]) == 0


def test_the_command_that_gets_data_is_said_once(tmp_path, monkeypatch):
    monkeypatch.setattr(run_panels, "first_found", lambda entry: None)
    plan = next(plan for plan in PLANS if plan.id == "fig3")
    with pytest.raises(run_panels.NotHere) as error:
        run_panels.run(plan, tmp_path)
    assert str(error.value).count("muster data get fmnist") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "which experiment?"),
        (["fig11"], "unknown experiment 'fig11'"),
        (["fig2", "--seeds", "0"], "--seeds"),
        (["fig2", "--all"], "which experiment?"),
        (["fig2", "fig3", "--panel", "low"], "--panel: of one experiment"),
        (["fig2", "--panel", "lov"], "no panel 'lov'; did you mean 'low'?"),
        (["fig2", "--keep", "--quick"], "--keep: only results of all rounds and seeds"),
        (["fig2", "--keep", "--seeds", "3"], "--keep: only results of all rounds and seeds"),
    ],
)
def test_mistakes_are_one_line(words, said, capsys):
    assert main(["reproduce", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.id)
def test_the_quick_form_runs_and_its_checks_hold(plan, tmp_path, capsys):
    missing = [command for panel in plan.panels() if (command := run_panels.absent(panel))]
    if missing:
        pytest.skip(f"run {missing[0]}")
    code = main(["reproduce", plan.id, "--quick", "--out", str(tmp_path)])
    assert code == 0, capsys.readouterr().out
