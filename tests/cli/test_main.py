"""The command line as a person uses it: good runs, bad input, interruption, resumption."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import muster
from muster.base import durable
from muster.cli.main import main
from muster.results import store
from muster.run.phase_times import PHASES

ROOT = Path(__file__).parents[2]

SMALL = """
name = "small"
rounds = 6
seeds = 2
report_at = [3, 6]

[data]
name = "digits"
clients = 6
priority = 2

[local]
steps = 2
batch_size = 8

[[methods]]
name = "fedalign"
epsilon = { kind = "step", start = 0.4, at_round = 0.5 }
warmup = 1

[[methods]]
label = "all"
name = "fedavg"
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


def test_run_from_flags_alone(here, capsys, drawn):
    code = main(["run", "--data", "digits", "--data.clients", "5", "--data.priority=2",
                 "--rounds", "4", "--method", "fedalign", "--method.epsilon", "0.3",
                 "--local.steps", "2", "--name", "flags", "--profile"])  # fmt: skip
    out = capsys.readouterr().out
    assert code == 0
    assert "results: runs/flags" in out
    phases = re.findall(r"│ (\w+) +│ +(\d+\.\d+) │", out.partition("┃ phase")[2])
    seconds = {phase: float(took) for phase, took in phases}
    assert list(seconds) == [*PHASES, "total"]
    assert sum(seconds.values()) == pytest.approx(2 * seconds["total"], abs=0.01)
    run = muster.load("runs/flags")
    assert len(run.rounds) == 4
    assert run.complete
    assert (here / "runs/flags/figure.png").stat().st_size > 5000
    assert not (here / "runs/flags/checkpoints").exists()
    config = tomllib.loads((here / "runs/flags/config.toml").read_text())
    assert config["methods"][0]["epsilon"] == 0.3
    assert config["methods"][0]["warmup"] == 0.1, "defaults are written out"
    assert config["data"]["partition"]["kind"] == "shards"


def test_the_saved_configuration_runs_again_to_the_same_bits(here, capsys):
    flags = ["--data", "digits", "--rounds", "3", "--data.clients", "4", "--name", "a"]
    assert main(["run", *flags]) == 0
    assert main(["run", "runs/a/config.toml", "--name", "b"]) == 0
    a, b = muster.load("runs/a"), muster.load("runs/b")
    assert a.rounds.drop("seconds").equals(b.rounds.drop("seconds"))


def test_flags_override_the_file(here, capsys):
    args = ["run", "small.toml", "--method", "fedprox", "--method.mu", "0.5", "--rounds", "2",
            "--report-at", "[2]", "--seed", "3"]  # fmt: skip
    assert main(args) == 0
    run = muster.load("runs/small")
    assert (run.method, run.seed, len(run.rounds)) == ("fedprox", 3, 2)


def test_compare_prints_paired_intervals_and_reads_back(here, capsys):
    assert main(["compare", "small.toml"]) == 0
    out = capsys.readouterr().out
    assert "test acc @3" in out
    assert "test acc @6" in out
    assert "loss @6" in out
    assert "±" in out
    runs = muster.load_runs("runs/small")
    assert {k: [r.seed for r in v] for k, v in runs.items()} == {"fedalign": [0, 1], "all": [0, 1]}
    frame = pl.read_parquet("runs/small/summary.parquet")
    a = [r.rounds["loss"][-1] for r in runs["all"]]
    b = [r.rounds["loss"][-1] for r in runs["fedalign"]]
    (row,) = frame.filter(
        pl.col("method") == "all", pl.col("round") == 6, pl.col("measure") == "loss"
    ).iter_rows(named=True)
    d = [x - y for x, y in zip(a, b, strict=True)]
    assert row["difference"] == pytest.approx(sum(d) / 2)
    # Two values: the half-width is t(0.975, 1) * |d0 - d1| / 2, wider because seeds deal
    # and split the same rows: the priority clients train on m of N.
    rho = row["objective_share"] * (1 - row["objective_test"])
    wider = (1 + 2 * rho / (1 - rho)) ** 0.5
    assert row["varies"] == "deal and split"
    assert row["difference_half"] == pytest.approx(12.7062 * abs(d[0] - d[1]) / 2 * wider, rel=1e-4)
    assert "2 seeds that deal to clients and split the same" in out
    assert main(["show", "runs/small"]) == 0
    assert main(["show", "runs/small/all-seed1"]) == 0


