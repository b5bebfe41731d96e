"""`muster advise`: from files or a data set's name to verdicts, JSON and pages."""

from __future__ import annotations

import json
from unittest.mock import Mock

import numpy as np
import pytest

import muster
from messy_files import write_messy_folder
from muster.cli.main import main

FEW = ["--rounds", "2", "--seeds", "3", "--jobs", "1"]
VERDICTS = {"join", "help", "stay out", "cannot tell"}


@pytest.fixture(scope="module")
def clinics(tmp_path_factory):
    """Two clinics with a file each; one name that would be markup."""
    folder = tmp_path_factory.mktemp("clinics")
    draw = np.random.default_rng(0)
    for name, n in (("<b>north", 40), ("south", 60)):
        x = draw.normal(size=(n, 2))
        y = (x.sum(axis=1) + 0.3 * draw.normal(size=n)) > 0
        lines = [
            f"{a:.3f},{b:.3f},{'ill' if c else 'well'}" for (a, b), c in zip(x, y, strict=True)
        ]
        (folder / f"{name}.csv").write_text("\n".join(["a,b,label", *lines]))
    return folder


def run(words, capsys):
    code = main(["advise", *map(str, words)])
    said = capsys.readouterr()
    assert code == 0, said.err
    return said.out


def test_files_to_verdicts_as_json_and_pages(clinics, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    told = json.loads(run([clinics, *FEW, "--json", "--name", "a"], capsys))
    assert set(told["clients"]) == {"<b>north", "south"}
    for client in told["clients"].values():
        assert client["verdict"] in VERDICTS
        low, mean, high = client["gain"]
        assert low <= mean <= high
        assert 0 <= client["alone"]["sensitivity"] <= 1
    assert (told["rounds"], told["seeds"], told["steps"]) == (2, 3, 20)
    folder = tmp_path / "runs" / "a"
    assert json.loads((folder / "advice.json").read_text()) == told
    page = (folder / "report.html").read_text()
    assert "<b>north" not in page
    assert "&lt;b&gt;north" in page
    assert page.index('id="advice"') < page.index('id="not-known"') < page.index('id="curves"')
    assert (folder / "config.toml").exists()


def test_a_page_for_one_site_has_no_number_of_another(clinics, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [clinics, *FEW, "--name", "b", "--for", "south"]
    out = run(words, capsys)
    assert "runs/b/report-south.html" in out
    folder = tmp_path / "runs" / "b"
    told = json.loads((folder / "advice.json").read_text())["clients"]
    page = (folder / "report-south.html").read_text()
    assert f"{told['south']['alone']['loss']:.3f}" in page
    assert f"{told['<b>north']['alone']['loss']:.3f}" not in page
    assert 'id="curves"' not in page, "the researcher's part has everybody's numbers"
    assert "100 rows" not in page
    alone = json.loads(run([*words[:-4], "--name", "c", "--for", "south", "--json"], capsys))
    assert list(alone["clients"]) == ["south"]


def test_advice_is_rendered_again_from_its_folder(clinics, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    out = run([clinics, *FEW, "--name", "d"], capsys)
    folder = tmp_path / "runs" / "d"
    page = (folder / "report.html").read_text()
    (folder / "report.html").unlink()
    assert main(["report", "runs/d"]) == 0
    assert (folder / "report.html").read_text() == page, "to the letter, the runs' part too"
    assert main(["report", "runs/d", "--for", "south", "--out", "pages/south.html"]) == 0
    assert "for south" in (tmp_path / "pages" / "report-south.html").read_text()
    capsys.readouterr()
    again = run(["runs/d"], capsys)
    assert again.splitlines()[:-1] == out.splitlines()[:-2], "all but where results are"
    told = json.loads(run(["runs/d", "--json"], capsys))
    assert told == json.loads((folder / "advice.json").read_text())
    for words, said in (
        (["report", "runs/d", "--for", "west"], "unknown client 'west'"),
        (["advise", "runs/d", "--rounds", "3"], "it takes no other keys"),
        (["report", "runs/d/alone-seed0", "--for", "south"], "only advice has pages"),
    ):
        assert main(words) == 2
        assert said in capsys.readouterr().err
    (folder / "advice.json").write_text('{"clients": {"south": {}}}')
    assert main(["report", "runs/d"]) == 2
    assert "advice.json: cannot be read" in capsys.readouterr().err


class StopError(Exception):
    """Where the trainings would begin."""


def test_problems_left_in_the_data_are_stated(tmp_path, monkeypatch, capsys):
    """Heights in metres at one of three went into the advice without a word."""
    monkeypatch.chdir(tmp_path)
    write_messy_folder(tmp_path / "h")
    assert main(["data", "check", "h"]) == 1
    monkeypatch.setattr("muster.cli.advise.advise", Mock(side_effect=StopError))
    with pytest.raises(StopError):
        main(["advise", "h", *FEW])
    said = capsys.readouterr().err
    assert "2 problems in the data may change this: süd, column 'größe': median 1.744" in said


def test_the_cost_is_printed_before_anything_runs(clinics, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["advise", str(clinics), *FEW, "--pairs", "0", "--name", "e"]) == 0
    said = capsys.readouterr()
    assert "15 trainings of 2 rounds: 3 seeds, each with 5 (2 for assist)" in said.err
    assert "with south" not in said.out
    assert "with everyone" in said.out


def test_a_table_and_sentences(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    out = run(["heart", *FEW], capsys)
    for name in ("cleveland", "hungarian", "switzerland", "va"):
        assert f"{name}: " in out
    assert "every way: 2 rounds, 20 local steps; alone as many" in out
    assert "24 comparisons together (Holm)" in out
    assert "results: runs/advise-heart" in out


def test_a_comparison_that_was_run_is_advice_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = ["--data", "diabetes", "--task", "regression", "--model", "linear", "--seeds", "3"]
    methods = ["--method", "local", "--method", "fedavg"]
    assert main(["compare", *flags, *methods, "--rounds", "2", "--name", "done"]) == 0
    capsys.readouterr()
    told = json.loads(run(["runs/done", "--json"], capsys))
    assert len(told["clients"]) == 6
    assert told["clients"]["0"]["ways"].keys() == {"by fedavg"}
    assert any("nobody is advised to help" in remark for remark in told["remarks"])
    assert (tmp_path / "runs" / "done" / "advice-report.html").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "advise: on which data? give a folder of files, or a data set's name"),
        (["nosuch"], "data.name: 'nosuch' is unknown"),
        (["heart", "--for", "Basel"], "--for: no client 'Basel'; there are cleveland"),
        (["heart", "--seeds", "2"], "seeds: 2; allowed: whole numbers from 3"),
        (["heart", "--jobs", "0"], "--jobs: 0"),
        (["heart", "--nosuch", "1"], "unknown key 'nosuch'"),
        (["heart", "--privacy.epsilon", "1"], "privacy: advice comes from runs without noise"),
        (["heart", "--pairs", "many"], "--pairs: 'many'; allowed: whole numbers from 0"),
    ],
)
def test_mistakes_are_one_line_before_anything_is_written(
    words, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["advise", *words, *(["--rounds", "1"] if "--seeds" in words else [])]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_the_names_are_public():
    assert muster.advise.__module__ == "muster.study.advice_runs"
    assert muster.Advice.__name__ == "Advice"
