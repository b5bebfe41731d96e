"""`muster sweep` and `muster tune` from the command line, and tables as files."""

from __future__ import annotations

import csv
import re
import shlex
import tomllib

import polars as pl
import pytest

import muster
from muster.base.errors import INTERRUPTED, MusterError
from muster.cli.main import main
from muster.study import units


def test_a_sweep_leaves_tables_figures_and_cells(here, capsys):
    flags = ["--sweep.data.priority", "2,3", "--measure", "loss,fairness", "--figures", "pdf,png"]
    assert main(["sweep", "small.toml", *flags, "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert "2 of 2 cells: 4 of 4 runs in all" in said
    assert "paired difference to fedavg in the same cell" in said
    assert "fairness" in said
    assert "test acc" not in said
    folder = here / "runs" / "small"
    for name in ("figure.pdf", "figure.png", "summary.parquet", "sweep.parquet"):
        assert (folder / name).stat().st_size > 500
    frame = pl.read_parquet(folder / "summary.parquet")
    with (folder / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["mean"]) for row in rows] == pytest.approx(frame["mean"].to_list())
    tex = (folder / "summary.tex").read_text()
    assert tex.count(r"\\") == 1 + 2 * 2, "a head, and a line for each cell and method"
    first = frame.row(0, named=True)
    assert f"2 & fedavg & ${first['mean']:.3f} \\pm {first['half']:.3f}$" in tex
    # A cell is a comparison, and a sweep is shown again.
    assert main(["show", "runs/small/data.priority=3"]) == 0
    assert "fairness @2" in capsys.readouterr().out
    assert main(["show", "runs/small", "--measure", "silent", "--figure", "a.svg"]) == 0
    assert "silent" in capsys.readouterr().out
    assert (here / "a.svg").exists()
    assert main(["figure", "runs/small", "--paper"]) == 0
    for name in ("paper.pdf", "paper.svg"):
        assert (folder / name).stat().st_size > 500
    assert 'width="244.8pt"' in (folder / "paper.svg").read_text(), "a column's 3.4 inches"
    assert main(["figure", "runs/small", "--panels", "silent"]) == 0


def test_ctrl_c_and_resume(here, capsys, monkeypatch):
    real = units.run_unit
    ran = []

    def run(unit):
        if len(ran) == 3:
            ran.append("stopped")
            raise KeyboardInterrupt
        ran.append(unit.seed)
        real(unit)

    monkeypatch.setattr(units, "run_unit", run)
    flags = ["--name", "two settings", "--sweep.data.priority", "2,3", "--jobs", "1"]
    assert main(["sweep", "small.toml", *flags]) == INTERRUPTED
    again = re.findall("interrupted; continue with: (.*)", capsys.readouterr().out)
    assert again == ["muster sweep --resume 'runs/two settings'"]
    assert main([*shlex.split(again[0])[1:], "--jobs", "1"]) == 0
    assert ran == [0, 1, 0, "stopped", 1]
    assert muster.load("runs/two settings").complete
    assert main(["sweep", "--resume", "runs/two settings/data.priority=2"]) == 2
    again = "muster compare --resume 'runs/two settings/data.priority=2'"
    assert f"holds a comparison; use {again}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sweep small.toml", "sweep: over what?"),
        ("sweep small.toml --sweep.data.priority 2,99 --jobs 1", "data.priority=99: priority"),
        ("sweep small.toml --sweep.data.priority 2 --jobs 0", "--jobs: 0; allowed"),
        ("compare small.toml --sweep.data.priority 2", "run it with muster sweep"),
        ("tune small.toml --tune.local.lr 0.1 --tune.seeds 0", "tune.seeds: 0"),
        ("compare small.toml --measure loss --measures loss", "--measure: given twice"),
        ("compare small.toml --measure gm_appeal", "no method takes it here"),
        ("run --data digits --measure loss,gm_appeal", "measure 'gm_appeal': no method takes"),
        ("sweep small.toml --sweep 1,2", "sweep: '1,2'; give a table of keys"),
        ("sweep small.toml --sweep.local.lr -1,0.1", "local.lr=-1: local lr: -1.0; allowed"),
        ("tune small.toml --tune 3", "tune: 3"),
        ("show runs --table a.doc", "--table: 'a.doc'; the file ending must be one of"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_folder(here, capsys, line, said):
    assert main(line.split()) == 2
    found = capsys.readouterr()
    assert said in found.err
    assert found.err.count("\n") == 1
    assert not (here / "runs").exists() or not any((here / "runs").iterdir())


def test_ctrl_c_before_anything_ran_leaves_nothing(here, capsys, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(units, "check_plans", stop)
    assert main(["sweep", "small.toml", "--sweep.data.priority", "2,3"]) == INTERRUPTED
    assert "interrupted before anything was run" in capsys.readouterr().out
    assert main(["tune", "small.toml", "--tune.local.lr", "0.1,0.2"]) == INTERRUPTED
    assert not any((here / "runs").iterdir())


def test_an_error_midway_says_how_to_go_on(here, capsys, monkeypatch):
    real = units.run_unit

    def killed(unit):
        if unit.seed == 1:
            raise MusterError("jobs: a process ended before its work was done")
        real(unit)

    monkeypatch.setattr(units, "run_unit", killed)
    assert main(["sweep", "small.toml", "--sweep.data.priority", "2,3", "--jobs", "1"]) == 2
    said = capsys.readouterr().err
    assert (
        "a process ended before its work was done; finished runs are saved; continue with: " in said
    )
    assert "muster sweep --resume runs/small" in said


@pytest.mark.slow
def test_a_grid_too_large_for_a_figure_has_its_tables(here, capsys):
    flags = ["--sweep.data.priority", "2,3", "--sweep.local.lr", "0.1,0.2,0.3"]
    flags += ["--sweep.local.steps", "1,2,3", "--seeds", "1", "--rounds", "1", "--jobs", "1"]
    assert main(["sweep", "small.toml", *flags]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "figure: none: figure: 6 cells" not in said
    assert (here / "runs/small/figure.png").exists()
    flags[1] = "2,3,4"
    assert main(["sweep", "small.toml", *flags]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "figure: none: figure: 9 cells besides" in said
    assert (here / "runs/small-2/report.html").exists()
    assert (here / "runs/small-2/summary.csv").exists()


def test_a_sweep_that_learned_nothing_is_no_success(here, capsys):
    flags = ["--sweep.local.lr", "0.1,1e30", "--seeds", "1", "--jobs", "1"]
    assert main(["sweep", "small.toml", *flags]) == 1
    assert "no success: in 2 runs every round was skipped" in capsys.readouterr().out


def test_commands_for_other_results_say_what_a_tuning_is(here, capsys, monkeypatch):
    real = units.run_unit
    ran = []

    def run(unit):
        if len(ran) == 3:
            raise KeyboardInterrupt
        ran.append(unit.seed)
        real(unit)

    line = ["tune", "small.toml", "--tune.local.lr", "0.1,0.3", "--name", "t", "--jobs", "1"]
    with monkeypatch.context() as patch:
        patch.setattr(units, "run_unit", run)
        assert main(line) == INTERRUPTED
    assert main(["watch", "runs/t", "--once"]) == 0
    out = capsys.readouterr().out
    assert "runs/t: 3 of 12 runs done" in out
    assert "done: " not in out
    for command in ("show", "report", "figure"):
        assert main([command, "runs/t"]) == 2
        said = "runs/t: a tuning that is not done yet; continue with: muster tune --resume runs/t"
        assert said in capsys.readouterr().err
    assert main(["tune", "--resume", "runs/t", "--jobs", "1"]) == 0
    for command in ("show", "report", "figure"):
        assert main([command, "runs/t"]) == 2
        assert "a tuning; its scores are in tuning.parquet" in capsys.readouterr().err
    assert main(["watch", "runs/t", "--once"]) == 0
    assert "done: runs/t; see it with: muster tune --resume runs/t" in capsys.readouterr().out
    for command in ("run", "compare", "sweep"):
        assert main([command, "--resume", "runs/t"]) == 2
        said = "--resume runs/t: holds a tuning; use muster tune --resume runs/t"
        assert said in capsys.readouterr().err


def test_a_measure_that_no_run_took_is_not_shown_as_dashes(here, capsys):
    assert main(["compare", "small.toml", "--seeds", "1"]) == 0
    capsys.readouterr()
    for flag in (["--measure", "gm_appeal"], ["--figure", "x.png", "--panels", "gm_appeal"]):
        assert main(["show", "runs/small", *flag]) == 2
        assert "measure 'gm_appeal': none of these runs has it" in capsys.readouterr().err
    assert not (here / "x.png").exists()


def test_tuning_says_what_was_chosen(here, capsys):
    flags = ["--tune.local.lr", "0.001,0.3", "--tune.seeds", "[9]", "--jobs", "1", "--name", "t"]
    assert main(["tune", "small.toml", *flags]) == 0
    said = capsys.readouterr().out
    assert said.count("chosen") >= 3
    assert "run it with: muster compare runs/t/chosen.toml" in said
    table = tomllib.loads((here / "runs/t/chosen.toml").read_text())
    assert table["name"] == "t-tuned"
    assert [m["local"]["lr"] for m in table["methods"]] == [0.3, 0.3]
    scores = pl.read_parquet(here / "runs/t/tuning.parquet")
    assert scores.filter(pl.col("local.lr") == 0.3)["chosen"].all()
    assert main(["compare", "runs/t/chosen.toml"]) == 0
    assert "runs/t-tuned" in capsys.readouterr().out
    assert main(["tune", "--resume", "runs/t", "--jobs", "1"]) == 0


@pytest.mark.parametrize("ending", ["csv", "tex", "parquet"])
def test_any_results_are_written_as_tables(here, capsys, ending):
    assert main(["compare", "small.toml", "--measure", "loss", "--seeds", "1"]) == 0
    assert (here / "runs/small/summary.csv").exists()
    assert (here / "runs/small/summary.tex").exists()
    for folder in ("runs/small", "runs/small/fedavg-seed0"):
        out = f"out/{folder.replace('/', '-')}.{ending}"
        line = ["show", folder, "--measure", "train_accuracy", "--table", out]
        assert main(line) == 0
        assert f"table:   {out}" in capsys.readouterr().out
        text = (here / out).read_bytes()
        assert b"train" in text


def test_measure_is_measures(here, capsys):
    assert main(["compare", "small.toml", "--measure", "fairness,silent", "--seeds", "1"]) == 0
    said = capsys.readouterr().out
    assert "fairness @2" in said
    assert "silent @2" in said
    assert main(["run", "small.toml", "--method", "fedavg", "--measure", "silent"]) == 0
    assert "silent" in capsys.readouterr().out
