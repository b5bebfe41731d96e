"""Worker processes: forked, so that they see data and module without copying either.

A worker may die (out of memory) or be stopped and never go on. A stopped one is noticed because
it sends no heartbeat, and is ended; one that ended is replaced, and its client trained again
by the new one, to the same bits.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from ..base.arrays import Int64
from ..base.errors import MusterError
from ..base.lazy import torch
from ..base.params import Params, State
from ..parts.solvers import Solver, Work
from ..protocol import Offer
from .compute import use_one_thread
from .engine import Assignment

Train = Callable[[Solver, Offer, int, State, Assignment], tuple[Work, Int64]]


BEAT = 0.5  # seconds between a worker's heartbeats
DEADLINE = 30.0  # seconds without one after which a worker is ended


class WorkerExit(Exception):
    """A worker ended; `code` is its exit code."""

    def __init__(self, code: int | None) -> None:
        super().__init__(f"a worker ended (exit code {code})")
        self.code = code


class Worker:
    """A forked process that trains one client at a time."""

    def __init__(self, train: Train, others: list[Connection], memory: State) -> None:
        context = mp.get_context("fork")
        self.beats = context.RawValue("Q", 0)
        self.pipe, theirs = context.Pipe()
        # A child inherits the parent's ends of all pipes; it must close them, or it would not
        # notice the parent's death.
        inherited = [self.pipe, *others]
        self.process = context.Process(
            target=_work, args=(train, theirs, inherited, self.beats, memory), daemon=True
        )
        with warnings.catch_warnings():
            # Workers run torch on one thread of their own, which is safe after a fork.
            warnings.filterwarnings("ignore", message=".*multi-threaded.*fork.*")
            self.process.start()
        theirs.close()

    def send(self, message: Any) -> None:
        self._alive(lambda: self.pipe.send(message))

    def receive(self) -> Any:
        kind, value = self._alive(self.pipe.recv)
        if kind == "refused":
            raise MusterError(value)
        if kind == "error":
            raise RuntimeError(f"a worker process failed:\n{value}")
        return value

    def send_tensors(self, tables: list[Params], names: list[str] | None = None) -> None:
        self._alive(lambda: send_tensors(self.pipe, tables, names or []))

    def receive_tensors(self) -> tuple[list[Params], list[str]]:
        received: tuple[list[Params], list[str]] = self._alive(lambda: receive_tensors(self.pipe))
        return received

    def _alive(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self.process.join(1)
            raise WorkerExit(self.process.exitcode) from None

    def end(self) -> None:
        """End it now, even if it is stopped."""
        self.process.kill()

    def close(self) -> None:
        self.pipe.close()
        self.process.join(1)
        if self.process.is_alive():
            self.end()


class Watchdog:
    """Ends workers without a heartbeat, so that the run does not wait for them forever.

    It counts its own looks, not seconds: when the whole program is suspended and goes on, nobody
    is taken for dead.
    """

    def __init__(self, workers: list[Worker]) -> None:
        self.workers, self._over = workers, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True, name="muster-watch")
        self._thread.start()

    def _look(self) -> None:
        seen: dict[int, tuple[int, int]] = {}  # of each process: its beats, and looks since then
        while not self._over.wait(BEAT):
            for worker in list(self.workers):
                pid, beats = worker.process.pid or 0, worker.beats.value
                before, looks = seen.get(pid, (-1, 0))
                seen[pid] = (beats, looks + 1 if beats == before else 0)
                if seen[pid][1] * BEAT >= DEADLINE:
                    worker.end()

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def _beat(beats: Any) -> None:
    while True:
        beats.value += 1
        time.sleep(BEAT)


def _work(
    train: Train, pipe: Connection, inherited: list[Connection], beats: Any, memory: State
) -> None:
    """Run a worker: take an offer, then train clients until the pipe closes. `memory` is that of
    the clients which the parent deals: freed here, or it would stay for as long as the worker."""
    memory.clear()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a rank's own process handles it
    threading.Thread(target=_beat, args=(beats,), daemon=True).start()
    for end in inherited:
        end.close()
    use_one_thread()
    solver: Solver
    offer: Offer
    try:
        while True:
            message = pipe.recv()
            if message[0] == "offer":
                _, solver, bare = message
                (model, *parts), names = receive_tensors(pipe)
                offer = replace(bare, model=model, server=dict(zip(names, parts, strict=True)))
                continue
            tables, names = receive_tensors(pipe)
            try:
                memory = dict(zip(names, tables, strict=True))
                work, steps = train(solver, offer, message[1], memory, message[2])
            except MusterError as error:
                pipe.send(("refused", str(error)))
                continue
            except Exception:
                pipe.send(("error", traceback.format_exc()))
                continue
            pipe.send(("done", (steps, len(work.memory))))
            tables = [work.models, *work.memory.values(), *work.extra.values()]
            send_tensors(pipe, tables, [*work.memory, *work.extra])
            del memory, work, tables  # or they would stay while the next client trains
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)


def send_tensors(pipe: Connection, tables: list[Params], names: list[str]) -> None:
    """Send named tensors: their shapes, then their raw bytes."""
    header = [[(k, tuple(t.shape), str(t.dtype)[6:]) for k, t in p.items()] for p in tables]
    pipe.send((header, names))
    for table in tables:
        for t in table.values():
            pipe.send_bytes(t.contiguous().numpy().tobytes())


def receive_tensors(pipe: Connection) -> tuple[list[Params], list[str]]:
    """Receive what `send_tensors` sent."""
    header, names = pipe.recv()
    tables: list[Params] = []
    for part in header:
        table: Params = {}
        for name, shape, dtype in part:
            raw = bytearray(pipe.recv_bytes())
            flat = torch.frombuffer(raw, dtype=getattr(torch, dtype)) if raw else torch.empty(0)
            table[name] = flat.view(shape)
        tables.append(table)
    return tables, names
