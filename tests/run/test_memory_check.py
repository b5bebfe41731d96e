"""A run that cannot fit is refused in one line, before anything is allocated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import muster
from helpers import nine_clients
from muster.base import memory
from muster.engines.modules import measure_saved
from muster.federation import RaggedRows
from muster.run import memory_check

M = muster.methods
ARGS = {"model": muster.models.MLP((4,)), "rounds": 1}


def test_what_cannot_fit_says_what_it_needs_and_what_there_is(monkeypatch):
    fed = nine_clients()
    muster.simulate(fed, M.scaffold(), **ARGS)
    monkeypatch.setattr(memory_check, "free_memory", lambda device: 1000.0)
    for method in (M.fedavg(), M.scaffold(m=4), M.ditto()):
        with pytest.raises(muster.MusterError, match=r"[94] replies of .* are free; ask"):
            muster.simulate(fed, method, **ARGS)
    small = muster.simulate(fed, M.fedavg(muster.parts.Sample(1)), **ARGS)
    assert small.complete


def test_disk_for_what_clients_remember(monkeypatch):
    fed = nine_clients()
    monkeypatch.setattr(memory_check, "MAPPED_FROM", 10)
    muster.simulate(fed, M.ditto(m=1), **ARGS)
    usage = memory_check.shutil.disk_usage("/")._replace(free=100)
    monkeypatch.setattr(memory_check.shutil, "disk_usage", lambda place: usage)
    with pytest.raises(muster.MusterError, match=r"states of 9 clients .* on disk, and 100 bytes"):
        muster.simulate(fed, M.ditto(m=1), **ARGS)
    muster.simulate(fed, M.fedavg(), **ARGS)


def test_an_invitation_that_does_not_say_is_given_the_benefit_of_the_doubt(monkeypatch):
    class Mine:
        def __call__(self, population, pool, seed, round, losses):
            return muster.protocol.Roster.of(population, pool)

    monkeypatch.setattr(memory_check, "free_memory", lambda device: 1000.0)
    assert muster.simulate(nine_clients(), M.fedavg(Mine()), **ARGS).complete


def forecast(clients, rows, model, method=None, optimizer=None, shape=(20,), **compute):
    x = torch.zeros(clients * rows, *shape)
    data = RaggedRows(x, torch.arange(len(x)) % 2, np.arange(clients + 1) * rows)
    fed = muster.Federation.from_rows(data, classes=2)
    local = muster.Local(steps=1, **({} if optimizer is None else {"optimizer": optimizer}))
    job = muster.Job(method or M.fedavg(), model, local, rounds=3)
    chosen = muster.Compute(processes=2, **compute)
    return memory_check.forecast_memory(fed, job, job.check(fed), chosen)


def test_the_forecast_counts_each_part_of_a_run(monkeypatch):
    small, linear = forecast(50, 40, muster.models.MLP((30,))), muster.models.Softmax()
    assert small.rows == 2000 * (20 * 4 + 8)
    model = 4 * (20 * 30 + 30 + 30 * 2 + 2)
    assert small.held == 50 * model
    assert small.models == (memory_check.MODELS + 2) * model
    assert small.plans == memory_check.PLANNED * 2000
    assert small.run == sum(
        (small.rows, small.models, small.training, small.clients,
         max(small.held + small.plans, small.measuring))
    )  # fmt: skip
    assert small.total == small.run + memory_check.PROCESS
    # More clients, wider layers and more bytes a number need more.
    more = forecast(100, 40, muster.models.MLP((30,)))
    assert (more.rows, more.held) == (2 * small.rows, 2 * small.held)
    wide = forecast(50, 40, muster.models.MLP((300,)))
    assert wide.training > 5 * small.training
    assert wide.measuring > 2 * small.measuring
    double = forecast(50, 40, muster.models.MLP((30,)), dtype="float64")
    assert double.held == 2 * small.held
    # What clients remember: those that train, as the state they begin and end a round with.
    kept = forecast(50, 40, linear, M.scaffold(m=5))
    weights = 4 * (20 * 2 + 2)
    assert kept.held == 5 * 3 * weights + 5 * weights + 15 * weights
    # Replies that are only averaged do not all stay.
    monkeypatch.setattr(memory_check, "REPLIES", 10 * model)
    assert forecast(50, 40, muster.models.MLP((30,))).held == 10 * model
    # Each process of the loop has its own.
    loop = forecast(50, 40, muster.models.MLP((30,)), engine="loop")
    assert loop.training > 2 * memory_check.WORKER


def test_the_forecast_counts_what_clients_remember():
    linear, weights = muster.models.Softmax(), 4 * (20 * 2 + 2)
    # Where all train in every round: the table, the last round's rows, as clients are given them,
    # and in their replies.
    everyone = forecast(50, 40, linear, M.scaffold())
    assert everyone.held == 50 * (3 * weights + 3 * weights)
    # Their own models: the states, and as many copies as are measured at once.
    mine, plain = forecast(50, 40, linear, M.ditto(m=5)), forecast(50, 40, linear)
    assert mine.measuring == plain.measuring + (15 + 50) * weights
    # An optimizer's state is held by those that train, whether it starts fresh or is kept.
    fresh = forecast(50, 40, linear, optimizer=muster.optimizers.sgd(0.9), engine="loop")
    kept = muster.optimizers.sgd(0.9, keep=True)
    plain = forecast(50, 40, linear, engine="loop")
    assert fresh.training == plain.training + 2 * weights
    assert forecast(50, 40, linear, optimizer=kept, engine="loop").training > fresh.training


def test_what_a_gradient_keeps_is_what_autograd_saves():
    """Not every layer's output."""
    hidden = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 2))
    rows = torch.randn(4, 20)
    assert measure_saved(hidden, rows, torch.float32) == 4 * 30
    assert measure_saved(hidden, rows, torch.float64) == 8 * 30
    pooled = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(2), nn.Flatten())
    assert measure_saved(pooled, torch.randn(4, 1, 4, 4), torch.float32) == 4 * 32 + 8 * 8
    # For images that is much less than an output and a gradient of each of its layers.
    cnn, image = muster.models.CNN(), {"shape": (3, 40, 40), "engine": "loop"}
    more = forecast(4, 16, cnn, **image).training - forecast(4, 8, cnn, **image).training
    outputs = 3 * (32 * 1600 + 64 * 400 + 512 + 128) + 32 * 400 + 2 * 64 * 100 + 2
    assert 0 < more < 0.7 * 2 * memory_check.SLACK * 8 * 4 * (3 * 1600 + 2 * outputs)


@pytest.mark.slow
def test_the_forecast_is_within_a_fifth_of_what_runs_need():
    """Ends with 0 only if that is so; each run in a process of its own."""
    command = Path(__file__).parents[2] / "benchmarks" / "memory.py"
    runs = ["W1", "small", "double", "scaffold", "loop", "mapped", "bytes", "momentum"]
    done = subprocess.run(
        [sys.executable, command, *runs], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_free_memory_is_a_number_of_bytes():
    assert 1e6 < memory.free_memory() < 1e14


def test_a_model_or_data_that_cannot_fit_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 1e4)
    fed = nine_clients()
    with pytest.raises(muster.MusterError, match=r"layers of \(90, 90, .*need 3.* kB, and 10.0 kB"):
        muster.simulate(fed, M.fedavg(), muster.models.MLP((90, 90)), 1)
    with pytest.raises(muster.MusterError, match=r"500 rows or more need 120\.0 kB"):
        muster.data.synth(priority=5, others=5)
    assert muster.data.synth(priority=2, others=2, max_rows=10).n == 4
