"""`muster report` and `muster watch`."""

from __future__ import annotations

import pytest

import muster
from muster.cli.main import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A comparison, and a run of another method on one of its seeds."""
    place = tmp_path_factory.mktemp("runs")
    fed = muster.data.digits(clients=6, priority=2)
    how = {"model": muster.models.Softmax(), "rounds": 3}
    m = muster.methods
    muster.compare(fed, [m.fedalign(), m.fedavg()], seeds=2, folder=place / "both", **how)
    for seed in (1, 7):
        run = muster.simulate(fed, m.fedavg_priority(), seed=seed, **how)
        muster.save(run, place / f"alone{seed}")
    muster.save(muster.simulate(fed, m.fedavg(), seed=1, **how), place / "again")
    return place


def test_a_folder_has_its_report(folder, capsys):
    assert main(["report", str(folder / "both")]) == 0
    assert capsys.readouterr().out.strip() == f"report:  {folder / 'both' / 'report.html'}"
    text = (folder / "both" / "report.html").read_text()
    assert "2 methods on digits" in text
    assert (
        main(
            ["report", str(folder / "alone1"), "--out", str(folder / "x.html"), "--title", "A <b>"]
        )
        == 0
    )
    assert "<h1>A &lt;b&gt;</h1>" in (folder / "x.html").read_text()


def test_several_are_compared_on_the_seeds_they_share(folder, capsys):
    out = str(folder / "all.html")
    names = [str(folder / name) for name in ("both", "alone1", "again")]
    assert main(["report", *names, "--out", out]) == 0
    text = (folder / "all.html").read_text()
    assert "4 methods on digits" in text
    assert "fedavg (again)" in text
    assert "seed 1" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report"], "give a folder, such as runs/demo"),
        (["report", "nowhere"], "no run here"),
        (["report", "{}/both", "--out", "x.pdf"], "give the name of an .html file"),
        (["report", "{}/both", "{}/alone7"], "no seed in common"),
        (["report", "{}/alone1", "{}/again", "{}/again"], "given twice"),
        (["watch"], "give its folder"),
        (["watch", "nowhere"], "no such folder"),
        (["watch", "{}/both", "--every", "soon"], "give seconds"),
        (["watch", "{}/both", "--every", "0"], "above 0"),
    ],
)
def test_what_cannot_be_is_one_line(folder, words, said, capsys):
    assert main([word.format(folder) for word in words]) == 2
    assert said in capsys.readouterr().err


def test_results_are_printed_at_once(folder, capsys):
    assert main(["watch", str(folder / "both"), "--page"]) == 0
    out = capsys.readouterr().out
    assert "4 of 4 runs done" in out
    assert "3/3" in out
    assert f"done: {folder / 'both'}" in out
    assert "http-equiv" in (folder / "both" / "live.html").read_text()
    assert 'http-equiv="refresh"' not in (folder / "both" / "live.html").read_text()


def test_a_sweep_has_its_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--data", "digits", "--data.clients", "6", "--rounds", "2", "--seeds", "2"]
    methods = ["--method", "fedalign", "--method", "fedavg", "--jobs", "1", "--name", "s"]
    assert main(["sweep", *words, *methods, "--sweep.data.priority", "2,3"]) == 0
    assert "report:  runs/s/report.html" in capsys.readouterr().out
    text = (tmp_path / "runs" / "s" / "report.html").read_text()
    assert "2 methods over data.priority: 2 cells, 2 seeds." in text
    assert "fedavg is clearly better than fedalign in" in text
    assert "Against priority" in text
    assert main(["watch", "runs/s"]) == 0
    out = capsys.readouterr().out
    assert "8 of 8 runs done" in out
    assert "data.priority=2" in out
    (tmp_path / "runs" / "s" / "report.html").unlink()
    assert main(["report", "runs/s"]) == 0
    assert (tmp_path / "runs" / "s" / "report.html").read_text() == text
    assert main(["report", "runs/s", "runs/s/data.priority=2"]) == 2
    assert "a sweep; give it alone, or one of its cells" in capsys.readouterr().err


def test_runs_on_other_data_are_not_compared(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    few = ["--rounds", "1", "--data", "synth", "--data.max_rows", "60"]
    for name, more in {"low": [], "high": ["--data.noise", "high"], "all": []}.items():
        method = "fedavg" if name == "all" else "fedalign"
        assert main(["run", *few, *more, "--method", method, "--name", name]) == 0
    capsys.readouterr()
    assert main(["report", "runs/low", "runs/high", "--out", "x.html"]) == 2
    said = capsys.readouterr().err
    assert "ran on different data (noise low and high) and cannot be compared" in said
    assert said.count("\n") == 1
    assert main(["report", "runs/low", "runs/all", "--out", "x.html"]) == 0
