"""Work side by side: results, mistakes, what cannot be sent, and processes that die."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import torch

import muster
from fragile import BASE, compare, configure, digits
from helpers import same_bits
from muster.base.errors import MusterError
from muster.study import workers
from muster.study.workers import WorkerPool, count_workers, pack, run_packed

M = muster.methods.Method


def test_one_job_is_this_process():
    with WorkerPool(1) as pool:
        assert list(pool.each(math.sqrt, [4.0, 9.0])) == [(4.0, 2.0), (9.0, 3.0)]
    assert count_workers(3, 100) == 3
    assert count_workers(3, 2) == 2
    assert count_workers(3, 0) == 1
    with pytest.raises(MusterError, match="jobs: 0"):
        count_workers(0, 4)


def test_a_process_that_is_killed_in_the_middle_of_a_run_is_run_again(tmp_path):
    """SIGKILL in the third round; the next process goes on from the checkpoint of the second."""
    record = tmp_path / "killed"
    done = muster.sweep(configure(record), {"local.lr": [0.1]}, tmp_path / "s", jobs=2)
    assert len(record.read_text().split()) == 1
    here = muster.sweep(configure(record, 0), {"local.lr": [0.1]}, jobs=1)
    assert done.complete
    assert done.frame.drop("seconds").equals(here.frame.drop("seconds"))
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_a_unit_that_kills_every_process_is_given_up_in_one_line(tmp_path):
    config = {**configure(tmp_path / "killed", 9), "seeds": [4]}
    with pytest.raises(MusterError) as stop:
        muster.sweep(config, {"local.lr": [0.1, 0.2]}, tmp_path / "s", jobs=2)
    assert "seed 4: given up, as 3 processes ended while they ran it" in str(stop.value)
    assert "\n" not in str(stop.value)
    assert not multiprocessing.active_children()


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="a system with signals runs it")
def test_ctrl_c_does_not_reach_processes_that_start():
    with WorkerPool(2) as pool:
        for process in multiprocessing.active_children():
            os.kill(process.pid, signal.SIGINT)
        assert sorted(pool.each(math.sqrt, [4.0, 9.0])) == [(4.0, 2.0), (9.0, 3.0)]


def test_idle_processes_are_replaced_when_they_die_and_ended_when_too_many():
    with WorkerPool(2) as pool:
        assert list(pool.each(math.sqrt, [4.0])) == [(4.0, 2.0)]
        for process in multiprocessing.active_children():
            process.kill()
            process.join()
        assert sorted(pool.each(math.sqrt, [4.0, 9.0], at_once=1)) == [(4.0, 2.0), (9.0, 3.0)]
        assert len(pool.executor.idle) + len(pool.executor.busy) == 1
    assert not multiprocessing.active_children()


def test_a_pool_that_ends_leaves_processes_that_others_started_meanwhile():
    with WorkerPool(2) as first:
        with WorkerPool(2), WorkerPool(2):
            pass
        assert len(multiprocessing.active_children()) == 2
        assert sorted(first.each(math.sqrt, [4.0, 9.0])) == [(4.0, 2.0), (9.0, 3.0)]
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_several_processes_their_mistakes_and_their_end():
    with WorkerPool(2) as pool:
        assert sorted(pool.each(math.sqrt, [4.0, 9.0, 16.0])) == [(4, 2), (9, 3), (16, 4)]
        with pytest.raises(ValueError, match="math domain"):
            list(pool.each(math.sqrt, [-1.0]))
    with (
        pytest.raises(MusterError, match="a process ended before its work was done"),
        WorkerPool(2) as pool,
    ):
        list(pool.each(os._exit, [3]))
    assert not multiprocessing.active_children()


class Broken(ThreadPoolExecutor):
    """An executor whose workers end before their work is done."""

    def submit(self, work, /, *args, **named):
        future = Future()
        future.set_exception(OSError("no route\nto host"))
        return future


def test_any_executor_runs_tasks_and_its_failures_are_one_line():
    with ThreadPoolExecutor(2) as threads, WorkerPool(executor=threads) as pool:
        assert sorted(pool.each(math.sqrt, [4.0, 9.0])) == [(4, 2), (9, 3)]
        with pytest.raises(ValueError, match="math domain"):
            list(pool.each(math.sqrt, [-1.0]))
    with pytest.raises(MusterError, match=r"takes no more work \(cannot schedule new futures"):
        list(pool.each(math.sqrt, [4.0]))
    with pytest.raises(MusterError) as stop:
        list(WorkerPool(executor=Broken(1)).each(math.sqrt, [4.0]))
    assert str(stop.value) == (
        "executor: 4.0: its worker ended before the work was done (OSError: no route)"
    )
    with pytest.raises(MusterError, match="executor: int; give a concurrent"):
        muster.sweep(BASE, {"local.lr": [0.1]}, executor=3)
    with ThreadPoolExecutor(1) as threads, pytest.raises(MusterError, match="jobs: given together"):
        muster.sweep(BASE, {"local.lr": [0.1]}, jobs=2, executor=threads)


def test_tasks_wait_for_their_turn_and_none_stands_for_later():
    def tasks():
        yield 4.0
        yield None
        yield 9.0

    with ThreadPoolExecutor(1) as threads, WorkerPool(executor=threads) as pool:
        pool.outside = False  # as with processes of ours: at most `jobs` at once
        assert [value for _, value in pool.each(math.sqrt, tasks(), 1)] == [2.0, 3.0]


def test_a_task_leaves_torch_with_its_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert run_packed(pack("work", get_threads), pack("task", 0)) == ("done", 1)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_a_forked_worker_is_refused_before_it_can_hang(monkeypatch):
    monkeypatch.setattr(workers, "LOADED_IN", os.getpid() + 1)
    with workers.ALONE:  # as a thread of the parent may have held it
        kind, error = run_packed(pack("work", math.sqrt), pack("task", 4.0))
    assert kind == "error"
    assert "mp_context=multiprocessing.get_context('spawn')" in str(error)


def get_threads(_):
    return torch.get_num_threads()


def test_seeds_of_a_comparison_by_an_executor_have_the_same_bits(tmp_path):
    here = compare()
    with ThreadPoolExecutor(2) as threads:
        there = compare(executor=threads, folder=tmp_path)
        alone = compare(data=digits(0), executor=threads)
    assert there.seeds == (1, 4)
    assert all(same_bits(a, b) for a, b in zip(here["fedavg"], there["fedavg"], strict=True))
    same = compare(data=digits(0))
    assert all(same_bits(a, b) for a, b in zip(same["fedavg"], alone["fedavg"], strict=True))
    assert muster.load(tmp_path).complete


def test_what_cannot_be_sent_is_one_line_before_anything_runs(tmp_path):
    class Own(torch.nn.Linear):
        pass

    class Rule(type(muster.methods.fedavg().join)):
        pass

    with ThreadPoolExecutor(1) as threads:
        for given, said in (
            ({"data": lambda seed: digits(seed)}, "data: cannot be sent to another process"),
            ({"model": Own(64, 10)}, "model: cannot be sent to another process"),
            (
                {"methods": {"a": M("a", join=Rule())}},
                "method a: cannot",
            ),
            ({"on_round": print}, "on_round: cannot be called from other processes"),
            ({"on_start": print}, "on_start: cannot be called from other processes"),
            ({"data": partial(digits, clients=0)}, "clients: 0"),
            ({"data": str}, "data: str; give a Federation"),
        ):
            settings = {"data": digits, "methods": [muster.methods.fedavg()], "seeds": 2,
                        "model": muster.models.Softmax(), "rounds": 2} | given  # fmt: skip
            with pytest.raises(MusterError) as stop:
                muster.compare(**settings, executor=threads, folder=tmp_path / "c")
            assert said in str(stop.value)
            assert "\n" not in str(stop.value)
            assert not (tmp_path / "c").exists()


def test_a_module_that_a_worker_lacks_is_one_line():
    kind, error = run_packed(b"cnosuchmodule\nwork\n.", pack("task", 0))
    assert kind == "error"
    assert "a worker cannot load the work (No module named 'nosuchmodule')" in str(error)


@pytest.mark.parametrize("where", ["executor=pool", "jobs=2"])
def test_a_script_from_stdin_names_the_cause(where, tmp_path):
    code = f"""
