"""Compute: how work is run, as a whole or by keywords, checked in one place; and threads: the same
bits for any number of them, every task done once, and nothing left changed."""

from __future__ import annotations

import dataclasses
import math
import threading
import time

import numpy as np
import pytest
import torch
from torch import nn

import muster
import reference
from helpers import federation, same_bits
from muster.engines import stacked_engine
from muster.engines.compute import ComputeOptions, ThreadPool, cores, one_thread, quota

BAD = {
    "engine": ({"engine": "stackd"}, "unknown engine 'stackd'; did you mean 'stacked'"),
    "dtype": ({"dtype": "float23"}, "unknown dtype 'float23'; did you mean 'float"),
    "device": ({"device": "cdua"}, "unknown device 'cdua'; did you mean 'cuda'"),
    "device number": ({"device": "cuda:one"}, "device: 'cuda:one'; allowed: cpu, cuda, cuda:0"),
    "processes": ({"processes": 0}, "processes: 0; allowed: whole numbers from 1"),
    "half a process": ({"processes": 1.5}, "processes: 1.5; allowed: whole numbers from 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_options_are_refused_in_one_line(case):
    given, message = BAD[case]
    with pytest.raises(muster.MusterError, match=message) as caught:
        muster.Compute(**given)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a machine without CUDA would run this")
def test_a_device_that_is_not_here_is_refused_when_it_is_needed():
    """A configuration may name a device of another machine."""
    elsewhere = muster.Compute(device="cuda")
    with pytest.raises(muster.MusterError, match="no CUDA device is present; use device='cpu'"):
        elsewhere.place()


def test_as_a_whole_or_by_keywords():
    fed = federation(reference.problem(0)[0])
    args = (fed, muster.methods.fedavg(), muster.models.Softmax(), 2)
    whole = muster.simulate(*args, compute=muster.Compute("loop", dtype="float64", processes=1))
    words = muster.simulate(*args, engine="loop", dtype="float64", processes=np.int64(1))
    assert whole.engine == words.engine == "loop"
    assert whole.weights["1.weight"].dtype == np.float64
    assert same_bits(whole, words)
    for call in (muster.solo, muster.with_solo):
        a = call(fed, muster.models.Softmax(), 2, compute=muster.Compute(dtype="float64"))
        b = call(fed, muster.models.Softmax(), 2, dtype="float64")
        first, second = (
            r.requirement if isinstance(r, muster.Federation) else r.train.loss for r in (a, b)
        )
        assert np.array_equal(first, second)


def test_not_both_and_nothing_unknown():
    fed = federation(reference.problem(0)[0])
    args = (fed, muster.methods.fedavg(), muster.models.Softmax(), 1)
    with pytest.raises(muster.MusterError, match="compute: given together with dtype; give one"):
        muster.simulate(*args, compute=muster.Compute(), dtype="float64")
    with pytest.raises(muster.MusterError, match="compute: str; give a"):
        muster.simulate(*args, compute="loop")
    with pytest.raises(TypeError, match="unexpected keyword argument 'enginee'"):
        muster.simulate(*args, enginee="loop")


def test_the_keywords_are_the_fields():
    assert set(ComputeOptions.__annotations__) == {
        f.name for f in dataclasses.fields(muster.Compute)
    }


M = muster.methods


@pytest.fixture(autouse=True)
def threads_put_back():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


# --- the same bits


def clients_of(sizes, width):
    draw = np.random.default_rng(0)

    def rows(n):
        return draw.normal(size=(n, width)).astype(np.float32), draw.integers(0, 10, n)

    return federation([rows(n) for n in sizes], [0, 1], test=[rows(9) for _ in sizes])


class Scribbler(nn.Module):
    """Keeps its hidden values on itself between two lines of its forward pass."""

    def __init__(self, width):
        super().__init__()
        self.inner, self.outer = nn.Linear(width, 16), nn.Linear(16, 10)

    def forward(self, x):
        self.hidden = torch.tanh(self.inner(x))
        time.sleep(0.0005)  # long enough for another thread to come in between
        return self.outer(self.hidden)


def seeded(make):
    torch.manual_seed(0)
    return make()


def sizes(times):
    return [times * n for n in (30, 11, 52, 7, 44, 23, 35, 18)]


# name: (sizes of clients, width of rows, batch size, model, method)
CASES = {
    "softmax, small enough to stay on one thread": (
        sizes(4), 200, 32, lambda: nn.Sequential(nn.Linear(200, 10)), M.fedalign(0.5, warmup=0)),
    "softmax, compiled": (
        sizes(16), 784, 32, lambda: nn.Sequential(nn.Linear(784, 10)), M.fedprox(0.3)),
    "mlp, fused": (
        sizes(4), 300, 32,
        lambda: nn.Sequential(nn.Linear(300, 400), nn.ReLU(), nn.Linear(400, 10)), M.scaffold()),
    "layer norm and tanh, by autograd": (
        sizes(40), 60, 512,
        lambda: nn.Sequential(
            nn.Linear(60, 100), nn.LayerNorm(100), nn.Tanh(), nn.Linear(100, 10)), M.ditto()),
    "a module of one's own, measured in many chunks": (
        sizes(4), 8000, 32, lambda: Scribbler(8000), M.fedavg()),
}  # fmt: skip


def run_of(case, rounds=2, **how):
    rows, width, batch, model, method = CASES[case]
    local = muster.Local(epochs=1, batch_size=batch, lr=0.1)
    return muster.simulate(clients_of(rows, width), method, seeded(model), rounds, local, **how)


@pytest.mark.parametrize("case", CASES)
def test_same_bits_for_any_number_of_threads(case):
    """Of torch's and of muster's own: weights, and every number of every table but the time."""
    runs = []
    for threads, processes in ((1, 1), (2, 1), (4, 2), (1, 3)):
        torch.set_num_threads(threads)
        runs.append(run_of(case, processes=processes))
        assert torch.get_num_threads() == threads, "the user's setting is left as it was"
    first = runs[0]
    assert first.rounds["loss"].is_finite().all()
    for run in runs[1:]:
        assert same_bits(first, run)
        assert first.final.equals(run.final)


def test_the_compiled_and_the_threaded_paths_are_really_taken(monkeypatch):
    """Otherwise the test above would show nothing: portions and blocks go to several threads."""
    seats = {}
    real = ThreadPool.share

    def share(self, tasks, work):
        def seen(seat, numbers):
            name = work.__name__
            seats.setdefault(name, set()).add(seat)
            work(seat, numbers)

        real(self, tasks, seen)

    monkeypatch.setattr(ThreadPool, "share", share)
    for case, kinds in zip(CASES, ((), ("walk",), ("take",), ("take",), ("work",)), strict=True):
        seats.clear()
        run_of(case, rounds=2, processes=3)
        for kind in kinds:
            assert len(seats[kind]) > 1, (case, kind)
        if not kinds:
            assert all(s == {0} for s in seats.values()), "a small round is left to one thread"


def test_solo_models_and_each_clients_own_do_not_depend_on_threads():
    rows, width, _, model, _ = CASES["mlp, fused"]
    fed = clients_of(rows, width)
    local = muster.Local(steps=20, batch_size=32, lr=0.1)
    found = []
    for threads, processes in ((1, 1), (2, 2), (4, 3)):
        torch.set_num_threads(threads)
        for engine in ("stacked", "loop"):
            own = muster.solo(fed, seeded(model), 1, local, engine=engine, processes=processes)
            found.append((engine, own.train.loss, own.train.accuracy, own.test.loss))
    for engine, *values in found[2:]:
        expected = next(f[1:] for f in found if f[0] == engine)
        for a, b in zip(values, expected, strict=True):
            assert np.array_equal(a, b)


@pytest.mark.parametrize("case", [*CASES][:3])
def test_resumed_with_other_threads_to_the_same_bits(case, tmp_path):
    class Stop(Exception):
        pass

    def stop(row):
        if row["round"] == 3:
            raise Stop

    torch.set_num_threads(1)
    whole = run_of(case, rounds=5, processes=1)
    with pytest.raises(Stop):
        run_of(case, rounds=5, processes=2, checkpoint=tmp_path, checkpoint_every=1, on_round=stop)
    torch.set_num_threads(2)
    resumed = run_of(case, rounds=5, processes=3, checkpoint=tmp_path, resume=True)
    assert same_bits(whole, resumed)


def test_the_cut_into_portions_does_not_ask_how_many_threads_there_are(monkeypatch):
    """Another cut may give other bits; so the rule must not see the number of threads."""
    cuts = []
    real = stacked_engine.cut_portions

    def spy(group, model):
        portions = real(group, model)
        cuts.append([p.clients.tolist() for p in portions])
        return portions

    monkeypatch.setattr(stacked_engine, "cut_portions", spy)
    for processes in (1, 2, 7):
        run_of("mlp, fused", rounds=1, processes=processes)
    assert cuts[0] == cuts[1] == cuts[2]
    assert len(cuts[0]) > 1


# --- the pool


@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_task_is_done_once(size):
    pool, done = ThreadPool(size), []

    def work(seat, numbers):
        assert torch.get_num_threads() == 1
        for i in numbers:
            time.sleep(0.001)
            done.append((i, seat))

    torch.set_num_threads(2)
    pool.share(40, work)
    assert sorted(i for i, _ in done) == list(range(40))
    assert {s for _, s in done} <= set(range(size))
    assert size == 1 or len({s for _, s in done}) > 1
    assert torch.get_num_threads() == 2
    pool.close()


def test_work_may_share_out_further_work():
    """From inside a helper too, with no helper left: nobody waits for one that has not begun."""
    pool, done = ThreadPool(2), []

    def outer(seat, numbers):
        for i in numbers:
            time.sleep(0.002)

            def inner(_, parts, i=i):
                for j in parts:
                    time.sleep(0.001)
                    done.append((i, j))

            pool.share(3, inner)

    pool.share(6, outer)
    assert sorted(done) == [(i, j) for i in range(6) for j in range(3)]
    pool.close()


@pytest.mark.parametrize("where", [0, 1])
def test_an_error_in_any_thread_ends_the_work_and_is_raised(where):
    pool, done = ThreadPool(2), []
    both = threading.Barrier(2)

    def work(seat, numbers):
        both.wait(10)
        for i in numbers:
            if seat == where:
                raise ArithmeticError(f"seat {seat}")
            time.sleep(0.001)
            done.append(i)

    with pytest.raises(ArithmeticError, match=f"seat {where}"):
        pool.share(2000, work)
    assert len(done) < 1999, "the other thread stopped early"
    assert torch.get_num_threads() >= 1
    pool.close()


def test_helpers_end_with_the_engine():
    def ours():
        return [t for t in threading.enumerate() if t.name.startswith("muster")]

    before = len(ours())
    run_of("mlp, fused", rounds=1, processes=3)
    assert len(ours()) == before


def test_torch_gets_its_threads_back_after_an_error():
    def fails():
        with one_thread():
            assert torch.get_num_threads() == 1
            raise KeyError

    torch.set_num_threads(3)
    with pytest.raises(KeyError):
        fails()
    assert torch.get_num_threads() == 3


# --- how many cores

QUOTAS = {
    "none": ({"proc/self/cgroup": "0::/\n"}, math.inf),
    "no control groups": ({}, math.inf),
    "v2, in a container": (
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
    "v2, unlimited": (
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, math.inf),
    "v2, by a group above": (
        {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
         "sys/fs/cgroup/a/cpu.max": "50000 100000\n"}, 0.5),
    "v1": (
        {"proc/self/cgroup": "3:memory:/x\n2:cpu,cpuacct:/x\n",
         "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "300000\n",
         "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n"}, 3.0),
    "v1, the path is that of the machine outside": (
        {"proc/self/cgroup": "2:cpu:/docker/abc\n",
         "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n",
         "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 2.0),
    "v1, unlimited": (
        {"proc/self/cgroup": "2:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
         "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
}  # fmt: skip


@pytest.mark.parametrize("case", QUOTAS)
def test_a_cpu_quota_is_read(case, tmp_path):
    files, expected = QUOTAS[case]
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert quota(tmp_path) == expected


@pytest.mark.parametrize(("allowed", "share", "expected"),
                         [(8, math.inf, 8), (8, 2.5, 3), (2, 16.0, 2), (4, 0.3, 1)])  # fmt: skip
def test_as_many_cores_as_affinity_and_quota_allow(monkeypatch, allowed, share, expected):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(allowed)), raising=False)
    monkeypatch.setattr("muster.engines.compute.quota", lambda: share)
    assert cores() == expected
    assert muster.Compute().workers() == expected
    assert muster.Compute(processes=6).workers() == 6


def test_the_loop_engine_takes_as_many_processes():
    fed = federation(reference.problem(0)[0])
    engine = muster.engines.LoopEngine(
        nn.Linear(5, 4), fed, muster.Local(steps=1), muster.Compute()
    )
    assert engine.processes == cores()


def test_a_module_that_keeps_what_it_computed_can_be_trained_and_then_measured():
    """A tensor with a history cannot be copied: threads get copies of the user's own module."""
    fed = clients_of(sizes(20), 2000)
    method = M.fedavg(muster.parts.Sample(1))  # one client trains in this very process
    how = {"rounds": 2, "evaluate_every": 0, "processes": 2}
    run = muster.simulate(fed, method, seeded(lambda: Scribbler(2000)), **how)
    assert run.final["train_loss"].is_finite().all()
