"""Worker processes: forked, so that they see data and module without copying either."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import torch

from ..arrays import Int64
from ..errors import MusterError
from ..params import Memory, Params
from ..parts.solvers import Solver, Work
from ..protocol import Offer
from .base import Assignment
from .threads import alone

Train = Callable[[Solver, Offer, int, Memory, Assignment], tuple[Work, Int64]]


class Worker:
    """A forked process that trains one client at a time."""

    def __init__(self, train: Train, others: list[Connection]) -> None:
        context = mp.get_context("fork")
        self.pipe, theirs = context.Pipe()
        # A child inherits the parent's ends of all pipes; it must close them, or it would not
        # notice the parent's death.
        inherited = [self.pipe, *others]
        self.process = context.Process(target=_work, args=(train, theirs, inherited), daemon=True)
        with warnings.catch_warnings():
            # Workers run torch on one thread of their own, which is safe after a fork.
            warnings.filterwarnings("ignore", message=".*multi-threaded.*fork.*")
            self.process.start()
        theirs.close()

    def send(self, message: Any) -> None:
        self._alive(lambda: self.pipe.send(message))

    def receive(self) -> Any:
        kind, value = self._alive(self.pipe.recv)
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
            raise MusterError(
                f"a worker process ended unexpectedly (exit code {self.process.exitcode}); "
                "it may have run out of memory: try processes=1"
            ) from None

    def close(self) -> None:
        self.pipe.close()
        self.process.join(1)
        if self.process.is_alive():
            self.process.terminate()


def _work(train: Train, pipe: Connection, inherited: list[Connection]) -> None:
    """A worker's life: take an offer, then train clients until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for end in inherited:
        end.close()
    alone()
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
            except Exception:
                pipe.send(("error", traceback.format_exc()))
                continue
            pipe.send(("done", (steps, len(work.memory))))
            tables = [work.models, *work.memory.values(), *work.extra.values()]
            send_tensors(pipe, tables, [*work.memory, *work.extra])
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)


def send_tensors(pipe: Connection, tables: list[Params], names: list[str]) -> None:
    """Named tensors as their shapes, then their raw bytes."""
    header = [[(k, tuple(t.shape), str(t.dtype)[6:]) for k, t in p.items()] for p in tables]
    pipe.send((header, names))
    for table in tables:
        for t in table.values():
            pipe.send_bytes(t.contiguous().numpy().tobytes())


def receive_tensors(pipe: Connection) -> tuple[list[Params], list[str]]:
    """The other end of `send_tensors`."""
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
