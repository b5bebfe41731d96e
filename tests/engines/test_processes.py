"""Workers that die or are stopped are replaced, and the run goes on to the same bits."""

from __future__ import annotations

import os
import signal
import time
import weakref

import numpy as np
import pytest
import torch

import muster
from helpers import nine_clients, same_bits
from muster.engines import processes
from muster.engines.loop_engine import LoopEngine
from muster.parts.solvers import Work
from muster.protocol import Offer


def go(on_round=None, rounds=4):
    return muster.simulate(
        nine_clients(), muster.methods.scaffold(), muster.models.MLP((4,)), rounds,
        muster.Local(steps=3, batch_size=4), engine="loop", processes=2, on_round=on_round,
    )  # fmt: skip


@pytest.fixture
def engines(monkeypatch):
    """Every loop engine that is made, with a quick watch."""
    made = []
    real = LoopEngine.__init__

    def init(self, *args, **more):
        real(self, *args, **more)
        made.append(self)

    monkeypatch.setattr(LoopEngine, "__init__", init)
    monkeypatch.setattr(processes, "BEAT", 0.1)
    monkeypatch.setattr(processes, "DEADLINE", 1.0)
    return made


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_lost_worker_is_replaced(engines, how):
    whole = go()

    def hit(row):
        if row["round"] == 2:
            os.kill(engines[-1].workers[0].process.pid, how)

    began = time.monotonic()
    with pytest.warns(muster.MusterWarning, match="another one takes over its client"):
        run = go(hit)
    assert same_bits(whole, run)
    assert time.monotonic() - began < 60  # a hang, not a timing


def test_workers_leave_by_themselves_when_the_run_ends(monkeypatch):
    """Each sees its pipe close: nobody waits for one that has to be ended by force."""
    codes = []
    close = processes.Worker.close

    def closed(self):
        close(self)
        codes.append(self.process.exitcode)

    monkeypatch.setattr(processes.Worker, "close", closed)
    go(rounds=1)
    assert codes == [0, 0]


def test_a_worker_that_is_lost_again_and_again_ends_the_run(engines):
    def hit(row):
        os.kill(engines[-1].workers[0].process.pid, signal.SIGKILL)

    with (
        pytest.warns(muster.MusterWarning),
        pytest.raises(muster.MusterError, match=r"ended unexpectedly .*, for the 4th"),
    ):
        go(hit, rounds=9)


def test_an_untroubled_run_loses_nobody_and_leaves_nothing_behind(engines):
    run = go()
    engine = engines[-1]
    assert engine.watch is None
    assert engine.workers == []
    assert engine.lost == 0
    assert run.complete


def test_a_worker_keeps_no_state_of_clients_that_it_was_forked_with():
    """It would lie there to the end of the run, for every client of the first round."""
    memory = {"own": {"w": torch.ones(3)}}
    kept = weakref.ref(memory["own"]["w"])

    def train(solver, offer, k, own, assignment):
        return Work({}, own), np.array([len(memory), kept() is not None])

    worker = processes.Worker(train, [], memory)
    try:
        worker.send(("offer", None, Offer(0, 0, 1, {}, lr=0.1)))
        worker.send_tensors([{}])
        worker.send(("client", 0, None))
        worker.send_tensors([{"w": torch.zeros(1)}], ["own"])
        steps, parts = worker.receive()
        (_, own), names = worker.receive_tensors()
    finally:
        worker.close()
    assert (steps.tolist(), parts, names, own["w"].tolist()) == ([0, 0], 1, ["own"], [0.0])
    assert memory["own"]["w"].tolist() == [1.0, 1.0, 1.0]  # the parent's own is as it was
