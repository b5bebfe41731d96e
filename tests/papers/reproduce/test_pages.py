"""docs/claims.md and docs/gallery.md say what the kept results say: made again here."""

from __future__ import annotations

import dataclasses
import re
from functools import cache

import numpy as np
import polars as pl
import pytest
from PIL import Image

from muster.cli.main import main
from muster.cli.reproduce import fill_pages
from muster.papers.reproduce import pages, panel_results, run_panels
from muster.papers.reproduce.findings import Finding
from muster.papers.reproduce.judge import KINDS, describe_outcome
from muster.papers.reproduce.paper_experiment import RESULTS, find_checkout, list_experiments
from muster.report.intervals import Interval
from muster.results.measures import MEASURES

FOLDER, DOCS = find_checkout() / RESULTS, find_checkout() / "docs"
EXPERIMENTS = list(list_experiments().values())


@cache
def load_results(id):
    (experiment,) = (e for e in EXPERIMENTS if e.id == id)
    return panel_results.load_results(experiment, FOLDER)


@cache
def judge_claims(id, judge=pages.judge_claims):
    (experiment,) = (e for e in EXPERIMENTS if e.id == id)
    return judge(experiment, load_results(id))


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    docs = tmp_path_factory.mktemp("docs")
    return docs, pages.gallery_page(EXPERIMENTS, FOLDER, docs)


def test_tables_of_other_pages_are_what_the_results_say():
    """Of assist.md, when.md, privacy.md and README: `--pages` would change nothing."""
    for name, text in fill_pages(DOCS, FOLDER):
        assert text == (DOCS / name).read_text(), f"{name}: run muster reproduce --pages"


def test_the_claims_page_is_what_the_results_say(monkeypatch):
    monkeypatch.setattr(pages, "load_results", lambda experiment, _: load_results(experiment.id))
    monkeypatch.setattr(pages, "judge_claims", lambda experiment, _: judge_claims(experiment.id))
    assert (DOCS / "claims.md").read_text() == pages.claims_page(EXPERIMENTS, FOLDER)


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


def test_the_glance_and_the_details_agree():
    """Counted on the page itself: the cells of each claim that its table marks."""
    text = (DOCS / "claims.md").read_text()
    glances = re.findall(
        r"^\| \[([\w-]+)\]\(#[\w-]+\) \| \*\*.*?\*\* \| (.*?) \| .* \|$", text, re.M
    )
    seen = 0
    for id in dict.fromkeys(id for id, _ in glances):
        body = re.split(r"^###? ", text.split(f'<a id="{id}"></a>')[1], flags=re.M)[1]
        cells = {}
        for n, *_, mark in re.findall(
            r"^\| (\d+) \|(?: .*? \|| *\|){5} (\d+) \| ([^|]*?) \|", body, re.M
        ):
            cells.setdefault(int(n), []).append(mark)
        for n, tally in enumerate([tally for name, tally in glances if name == id], 1):
            if not tally:
                continue
            marks = cells[n]
            none = sum(mark.startswith("no test") for mark in marks)
            yes, alone = marks.count("holds"), marks.count("holds, by itself")
            counts = re.match(r"(\d+) of (\d+)", tally)
            assert (int(counts[1]), int(counts[2])) == (yes, len(marks) - none), (id, n)
            assert re.findall(r"(\d+) (?:more )?by", tally) == [str(alone)] * (alone > 0), (id, n)
            assert re.findall(r"(\d+) no test", tally) == [str(none)] * (none > 0), (id, n)
            seen += 1
    assert seen > 50


def test_every_claim_has_a_verdict():
    text = (DOCS / "claims.md").read_text()
    for experiment in EXPERIMENTS:
        for verdict in judge_claims(experiment.id):
            assert verdict.says in text
            assert verdict.kind in KINDS
            assert f"**{verdict.word}**" in text
            for finding in verdict.findings:
                assert (
                    pages.format_interval(finding.gap, MEASURES[finding.measure].scale, True)
                    in text
                )


def test_every_claim_is_in_the_overview_and_the_counts_add_up():
    text = (DOCS / "claims.md").read_text()
    every = [v for p in EXPERIMENTS for v in judge_claims(p.id)]
    glance = text.split("at a glance")[1].split("\n## ")[0] + text.split("at a glance")[2]
    assert all(v.says in glance for v in every)
    rows = re.findall(r"^\| (\d+) [^|]*\|((?: \d+ \|)+)$", text, re.MULTILINE)
    assert sum(int(n) for n, _ in rows) == len(every)
    for n, cells in rows:
        assert sum(int(cell) for cell in re.findall(r"\d+", cells)) == int(n)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.id)