import muster
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
small = {{"data": {{"name": "digits", "clients": 4}}, "rounds": 2, "seeds": 2}}
with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
    muster.sweep(small, {{"data.priority": [1]}}, {str(tmp_path / "s")!r}, {where})
"""
    words = [sys.executable, "-P", "-"]
    done = subprocess.run(words, input=code, capture_output=True, text=True, timeout=300)
    last = done.stderr.strip().splitlines()[-1]
    assert "it reads the program again, and this one (`__main__`) is no file" in last


def test_an_unguarded_script_gets_the_line_to_add(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""
import muster
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
small = {"data": {"name": "digits", "clients": 4}, "rounds": 2, "seeds": 2}
with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
    muster.sweep(small, {"data.priority": [1]}, "s", executor=pool)
""")
    words = [sys.executable, "-P", str(script)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert "if this is a script, call it below `if __name__ == '__main__':`" in last


def test_functions_of_the_program_itself_name_the_cause():
    lost = b"c__main__\nno_such_function\n."
    kind, error = run_packed(lost, pickle.dumps(1))
    assert kind == "error"
    assert "define it in a module" in str(error)


def test_a_part_that_is_not_found_is_one_line_before_anything_runs(tmp_path, monkeypatch):
    config = {**BASE, "methods": [{"name": "fedavg", "join": {"kind": "nosuchmodule:Rule"}}]}
    with pytest.raises(MusterError, match="nosuchmodule"):
        muster.sweep(config, {"local.lr": [0.1]}, tmp_path / "s", jobs=2)
    assert not Path(tmp_path / "s" / "config.toml").exists()


def test_as_many_runs_at_once_as_fit_into_memory(monkeypatch):
    from muster.study import units

    monkeypatch.setattr(units, "free_memory", lambda: 10e9)
    assert units.fit_memory(4, 2e9) == 4
    with pytest.warns(muster.MusterWarning, match="4 runs at once take 16.0 GB, and 10.0 GB are"):
        assert units.fit_memory(4, 4e9) == 2
    with pytest.warns(muster.MusterWarning, match="1 at once"):
        assert units.fit_memory(2, 40e9) == 1
    assert units.fit_memory(1, 40e9) == 1
