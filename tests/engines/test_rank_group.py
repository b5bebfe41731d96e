"""The numbers that torchrun gives, signals, and heartbeats."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch.distributed as dist

import muster
from muster.engines import rank_group
from muster.engines.compute import Compute, cores
from muster.engines.rank_group import RankNumbers, RankWatch, StopSignals, read_numbers

TWO = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


def test_numbers_are_read_from_the_environment():
    assert read_numbers({}) == RankNumbers()
    assert read_numbers(TWO) == RankNumbers(rank=1, size=2)
    more = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "3", "WORLD_SIZE": "8"}
    assert read_numbers(TWO | more) == RankNumbers(1, 8, 1, 2, 3)


@pytest.mark.parametrize(
    "wrong",
    [{"RANK": "2"}, {"RANK": "one"}, {"WORLD_SIZE": "0"}, {"WORLD_SIZE": "-1"},
     {"LOCAL_RANK": "1"}, {"WORLD_SIZE": "9" * 30}],
)  # fmt: skip
def test_numbers_that_cannot_be_are_refused(wrong):
    with pytest.raises(muster.MusterError, match="start muster by torchrun"):
        read_numbers(TWO | wrong)


def test_processes_of_one_machine_share_its_cores(monkeypatch):
    for name, value in {**TWO, "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert Compute("spread").workers() == max(1, cores() // 2)
    assert Compute("spread", processes=3).workers() == 3
    assert Compute().workers() == cores()


def test_several_processes_that_would_each_run_everything_are_refused(monkeypatch):
    from muster.cli.run import check_ranks

    assert check_ranks(Compute()) == 0
    for name, value in TWO.items():
        monkeypatch.setenv(name, value)
    assert check_ranks(Compute("spread")) == 1
    with pytest.raises(muster.MusterError, match=r"torchrun started 2 processes.*--engine spread"):
        check_ranks(Compute())
    with pytest.raises(muster.MusterError, match="run everything; run muster without torchrun"):
        check_ranks(Compute(), resumed=True)


def test_a_signal_is_noted_and_raised_only_in_a_ranks_own_tasks():
    signals, before = StopSignals(), signal.getsignal(signal.SIGTERM)
    signals.begin()
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received
        signals.received = False
        signals.may_raise = True
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # the same Ctrl-C, from torchrun
        signals._first -= rank_group.AGAIN + 1
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signals.end()
    assert signal.getsignal(signal.SIGTERM) is before


class Watch(RankWatch):
    """A watch without a thread."""

    def __init__(self, store, size):
        self.dead, self._store, self._rank, self._size = "", store, 0, size


def test_a_rank_without_heartbeats_is_named(monkeypatch):
    store = dist.HashStore()
    looks = []

    def sleep(seconds):
        looks.append(seconds)
        for r in (1, 2):
            if r == 1 or len(looks) < 5:
                store.set(f"beat/{r}", str(len(looks)))

    monkeypatch.setattr(time, "sleep", sleep)
    watch = Watch(store, 3)
    for r in (1, 2):
        store.set(f"beat/{r}", "0")
    watch._look()
    assert watch.dead == "rank 2 of 3 sends no heartbeat"
    assert len(looks) * rank_group.BEAT >= rank_group.DEADLINE


def test_a_store_that_is_gone_is_noticed(monkeypatch):
    class Gone:
        def set(self, name, value):
            raise RuntimeError("Broken pipe")

    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    watch = Watch(Gone(), 2)
    watch._look()
    assert watch.dead == rank_group.NO_STORE
