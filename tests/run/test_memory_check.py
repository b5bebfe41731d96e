"""A run that cannot fit is refused in one line, before anything is allocated."""

from __future__ import annotations

import pytest

import muster
from helpers import nine_clients
from muster.base import memory
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
