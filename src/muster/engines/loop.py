"""The loop engine: any `nn.Module`, one client after another, a process for each core.

A client's training runs on one thread in one process from its own key, so its result does not
depend on how many processes there are. Workers are forked: they see the data and the user's
module without copying or pickling either; models travel as raw bytes over pipes.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from .. import rng
from ..errors import MusterError
from ..federation import Federation
from ..local import Local, Plan
from ..params import Memory, Params
from ..protocol import Offer
from ..rng import Int64
from ..solvers import Gradient, Solver, Work
from .base import Base, Task
from .corrected import drift_of
from .threads import alone, one_thread

BATCH_NORM = nn.modules.batchnorm._BatchNorm
CONVOLUTION = nn.modules.conv._ConvNd


class Loop(Base):
    """One client at a time, on as many processes as there are cores."""

    name = "loop"

    def __init__(
        self,
        module: nn.Module,
        fed: Federation,
        local: Local,
        dtype: torch.dtype = torch.float32,
        device: torch.device = torch.device("cpu"),
        processes: int | None = None,
    ) -> None:
        super().__init__(module, fed, local, dtype, device)
        self.merge_single = any(isinstance(m, BATCH_NORM) for m in self.module.modules())
        if self.merge_single and bool((fed.train.sizes == 1).any()):
            k = int(np.flatnonzero(fed.train.sizes == 1)[0])
            raise MusterError(
                f"model: BatchNorm cannot train on client {k}, which has one row; "
                "give it more rows or use a model without BatchNorm"
            )
        if self.merge_single and local.batch_size == 1:
            raise MusterError("local batch_size: 1; BatchNorm needs batches of 2 and above")
        images = fed.train.x.dim() == 4
        if images and any(isinstance(m, CONVOLUTION) for m in self.module.modules()):
            self.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self.state = dict(self.module.state_dict())
        can_fork = "fork" in mp.get_all_start_methods() and device.type == "cpu"
        self.processes = (processes or os.cpu_count() or 1) if can_fork else 1
        self.workers: list[Worker] = []

    def train(
        self, solver: Solver, offer: Offer, clients: Int64, memory: Memory, task: Task = Task()
    ) -> tuple[Work, Int64]:
        """Deal clients to workers as they become free; put results where they belong."""
        replies = Room(len(clients))
        if min(self.processes, len(clients)) == 1:
            with one_thread():
                for i, k in enumerate(clients):
                    work = self.train_one(solver, offer, int(k), _row(memory, i), one(task, i))
                    replies.put(i, *work)
        else:
            self._train_in_workers(solver, offer, clients, memory, task, replies)
        return Work(replies.models, replies.memory, replies.extra), replies.steps

    def train_one(
        self, solver: Solver, offer: Offer, k: int, memory: Memory, task: Task
    ) -> tuple[Work, int]:
        """One client: the solver on a stack of one."""
        (group,) = self.plans(solver, offer, np.array([k]), task)
        own = {part: {name: t[None] for name, t in m.items()} for part, m in memory.items()}
        with torch.random.fork_rng(devices=[]):
            # Layers that draw numbers themselves (Dropout) draw them from the client's key.
            torch.manual_seed(int(rng.keys(offer.seed, "layers", offer.round, k)) >> 1)
            with torch.no_grad():
                work = solver(LoopCohort(self, group, offer.lr, solver.draws), offer, own)
        alone = Work(_row_of(work.models, 0), _row(work.memory, 0), _row(work.extra, 0))
        return alone, int(group.steps[0]) // solver.draws

    def _train_in_workers(
        self,
        solver: Solver,
        offer: Offer,
        clients: Int64,
        memory: Memory,
        task: Task,
        replies: Room,
    ) -> None:
        if not self.workers:
            for _ in range(self.processes):
                self.workers.append(Worker(self))
        crew = self.workers[: len(clients)]
        for worker in crew:
            worker.send(("offer", solver, replace(offer, model={}, server={})))
            worker.send_tensors([offer.model, *offer.server.values()], [*offer.server])
        waiting = iter(range(len(clients)))
        busy: dict[Connection, tuple[Worker, int]] = {}

        def deal(worker: Worker) -> None:
            i = next(waiting, None)
            if i is not None:
                worker.send(("client", int(clients[i]), one(task, i)))
                worker.send_tensors([*_row(memory, i).values()], [*memory])
                busy[worker.pipe] = (worker, i)

        for worker in crew:
            deal(worker)
        while busy:
            ready = wait(list(busy))
            for pipe in [p for p in busy if p in ready]:
                worker, i = busy.pop(pipe)
                steps, kept = worker.receive()
                (models, *tables), names = worker.receive_tensors()
                parts = list(zip(names, tables, strict=True))
                replies.put(i, Work(models, dict(parts[:kept]), dict(parts[kept:])), steps)
                deal(worker)

    def close(self) -> None:
        """End the workers."""
        for worker in self.workers:
            worker.close()
        self.workers = []


class Room:
    """Room for every client's work, filled as it comes in: one copy of each model, no more."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.models: Params = {}
        self.memory: Memory = {}
        self.extra: Memory = {}
        self.steps: Int64 = np.zeros(n, np.int64)

    def put(self, i: int, work: Work, steps: int) -> None:
        """The work of the i-th client."""
        self._fill(self.models, i, work.models)
        for mine, given in ((self.memory, work.memory), (self.extra, work.extra)):
            for part, table in given.items():
                self._fill(mine.setdefault(part, {}), i, table)
        self.steps[i] = steps

    def _fill(self, stack: Params, i: int, model: Params) -> None:
        for name, t in model.items():
            if name not in stack:
                stack[name] = t.new_empty(self.n, *t.shape)
            stack[name][i] = t