def test_the_figures_panels_and_formats_are_chosen(here, capsys, drawn):
    flags = ["--seeds", "1", "--panels", "fairness,silent", "--figures", "pdf,svg"]
    assert main(["compare", "small.toml", *flags]) == 0
    out = capsys.readouterr().out
    assert "figure:  runs/small/figure.pdf, runs/small/figure.svg" in out
    assert "loss @6" in out, "the table shows the usual"
    assert not (here / "runs/small/figure.png").exists()
    said = (here / "runs/small/figure.svg").read_text()
    assert "<!-- share of clients the model is useful to -->" in said
    assert "training loss -->" not in said
    assert muster.load("runs/small").panels == ("fairness", "silent")
    assert main(["show", "runs/small", "--figure", "a/b.svg"]) == 0
    assert "figure:  a/b.svg" in capsys.readouterr().out
    said = Path("a/b.svg").read_text()
    assert "<!-- clients silent by choice -->" in said
    assert main(["show", "runs/small/all-seed0", "--figure", "one.svg", "--panels", "loss"]) == 0
    assert "training loss -->" in Path("one.svg").read_text()
    capsys.readouterr()
    for words, message in (
        (["show", "runs/small", "--figure", "a.gif"], "--figure: 'a.gif'; the file ending"),
        (["show", "runs/small", "--panels", "loss"], "--panels: of which figure? give --figure"),
        (["show", "runs/small", "--figure", "a.png", "--panels", "x"], "unknown panel 'x'; known"),
        (["run", "small.toml", "--method", "fedavg", "--panels", "accuracy"],
         "unknown panel 'accuracy'; did you mean 'test_accuracy'?"),
        (["run", "small.toml", "--method", "fedavg", "--figures", "gif"],
         "figures: 'gif'; allowed: png, pdf, svg"),
    ):  # fmt: skip
        assert main(words) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"muster: {message}")
        assert error.count("\n") == 1
    assert not Path("a.png").exists()


