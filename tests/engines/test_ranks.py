"""One run on several ranks: the bits of one process, and what happens when one of them fails."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import muster
import spread_cases
from helpers import nine_clients, same_bits
from muster.base.errors import INTERRUPTED
from muster.cli import run
from muster.cli.main import main
from muster.cli.progress_bar import Progress
from muster.engines import ranks
from muster.engines.engine import AppraisalBuffer, WorkBuffer
from muster.parts.solvers import Work
from muster.protocol import Appraisal


def test_two_ranks_have_the_bits_of_one_process_and_each_others_errors(tmp_path, monkeypatch):
    """One start of torchrun for all of it: portions and chunks at both ranks, an error and Ctrl-C
    at one of them, other data, a run resumed on 1, then 2, then 1 ranks, and a rank that is killed.
    """
    spread_cases.small_portions(monkeypatch.setattr)
    whole = spread_cases.resume(tmp_path / "whole", 6, 0)
    spread_cases.resume(tmp_path / "checkpoints", 6, 2)
    faults = ["refusal", "interrupt", "other_data", "other_seed", "resume", "death"]
    (first, second), printed = spread_cases.launch(tmp_path, 2, *spread_cases.CASES, *faults)
    for name, case in spread_cases.CASES.items():
        expected = spread_cases.digest(case())
        assert first[name]["digest"] == second[name]["digest"] == expected, name
        assert first[name]["tasks"] > 0 < second[name]["tasks"], name
    assert {found["engine"] for found in first.values() if "engine" in found} == {"stacked", "loop"}
    for mine in (first, second):
        assert mine["refusal"]["error"] == "model: broken on purpose"
        assert mine["interrupt"]["rounds"] == 1, "rounds that are whole at every rank"
        assert not mine["interrupt"]["complete"]
        assert "rank 1 has another data than rank 0" in mine["other_data"]["error"]
        assert "rank 1 computes something else than rank 0" in mine["other_seed"]["error"]
        assert mine["resume"]["rounds"] == 4
    assert not list((tmp_path / "checkpoints").glob("round-0000000[56]")), "stopped after round 4"
    again = spread_cases.resume(tmp_path / "checkpoints", 6, 0)
    assert same_bits(whole, again)
    assert "another rank of 2 ended" in first["death"]["error"]
    assert "death" not in second
    assert first["death"]["seconds"] < 60, "gloo alone waits half an hour"
    assert "Traceback" not in printed.partition("torch/distributed")[0]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("size", [2, 3])
def test_every_method_on_more_ranks(tmp_path, monkeypatch, size):
    spread_cases.small_portions(monkeypatch.setattr)
    found, _ = spread_cases.launch(tmp_path, size, *spread_cases.MORE)
    for name, case in spread_cases.MORE.items():
        expected = spread_cases.digest(case())
        assert {mine[name]["digest"] for mine in found} == {expected}, name


CONFIG = """
data = {name = "digits", clients = 8, priority = 2}
model = {name = "mlp", hidden = [32]}
method = "fedalign"
engine = "spread"
rounds = ROUNDS
checkpoint_every = 1
"""


def start(folder, rounds, *more):
    (folder / "x.toml").write_text(CONFIG.replace("ROUNDS", str(rounds)))
    command = [*spread_cases.TORCHRUN, "2", "-m", "muster", "run", *(more or ["x.toml"])]
    return subprocess.Popen(
        command, cwd=folder, env=spread_cases.clean_environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def find_rank(process, rank):
    """The process of a rank."""
    for entry in Path("/proc").iterdir():
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            variables = (entry / "environ").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        if parent == str(process.pid) and f"RANK={rank}".encode() in variables:
            return int(entry.name)
    raise AssertionError(f"rank {rank} is not there")


def wait_for_rounds(folder, process, n):
    log = folder / "runs/x/checkpoints/progress.jsonl"
    while not log.exists() or len(log.read_text().splitlines()) <= n:
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.05)


def own_lines(printed):
    return [line for line in printed.splitlines() if line.startswith("muster: ")]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_dead_rank_ends_the_command_with_one_line(tmp_path, how, rank):
    process = start(tmp_path, 100_000)
    wait_for_rounds(tmp_path, process, 3)
    os.kill(find_rank(process, rank), how)
    printed, _ = process.communicate(timeout=120)  # torchrun waits 30 s for one that is stopped
    (line,) = own_lines(printed)
    assert line.startswith("muster: spread: ")
    assert "start all ranks again" in line


def read_page(words):
    """The words of a torchrun line in docs/scaling.md."""
    page = (Path(__file__).parents[2] / "docs/scaling.md").read_text().replace("\\\n", "")
    (line,) = [line for line in page.splitlines() if line.startswith(f"torchrun {words}")]
    return shlex.split(line)[1:]


@pytest.mark.slow
def test_the_lines_of_the_page(tmp_path):
    """On one machine, and on two, which are two folders here; results are on machine 0."""
    free = socket.create_server(("localhost", 0))
    port = str(free.getsockname()[1])
    free.close()
    several = read_page("--nnodes")
    for at, value in ((several.index("HOST"), "localhost"), (several.index("29500"), port)):
        several[at] = value
    number = several.index("--node_rank") + 1
    lines = [read_page("--standalone"), several, [*several[:number], "1", *several[number + 1 :]]]
    config = CONFIG.replace("ROUNDS", "3")
    processes = []
    for i, words in enumerate(lines):
        folder = tmp_path / str(i)
        folder.mkdir()
        (folder / "my.toml").write_text(config)
        processes.append(
            subprocess.Popen(
                [*spread_cases.TORCHRUN[:3], *words], cwd=folder, text=True,
                env=spread_cases.clean_environment(),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
        )  # fmt: skip
    for process in processes:
        printed, _ = process.communicate(timeout=280)
        assert process.returncode == 0, printed
    assert same_bits(muster.load(tmp_path / "0/runs/my"), muster.load(tmp_path / "1/runs/my"))
    assert not (tmp_path / "2/runs").exists()


@pytest.mark.slow
def test_the_command_stops_at_ctrl_c_and_goes_on_to_the_same_bits(tmp_path):
    process = start(tmp_path, 12)
    wait_for_rounds(tmp_path, process, 2)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=120)
    assert "interrupted; continue with: muster run --resume runs/x" in printed
    stopped = muster.load(tmp_path / "runs/x")
    assert not stopped.complete
    resumed = start(tmp_path, 12, "--resume", "runs/x")
    printed, _ = resumed.communicate(timeout=240)
    assert resumed.returncode == 0, printed
    assert printed.count("results: ") == 1, "one rank prints"
    run = muster.load(tmp_path / "runs/x")
    settings = {"data": {"name": "digits", "clients": 8, "priority": 2}, "rounds": 12,
                "model": {"name": "mlp", "hidden": [32]}, "method": "fedalign"}  # fmt: skip
    experiment = muster.config.load(settings)
    alone = muster.run_job(experiment.federation(0), experiment.job, keep=experiment.keep)
    assert same_bits(run, alone)
    assert not (tmp_path / "runs/x-2").exists()


def test_the_command_of_the_page_resumes_in_one_process(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[2] / "docs/scaling.md").read_text()
    (line,) = set(re.findall("muster run --resume [^`]*", page))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "draw_figures", lambda *_: [])
    Path("my.toml").write_text(CONFIG.replace("ROUNDS", "4"))

    def stop(self, row):
        if row["round"] == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "__call__", stop)
        with pytest.warns(muster.MusterWarning, match="'spread' in one process"):
            assert main(["run", "my.toml"]) == INTERRUPTED
    with pytest.warns(muster.MusterWarning, match="'spread' in one process"):
        assert main(shlex.split(line)[1:]) == 0
    assert main(["run", "my.toml", "--engine", "auto", "--name", "whole"]) == 0
    assert same_bits(muster.load("runs/my"), muster.load("runs/whole"))
    assert main([*shlex.split(line)[1:], "--engine", "auto"]) == 2
    assert "give no others" in capsys.readouterr().err


def test_one_process_is_one_rank_and_says_so():
    with pytest.warns(muster.MusterWarning, match="'spread' in one process"):
        run = spread_cases_plain(engine="spread")
    assert same_bits(run, spread_cases_plain())


def spread_cases_plain(**how):
    return muster.simulate(
        nine_clients(), muster.methods.fedavg(), spread_cases.MLP, 2, spread_cases.LOCAL, **how
    )


def test_what_has_many_runs_does_not_take_spread():
    how = {"rounds": 2, "seeds": 3}
    fed, softmax, spread = nine_clients(), muster.models.Softmax(), muster.Compute("spread")
    with pytest.raises(muster.MusterError, match="'spread', and it divides one run, where a comp"):
        muster.compare(fed, [muster.methods.fedavg()], softmax, compute=spread, **how)
    with pytest.raises(muster.MusterError, match="'spread', and it divides one run, where advice"):
        muster.advise(fed, softmax, compute=spread, **how)
    table = {"data": "digits", "engine": "spread", "rounds": 2, "seeds": 1}
    with pytest.raises(muster.MusterError, match="'spread', and it divides one run, where this"):
        muster.sweep(table, {"data.priority": [2, 4]})


def test_private_runs_do_not_take_spread():
    private = muster.privacy.Gaussian(clip=1.0, epsilon=4.0, delta=1e-3)
    with pytest.raises(muster.MusterError, match="each of its processes would draw another noise"):
        spread_cases.go(muster.methods.fedavg(), privacy=private, engine="spread")


@given(
    st.integers(1, 6),
    st.lists(st.sampled_from(["float64", "int64", "float32", "uint8", "bool"]), max_size=6),
)
def test_what_is_sent_comes_back(rows, kinds):
    """Numbers of any width, in any order, empty ones too."""
    draw = torch.Generator().manual_seed(rows)
    tables = {}
    for i, kind in enumerate(kinds):
        shape = (rows, *((), (3,), (2, 2), (0,))[i % 4])
        numbers = torch.randint(0, 2, shape, generator=draw)
        tables["part", str(i)] = numbers.to(getattr(torch, kind))
    form = ranks._parse(ranks._describe(tables))
    back = ranks._unpack(ranks._pack(tables, form), form, rows)
    assert back.keys() == tables.keys()
    assert all(
        torch.equal(back[key], t) and back[key].dtype == t.dtype for key, t in tables.items()
    )


def test_a_form_of_another_type_is_refused():
    with pytest.raises(muster.MusterError, match="numbers of type storage"):
        ranks._parse('[[["models", "w"], "storage", [2], "cpu"]]')


def test_rooms_give_what_they_took():
    work = Work(
        {"w": torch.rand(3, 2)}, {"own": {"w": torch.rand(3, 2)}}, {"c": {"v": torch.rand(3)}}
    )
    full, other = WorkBuffer(3), WorkBuffer(3)
    full.put(np.arange(3), work, np.array([4, 5, 6]))
    for at in (np.array([2, 0]), np.array([1])):
        other.give(at, full.take(at))
    assert torch.equal(other.work().models["w"], work.models["w"])
    assert torch.equal(other.work().memory["own"]["w"], work.memory["own"]["w"])
    assert torch.equal(other.work().extra["c"]["v"], work.extra["c"]["v"])
    assert other.steps.tolist() == [4, 5, 6]
    mine, theirs = AppraisalBuffer(2), AppraisalBuffer(2)
    for i in range(2):
        mine.put(i, Appraisal(np.array([i + 0.5]), np.array([i * 1.0]), {"auc": np.array([0.1])}))
    theirs.give(np.array([1, 0]), mine.take(np.array([1, 0])))
    assert theirs.appraisal().loss.tolist() == [0.5, 1.5]
    assert theirs.appraisal().more["auc"].tolist() == [0.1, 0.1]


def test_digests_differ_by_any_bit():
    model = {"w": torch.zeros(3)}
    same = ranks.digest(["train", 3, np.arange(4), model])
    assert same == ranks.digest(["train", 3, np.arange(4), {"w": torch.zeros(3)}])
    assert same != ranks.digest(["train", 3, np.arange(4), {"w": torch.tensor([0.0, -0.0, 0.0])}])
    assert same != ranks.digest(["train", 3, np.arange(1, 5), model])
