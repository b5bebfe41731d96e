"""Cells by executors from outside, with two workers each: the bits of one process.

The usual run has workers of Dask in this process, behind the same addresses and messages as those
in others, which `make test-slow` has: a process of Dask takes several seconds to load.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import fragile
import muster
from blank_figures import leave_out_figures
from fragile import BASE, compare, configure, write_experiment
from helpers import same_bits
from muster.base.errors import MusterError
from muster.cli.main import main
from muster.cli.placement import open_executor
from muster.papers.reproduce import run_panels

OVER = {"local.lr": [0.1, 0.2]}
TUNE = {"local.lr": [0.01, 0.1], "seeds": [7]}
SMALL = {**BASE, "rounds": 2, "methods": ["fedavg", "fedalign"]}


def check_bits(executor, folder):
    """Compare a comparison, a sweep and a tuning by an executor with those of one process."""
    there = compare(executor=executor, folder=folder / "c")
    assert all(same_bits(a, b) for a, b in zip(compare()["fedavg"], there["fedavg"], strict=True))
    here = muster.sweep(SMALL, OVER, folder / "here", jobs=1)
    seen = []
    done = muster.sweep(SMALL, OVER, folder / "s", executor=executor, on_cell=seen.append)
    assert done.complete
    assert [p.done for p in seen] == [1, 2, 3, 4]
    assert here.frame.drop("seconds").equals(done.frame.drop("seconds"))
    for cell in ("local.lr=0.1", "local.lr=0.2"):
        a, b = (muster.load(folder / side / cell) for side in ("here", "s"))
        assert all(same_bits(x, y) for k in a for x, y in zip(a[k], b[k], strict=True))
    one = muster.tune(SMALL, TUNE, jobs=1)
    two = muster.tune(SMALL, TUNE, folder / "t", executor=executor)
    assert (one.chosen, one.frame.to_dicts()) == (two.chosen, two.frame.to_dicts())
    experiment = write_experiment(folder)
    a = run_panels.run(experiment, folder / "r", jobs=1)
    b = run_panels.run(experiment, folder / "q", executor=executor)
    assert a.frame.equals(b.frame)


@pytest.mark.slow  # as those of dask
def test_two_processes_of_concurrent_futures(tmp_path):
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        check_bits(executor, tmp_path)


@contextmanager
def cluster(processes):
    """Two workers of Dask, and the address for `--on`."""
    distributed = pytest.importorskip(
        "distributed", reason="needs Dask: pip install 'muster-fl[dask]'"
    )
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=processes, protocol="tcp://",
        dashboard_address=None, silence_logs=50,
    ) as found:  # fmt: skip
        yield found.scheduler_address.replace("tcp://", "dask://")


def test_two_workers_of_dask(tmp_path, monkeypatch, capsys):
    """One that is killed: in `make test-slow`, and one of ours in test_workers.py."""
    experiment = write_experiment(tmp_path)
    leave_out_figures(monkeypatch)
    monkeypatch.setattr("muster.cli.reproduce.find_experiment", lambda id: experiment)
    with cluster(processes=False) as address:
        with open_executor(address) as executor:
            check_bits(executor, tmp_path)
        out = str(tmp_path / "o")
        line = ["reproduce", "small", "--panel", "two", "--out", out, "--on", address]
        assert main(line) == 0
    said = capsys.readouterr().out
    assert "4 of 4" in said
    assert "results:" in said


@pytest.mark.slow
def test_two_processes_of_dask_one_of_which_is_killed(tmp_path):
    with cluster(processes=True) as address, open_executor(address) as executor:
        check_bits(executor, tmp_path)
        record = tmp_path / "killed"
        config = configure(record)
        done = muster.sweep(config, OVER, tmp_path / "k", executor=executor)
    assert len(record.read_text().split()) == 1
    here = muster.sweep(configure(record, 0), OVER, jobs=1)
    assert here.frame.drop("seconds").equals(done.frame.drop("seconds"))


def test_two_workers_of_ray_one_of_which_is_killed(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="needs Ray: pip install 'muster-fl[ray]'")
    monkeypatch.setenv("PYTHONPATH", str(Path(fragile.__file__).parent))  # its workers find it
    with open_executor("ray") as executor:
        check_bits(executor, tmp_path)
        record = tmp_path / "killed"
        done = muster.sweep(configure(record), OVER, tmp_path / "k", executor=executor)
    assert len(record.read_text().split()) == 1
    here = muster.sweep(configure(record, 0), OVER, jobs=1)
    assert here.frame.drop("seconds").equals(done.frame.drop("seconds"))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nosuch", "--on: 'nosuch'; allowed: processes, dask://HOST:PORT or ray"),
        ("dask://host", "--on: 'dask://host'; allowed"),
        ("dask://a b:1", "--on: 'dask://a b:1'; allowed"),
    ],
)
def test_addresses_that_are_none(address, said):
    with pytest.raises(MusterError) as stop, open_executor(address):
        pass
    assert said in str(stop.value)


def test_processes_need_no_executor():
    for address in (None, "processes"):
        with open_executor(address) as executor:
            assert executor is None


def test_a_scheduler_that_does_not_answer_is_one_line(monkeypatch):
    pytest.importorskip("distributed", reason="needs Dask: pip install 'muster-fl[dask]'")
    monkeypatch.setattr("muster.cli.placement.TIMEOUT", "1s")
    with (
        pytest.raises(MusterError, match=r"no Dask scheduler answers at 127\.0\.0\.1:9"),
        open_executor("dask://127.0.0.1:9"),
    ):
        pass


def test_an_extra_that_is_missing_is_one_line(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(
            MusterError, match=r"ray is not installed; .* pip install 'muster-fl\[ray\]'"
        ),
        open_executor("ray"),
    ):
        pass