class LoopCohort:
    """One client at work: the module itself, trained in place."""

    def __init__(self, engine: Loop, group: Plan, lr: float, draws: int = 1) -> None:
        self.engine, self.group, self.lr, self.draws = engine, group, lr, draws
        self.steps = group.steps // draws
        parameters = dict(engine.module.named_parameters())
        self.weights: list[Tensor] = [parameters[name] for name in engine.trainable]

    def _batches(self) -> Iterator[list[tuple[Tensor, Tensor]]]:
        """For each step its batches: inputs and labels."""
        for s in range(int(self.steps[0])):
            batches = []
            for i in range(s * self.draws, (s + 1) * self.draws):
                rows = self.group.rows[0, i, : self.group.count[0, i]]
                x, y = self.engine.batch("train", rows.copy())
                if x.dim() == 4:
                    x = x.contiguous(memory_format=torch.channels_last)
                batches.append((x, y))
            yield batches

    def _enter(self, stack: Params) -> None:
        self.engine.load({name: t[0] for name, t in stack.items()})

    def _leave(self) -> Params:
        return {
            name: self.engine.state[name]
            .detach()
            .clone(memory_format=torch.contiguous_format)[None]
            for name in self.engine.travels
        }

    def _gradient(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        module = self.engine.module
        module.train()
        with torch.enable_grad():
            loss = functional.cross_entropy(module(x), y)
            grads = torch.autograd.grad(loss, self.weights, allow_unused=True)
        # A parameter the output does not depend on has no gradient.
        pairs = zip(grads, self.weights, strict=True)
        return tuple(torch.zeros_like(w) if g is None else g for g, w in pairs)

    def descend(
        self,
        stack: Params,
        pull: float = 0.0,
        anchor: Params | None = None,
        correction: Params | None = None,
    ) -> Params:
        """Corrected SGD in place, a few operations for all parameters together."""
        self._enter(stack)
        lr = self.lr
        drift = drift_of(stack, lr, pull, anchor, correction)
        add = None if drift is None else [drift[name][0] for name in self.engine.trainable]
        for ((x, y),) in self._batches():
            grads = self._gradient(x, y)
            if add is not None:
                torch._foreach_mul_(self.weights, 1.0 - lr * pull)
                torch._foreach_add_(self.weights, add, alpha=1)
            torch._foreach_add_(self.weights, grads, alpha=-lr)
        return self._leave()

    def iterate(
        self, stack: Params, update: Callable[[Params, Sequence[Gradient]], Params]
    ) -> Params:
        """An update of the solver's own; gradients are taken by loading the point they are at."""
        names = self.engine.trainable
        self._enter(stack)

        def gradient(batch: tuple[Tensor, Tensor], w: Params) -> Params:
            self._enter(w)
            grads = self._gradient(*batch)
            return {n: g[None] for n, g in zip(names, grads, strict=True)}

        for batches in self._batches():
            grads = [partial(gradient, batch) for batch in batches]
            tuned = update({name: stack[name] for name in names}, grads)
            stack = {**self._leave(), **tuned}
        return stack


class Worker:
    """A forked process that trains one client at a time."""

    def __init__(self, engine: Loop) -> None:
        context = mp.get_context("fork")
        self.pipe, theirs = context.Pipe()
        # A child inherits the parent's ends of all pipes; it must close them, or it would not
        # notice the parent's death.
        inherited = [self.pipe, *(w.pipe for w in engine.workers)]
        self.process = context.Process(target=_work, args=(engine, theirs, inherited), daemon=True)
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


def _work(engine: Loop, pipe: Connection, inherited: list[Connection]) -> None:
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
                work, steps = engine.train_one(solver, offer, message[1], memory, message[2])
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


def _row_of(stack: Params, i: int) -> Params:
    """One client's model."""
    return {name: t[i] for name, t in stack.items()}


def _row(memory: Memory, i: int) -> Memory:
    """One client's memory."""
    return {part: _row_of(table, i) for part, table in memory.items()}


def one(task: Task, i: int) -> Task:
    """The i-th client's part of a task."""
    return task if task.steps is None else replace(task, steps=task.steps[i : i + 1])