def test_kept_results_are_of_the_file_as_it_is_or_said_not_to_be_and_pass_its_checks(experiment):
    found = panel_results.load(FOLDER, experiment.id)
    if found is None:
        pytest.skip(f"not run here: muster reproduce {experiment.id} --keep")
    whole = load_results(experiment.id)
    assert whole is not None
    lacks = {*experiment.panel_tables, *experiment.studies} - {*whole.provenance, *whole.missing}
    if whole.outdated_parts(experiment) or whole.earlier or lacks:
        said = pages.describe_runs(experiment, whole)
        assert pages.EARLIER in said or all(f"{name}: not run" in said for name in lacks)
        pytest.skip(f"of an earlier version of its file: muster reproduce {experiment.id} --keep")
    assert pages.find_faults(experiment, whole) == []
    for name, made in found.provenance.items():
        assert made.size in ("full", "small")
        if name in experiment.panel_tables:
            config = experiment.panel(name, made.size).config
            mine = found.frame.filter(pl.col("panel") == name)
            seeds = config["seeds"]  # a number, or a list of them
            wanted = range(seeds) if isinstance(seeds, int) else seeds
            assert set(mine["seed"]) == set(wanted)
            assert mine["round"].max() == config["rounds"]


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.id)
def test_claims_can_be_judged_by_the_panels_of_a_quick_run_alone(experiment):
    whole = load_results(experiment.id)
    if whole is None or not whole.frame.height:
        pytest.skip(f"no runs of its own: muster reproduce {experiment.id} --keep")
    left_out = experiment.skipped_panels("quick")
    frame = whole.frame.filter(~pl.col("panel").is_in(list(left_out)))
    keys = [key for key in whole.keys if frame[key].is_not_null().any()]
    few = dataclasses.replace(
        whole,
        frame=frame.drop([key for key in whole.keys if key not in keys]),
        keys=keys,
        provenance={name: made for name, made in whole.provenance.items() if name not in left_out},
    )
    judged = pages.judge_claims(experiment, few)
    every = judge_claims(experiment.id)
    assert len(judged) == len(every)
    assert any(v.findings for v in judged) == any(v.findings for v in every)


def test_the_results_are_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 10e6


def test_the_list_names_every_experiment_and_its_data(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["reproduce", "--list"]) == 0
    said = capsys.readouterr().out
    for experiment in EXPERIMENTS:
        assert experiment.id in said
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
    assert pages.format_interval(interval, scale) == said


def test_bytes_are_shown_as_kilobytes_and_the_verdict_of_a_cell_is_marked():
    one = Finding(
        {"k": 1}, "bytes_up", ("a", "b"), *[Interval(2000.0, 100.0)] * 3, (1900.0, 2100.0), True,
        "holds", True,
    )  # fmt: skip
    assert "2.000 ± .100 against 2.000 ± .100: +2.000 ± .100, 2 seeds" in pages.format_finding(
        one, [one]
    )
    alone = dataclasses.replace(one, sure=False)
    no = dataclasses.replace(one, cell={"k": 2}, holds=None, answer="undecided", each=(0.0, 1.0))
    assert describe_outcome(alone, [alone, no]) == "holds, by itself"
    assert describe_outcome(alone, [alone]) == "holds"
    assert describe_outcome(no, [no]) == "undecided"
    assert describe_outcome(dataclasses.replace(no, answer="equal"), [no]) == "equal"
    less = dataclasses.replace(one, holds=False, answer="less")
    assert describe_outcome(less, [less]) == "less than claimed"
    assert "1 of 3 seeds diverged" in describe_outcome(dataclasses.replace(no, diverged=1), [no])


def test_an_experiment_without_its_data_is_left_out_and_the_others_run(
    tmp_path, capsys, monkeypatch
):
    def one(experiment, *_):
        if experiment.id == "fig5":
            raise run_panels.DataMissing(
                "fig5: its data is not here; get it with muster data get fmnist"
            )
        done.append(experiment.id)
        return True

    done: list[str] = []
    monkeypatch.setattr("muster.cli.reproduce.run_one", one)
    assert main(["reproduce", "fig5", "fig6", "fig7"]) == 2
    assert done == ["fig6", "fig7"]
    assert "left out, as their data is not here: fig5" in capsys.readouterr().out
    assert main(["reproduce", "fig6"]) == 0


def test_the_command_that_gets_data_is_printed_once(tmp_path, monkeypatch):
    monkeypatch.setattr(run_panels, "locate", lambda entry: None)
    experiment = next(experiment for experiment in EXPERIMENTS if experiment.id == "fig3")
    with pytest.raises(run_panels.DataMissing) as error:
        run_panels.run(experiment, tmp_path)
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
@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.id)
def test_the_quick_form_runs_and_its_checks_hold(experiment, tmp_path, capsys):
    missing = [
        command for panel in experiment.panels() if (command := run_panels.missing_command(panel))
    ]
    if missing:
        pytest.skip(f"run {missing[0]}")
    code = main(["reproduce", experiment.id, "--quick", "--out", str(tmp_path)])
    assert code == 0, capsys.readouterr().out