def test_a_comparison_is_read_back_and_shown_by_other_measures(here, capsys):
    assert main(["compare", "small.toml", "--measures", "fairness,loss", "--seeds", "1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "fairness @3 fairness @6 loss @6" in out
    assert "1 seed method" in out
    done = muster.load("runs/small")
    assert isinstance(done, muster.Comparison)
    assert (list(done.runs), done.seeds, done.complete) == (["fedalign", "all"], (0,), True)
    assert done.measures == ("fairness", "loss")
    assert main(["show", "runs/small"]) == 0
    assert "fairness @6" in capsys.readouterr().out
    assert main(["show", "runs/small", "--measures", "train_accuracy"]) == 0
    assert "train accuracy @6" in capsys.readouterr().out
    assert main(["show", "runs/small/all-seed0", "--measures", "silent"]) == 0
    out = capsys.readouterr().out
    assert "silent" in out
    assert "fairness" not in out
    assert main(["show", "runs/small", "--measures", "speed"]) == 2
    assert "unknown measure 'speed'" in capsys.readouterr().err


def test_a_comparison_of_nothing_in_particular_is_the_usual_one(here, capsys):
    assert main(["compare", "--data", "digits", "--rounds", "2", "--seeds", "2"]) == 0
    done = muster.load("runs/run")
    assert list(done.runs) == ["fedalign", "fedavg_priority", "fedavg", "local"]
    assert "paired difference to fedalign" in capsys.readouterr().out
    (here / "plain.toml").write_text('data = "digits"\nrounds = 2\nseeds = 2\n')
    assert main(["compare", "plain.toml"]) == 0
    assert len(muster.load("runs/plain").runs) == 4
    assert main(["compare", "plain.toml", "--method", "fedavg", "--name", "one"]) == 0
    assert list(muster.load("runs/one").runs) == ["fedavg"]


def test_several_methods_from_flags_are_all_compared(here, capsys):
    flags = ["--data", "digits", "--data.clients", "4", "--rounds", "1", "--seeds", "1"]
    args = ["compare", "--method", "fedalign", *flags, "--method", "fedavg", "--method=fedprox"]
    assert main(args) == 0
    assert list(muster.load("runs/run").runs) == ["fedalign", "fedavg", "fedprox"]


def test_a_run_takes_fewer_rounds_than_its_file_reports_at(here, capsys):
    args = ["run", "examples/demo.toml", "--method", "fedalign", "--rounds", "2"]
    assert main([*args, "--method.epsilon", "0.4"]) == 0
    assert len(muster.load("runs/demo").rounds) == 2


def test_a_run_is_not_resumed_as_a_comparison_nor_the_reverse(here, capsys):
    flags = ["--data", "digits", "--data.clients", "4", "--rounds", "1", "--seeds", "1"]
    assert main(["run", *flags, "--name", "one"]) == 0
    assert main(["compare", *flags, "--name", "several"]) == 0
    capsys.readouterr()
    for command, folder in (("run", "several"), ("compare", "one")):
        assert main([command, "--resume", f"runs/{folder}"]) == 2
        other = "compare" if command == "run" else "run"
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert f"use muster {other} --resume runs/{folder}" in said
    assert main(["compare", "--resume", "runs/several"]) == 0


def test_names_are_printed_as_they_are(here, capsys):
    (here / "odd.toml").write_text(
        SMALL.replace('label = "all"', 'label = "[red]all"')
        .replace('name = "small"', 'name = "[bold]x :smile:"')
        .replace("seeds = 2", "seeds = 1")
    )
    assert main(["compare", "odd.toml"]) == 0
    out = capsys.readouterr().out
    assert "[red]all, seed 0: 6 of 12 rounds in all" in out
    assert "results: runs/[bold]x :smile:\n" in out
    assert "figure:  runs/[bold]x :smile:/figure.png\n" in out
    assert main(["show", "runs/[bold]x :smile:"]) == 0
    assert capsys.readouterr().out.count("[red]all ") == 3


def test_a_second_run_of_the_same_name_gets_a_number(here, capsys):
    for _ in range(2):
        assert main(["run", "--data", "digits", "--rounds", "1", "--name", "twice"]) == 0
    assert (here / "runs/twice/run.toml").exists()
    assert (here / "runs/twice-2/run.toml").exists()


def test_methods_lists_every_method_with_paper_and_formula(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["methods"]) == 0
    out = capsys.readouterr().out
    for name in muster.methods.METHODS:
        assert name in out
    assert "Algorithm 1" in out
    assert "sum_k p_k w_k" in out


BAD = {
    "unknown method": (
        ["run", "--method", "fedaling"],
        "method.name: 'fedaling' is unknown; did you mean 'fedalign'",
    ),
    "unknown key": (
        ["run", "--method.epsilom", "0.1"],
        "unknown key 'method.epsilom'; did you mean 'epsilon'",
    ),
    "unknown top key": (["run", "--round", "5"], "unknown key 'round'; did you mean 'rounds'"),
    "unknown data key": (
        ["run", "--data.nois", "low"],
        "unknown key 'data.nois'; did you mean 'noise'",
    ),
    "wrong type": (["run", "--rounds", "many"], "rounds: 'many'; allowed: a whole number"),
    "zero rounds": (["run", "--rounds", "0"], "rounds: 0; allowed: whole numbers from 1"),
    "bad choice": (
        ["run", "--method.criterion", "f1"],
        "method.criterion: 'f1'; allowed: loss, score, accuracy",
    ),
    "bad kind": (
        ["run", "--method.invite", "fractoin"],
        "method.invite.kind: 'fractoin' is unknown; did you mean 'fraction'",
    ),
    "missing in a kind": (["run", "--method.invite", "sample"], "method.invite.m: missing"),
    "bad value": (["run", "--data.noise", "loud"], "unknown noise 'loud'; did you mean 'low'"),
    "steps and epochs": (
        ["run", "--local.steps", "1", "--local.epochs", "1"],
        "give exactly one of the two",
    ),
    "a number in quotes": (
        ["run", "--method.epsilon", '"0.2"'],
        "method.epsilon: '0.2' is text; leave the quotes out: 0.2",
    ),
    "rounds without end": (
        ["run", "--rounds", "99999999999999999999"],
        "rounds: 99999999999999999999; allowed: whole numbers from 1 to 1000000",
    ),
    "data with a name of 5,000 letters": (
        ["run", "--data", "x" * 5000],
        "data.name: 'xxx",
    ),
    "no file": (["run", "nowhere.toml"], "nowhere.toml: no such file"),
    "no value": (["run", "--rounds"], "--rounds: its value is missing"),
    "stray word": (["compare", "small.toml", "stray"], "'stray': not understood"),
    "several methods": (["run", "small.toml"], "`muster run` runs one; use `muster compare`"),
    "which of several": (["compare", "small.toml", "--method.mu", "1"], "several methods; which"),
    "resume nowhere": (["run", "--resume", "runs/none"], "no config.toml there"),
    "resume with more": (
        ["run", "--resume", "runs/none", "--rounds", "3"],
        "continues with the folder's own settings",
    ),
    "show nowhere": (["show", "runs/none"], "no results here"),
    "report outside": (
        ["compare", "small.toml", "--rounds", "4", "--report_at", "6"],
        "report_at: 6; allowed: whole numbers from 1 to 4",
    ),
    "cuda": (["run", "--device", "cuda", "--rounds", "1"], "no CUDA device is present"),
    "bad requirement": (["run", "--requirement", "high"], "requirement: 'high'; give a number"),
    "missing requirement": (["run", "--method", "maxfl", "--data", "digits"], "maxfl needs each"),
    "bad attack": (
        ["run", "--attack", "sign_flop"],
        "attack.kind: 'sign_flop' is unknown; did you mean 'sign_flip'",
    ),
    "bad participation": (
        ["run", "--participation.kind", "flexibel"],
        "participation.kind: 'flexibel' is unknown; did you mean 'flexible'",
    ),
    "no seeds": (["compare", "small.toml", "--seeds", "[]"], "seeds: []; give a count"),
    "same seed twice": (["compare", "small.toml", "--seeds", "[1, 1]"], "give a count, or diff"),
    "negative seed": (["run", "--seed", "-1"], "seed: -1; allowed: whole numbers from 0"),
    "no processes": (["run", "--processes", "0"], "processes: 0; allowed: whole numbers from 1"),
    "nan requirement": (["run", "--data", "digits", "--requirement", "nan"], "must be finite"),
    "unknown command": (["rum"], "unknown command 'rum'; did you mean 'run'"),
    "name": (["run", "--name", "a/b"], "name: 'a/b'; give a plain folder name"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2(here, capsys, case):
    args, message = BAD[case]
    if case == "cuda" and __import__("torch").cuda.is_available():
        pytest.skip("this machine has CUDA; a machine without would run this")
    assert main(args) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("muster: ")
    assert error.count("\n") == 1


def test_a_broken_file_is_one_line(here, capsys):
    (here / "broken.toml").write_text("rounds = = 3")
    assert main(["run", "broken.toml"]) == 2
    assert "broken.toml: not valid TOML" in capsys.readouterr().err
    (here / "deep.toml").write_text("a." * 900 + "a = 1")
    assert main(["run", "deep.toml"]) == 2
    assert "not valid TOML: tables or lists within each other, over 32" in capsys.readouterr().err


def command(*args):
    return [sys.executable, "-m", "muster.cli", *args]


LONG = ["--data", "digits", "--rounds", "100000", "--name", "long", "--checkpoint_every", "3"]


def test_ctrl_c_keeps_what_was_done_and_says_how_to_go_on(here):
    process = subprocess.Popen(
        command("run", *LONG), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    # The first checkpoint is there once three rounds are done, however slow the machine is.
    while not any((here / "runs/long/checkpoints").glob("round-*")):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "muster run --resume runs/long" in out
    assert "Traceback" not in out + err
    done = muster.load("runs/long")
    assert not done.complete
    assert 3 <= len(done.rounds) < 100000
    assert done.rounds["round"].to_list() == list(range(1, len(done.rounds) + 1))


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_comparison_that_is_asked_to_end_says_how_to_go_on(here, jobs):
    line = ["--rounds", "100000", "--checkpoint_every", "3", "--name", "long", "--jobs", jobs]
    process = subprocess.Popen(
        command("compare", "small.toml", *line),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not any((here / "runs/long").glob("*/checkpoints/round-*")):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    os.killpg(process.pid, signal.SIGTERM)  # `timeout` sends both
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert "continue with: muster compare --resume runs/long" in out
    assert "Traceback" not in out + err
    assert "resource_tracker" not in err


def test_an_interrupted_run_resumes_to_the_bits_of_an_uninterrupted_one(here, capsys, monkeypatch):
    flags = ["--data", "digits", "--rounds", "9", "--data.clients", "5"]
    assert main(["run", *flags, "--name", "whole"]) == 0

    from muster.cli.progress_bar import Progress

    real = Progress.__call__

    def stop(self, row):
        real(self, row)
        if row["round"] == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "__call__", stop)
        assert main(["run", *flags, "--name", "cut"]) == 130
    assert main(["run", "--resume", "runs/cut"]) == 0
    a, b = muster.load("runs/whole"), muster.load("runs/cut")
    assert b.complete
    assert a.rounds.drop("seconds").equals(b.rounds.drop("seconds"))
    assert a.clients.equals(b.clients)


UNFINISHED = {
    "run": (["run", "small.toml", "--method", "fedavg", "--rounds", "4", "--seeds", "1"], 2),
    "compare": (["compare", "small.toml", "--rounds", "4"], 10),
    "sweep": (["sweep", "small.toml", "--sweep.local.lr", "0.1", "--jobs", "1"], 1),
    "tune": (["tune", "small.toml", "--tune.local.lr", "0.1,0.2", "--jobs", "1"], 1),
}


@pytest.mark.parametrize("name", UNFINISHED)
def test_a_second_call_names_what_is_unfinished(here, capsys, monkeypatch, name):
    from muster.cli.progress_bar import Cells, Progress

    line, last = UNFINISHED[name]
    line = [*line, "--name", "cc"]
    calls = []

    def stop(self, row):
        calls.append(row)
        if len(calls) == last:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "__call__", stop)
        patch.setattr(Cells, "count", stop)
        assert main(line) == 130
    assert "unfinished" not in capsys.readouterr().out
    again = f"to go on: muster {name} --resume runs/cc (writing to runs/cc-2)"
    assert main(line) == 0
    out = capsys.readouterr().out
    assert f"runs/cc is unfinished with these settings; {again}" in " ".join(out.split())
    assert main([*line, "--local.batch_size", "4"]) == 0
    assert "unfinished" not in capsys.readouterr().out, "other settings"
    with durable.lock_folder(here / "runs/cc"):
        assert main(line) == 0
    assert "unfinished" not in capsys.readouterr().out, "another process is at work there"
    assert main([name, "--resume", "runs/cc"]) == 0
    capsys.readouterr()
    assert main(line) == 0
    assert "unfinished" not in capsys.readouterr().out, "it is finished now"


def test_a_finished_run_is_not_run_again(here, capsys):
    flags = ["--data", "digits", "--rounds", "2", "--name", "done", "--local.lr", "0.05"]
    assert main(["run", *flags]) == 0
    before = (here / "runs/done/rounds.parquet").read_bytes()
    assert main(["run", "--resume", "runs/done"]) == 0
    assert "is complete" in capsys.readouterr().out
    assert (here / "runs/done/rounds.parquet").read_bytes() == before
    assert muster.load("runs/done").config["local"]["lr"] == 0.05


def test_an_interrupted_comparison_goes_on_with_what_is_missing(here, capsys, monkeypatch):
    from muster.cli.progress_bar import Progress

    real, calls = Progress.__call__, []

    def stop(self, row):
        real(self, row)
        calls.append(row["round"])
        if len(calls) == 15:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "__call__", stop)
        assert main(["compare", "small.toml"]) == 130
    out = capsys.readouterr().out
    assert "1 of 2 seeds complete" in out
    assert "muster compare --resume runs/small" in out
    assert main(["compare", "--resume", "runs/small"]) == 0
    assert len(calls) == 15
    runs = muster.load_runs("runs/small")
    assert all(r.complete and len(r.rounds) == 6 for v in runs.values() for r in v)


@pytest.mark.slow  # test_terminals.py runs a comparison on a pipe
def test_on_a_pipe_progress_is_plain_lines(here, monkeypatch):
    done = subprocess.run(
        command("run", "--data", "digits", "--rounds", "3"), capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "\x1b[" not in done.stdout
    assert re.search(r"fedalign, seed 0: 0 of 3 rounds in all", done.stdout)


def test_on_a_terminal_progress_is_a_bar_with_the_time_left(here):
    parent, child = pty.openpty()
    process = subprocess.Popen(
        command("run", "--data", "digits", "--rounds", "40"),
        stdout=child, stderr=child, env={**os.environ, "TERM": "xterm", "COLUMNS": "140"},
    )  # fmt: skip
    os.close(child)
    seen = b""
    while True:
        try:
            chunk = os.read(parent, 4096)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
    process.wait(60)
    text = seen.decode()
    assert re.search(r"about \d+ s left", text)
    assert "40/40" in text


# Grids are run by tests/docs/test_commands.py, on the data their page makes.
PACKAGED = sorted((ROOT / "src" / "muster" / "examples").glob("*.toml"))
EXAMPLES = [path for path in PACKAGED if "[sweep]" not in path.read_text()]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_every_example_configuration_runs(path, here, capsys):
    short = ["--rounds", "2", "--seeds", "1", "--report_at", "[2]"]
    assert main(["compare", str(path), *short]) == 0
    assert f"results: runs/{path.stem}" in capsys.readouterr().out


def test_requirements_participation_and_attacks_come_from_the_file(here, capsys):
    (here / "all.toml").write_text(
        """
        rounds = 4
        requirement = 1.5
        participation = { kind = "flexible", from_round = 2 }
        attack = { kind = "sign_flip", fraction = 0.2 }
        method = { name = "maxfl", m = 3 }
        data = { name = "digits", clients = 8, priority = "all", unseen = 2 }
        """
    )
    assert main(["run", "all.toml"]) == 0
    run = muster.load("runs/all")
    assert run.final["requirement"].unique().to_list() == [1.5]
    assert run.final["unseen"].sum() == 2
    assert run.final["attacker"].sum() == 1
    assert "gm_appeal_unseen" in run.rounds.columns
    assert main(["run", "runs/all/config.toml", "--name", "again"]) == 0
    again = muster.load("runs/again")
    assert run.rounds.drop("seconds").equals(again.rounds.drop("seconds"))


def test_the_demo_configuration_is_what_the_readme_says():
    from muster.config.experiment import load, load_table

    demo = load(load_table("examples/demo.toml"))
    assert list(demo.methods) == ["assist", "alone", "everyone", "fedalign"]
    assert len(demo.settings.all_seeds) >= 5


def test_a_federation_and_a_run_do_not_go_on_as_each_other(here, capsys):
    assert main(["run", "--data", "digits", "--rounds", "1", "--name", "single"]) == 0
    capsys.readouterr()
    assert main(["federate", "--local", "4", "--resume", "runs/single"]) == 2
    assert "holds a run; use muster run --resume runs/single" in capsys.readouterr().err
    again = store.load(here / "runs" / "single")
    store.save(replace(again, engine="flower"), here / "runs" / "single")
    assert main(["run", "--resume", "runs/single"]) == 2
    assert "holds a federation; use muster federate --local N --resume" in capsys.readouterr().err


SWEEP = ["sweep", "--sweep.local.lr", "0.1,0.2", "--seeds", "1", "--jobs", "2"]


@pytest.mark.parametrize("command", [["run"], pytest.param(SWEEP, marks=pytest.mark.slow)])
def test_a_warning_is_one_line_without_the_code_it_comes_from(here, command):
    rows = "".join(f"{5000 + 900 * (i % 7)},{i % 5 / 5},{i // 4 % 2},{i % 4}\n" for i in range(80))
    (here / "rows.csv").write_text(f"a,b,label,client\n{rows}")
    done = subprocess.run(
        [sys.executable, "-m", "muster", *command, "--data", "rows.csv", "--rounds", "1"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "muster: features need scaling" in done.stderr
    assert "MusterWarning" not in done.stderr


@pytest.mark.parametrize("said", ["", "can't allocate memory: 9 bytes", "CUDA out of memory"])
def test_no_memory_left_is_one_line(monkeypatch, capsys, said):
    error = RuntimeError(said) if said else MemoryError()

    def execute(arguments, console):
        raise error

    monkeypatch.setattr("muster.cli.methods.execute", execute)
    assert main(["methods"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("muster: out of memory (")
    assert said.count("\n") == 1


def test_a_folder_that_cannot_be_made_is_named_in_plain_words(here, capsys):
    Path("full").write_text("a file")
    assert main(["compare", "--data", "digits", "--out", "full", "--name", "x"]) == 2
    assert capsys.readouterr().err.strip() == f"muster: {Path('full/x')}: Not a directory"
