"""The loop engine: any `nn.Module`, one client after another, a process for each core.

A client's training runs on one thread in one process from its own key, so its result does not
depend on how many processes there are. Workers are forked: they see the data and the user's
module without copying or pickling either; models travel as raw bytes over pipes.
"""

from __future__ import annotations

import multiprocessing as mp
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, wait

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from .. import rng
from ..arrays import Int64
from ..errors import MusterError
from ..federation import Federation
from ..local import Local
from ..params import Memory, Params
from ..parts.solvers import Gradient, Solver, Work
from ..protocol import Offer
from .base import Assignment, Base
from .batches import Plan, needs_two_rows
from .corrected import drift_of
from .pool import Worker
from .threads import one_thread

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
        self.merge_single = needs_two_rows(self.module)
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
        self,
        solver: Solver,
        offer: Offer,
        clients: Int64,
        memory: Memory,
        assignment: Assignment = Assignment(),
    ) -> tuple[Work, Int64]:
        """Deal clients to workers as they become free; put results where they belong."""
        replies = Room(len(clients))
        if min(self.processes, len(clients)) == 1:
            with one_thread():
                for i, k in enumerate(clients):
                    work = self.train_one(
                        solver, offer, int(k), _row(memory, i), one(assignment, i)
                    )
                    replies.put(i, *work)
        else:
            self._train_in_workers(solver, offer, clients, memory, assignment, replies)
        return Work(replies.models, replies.memory, replies.extra), replies.steps

    def train_one(
        self, solver: Solver, offer: Offer, k: int, memory: Memory, assignment: Assignment
    ) -> tuple[Work, int]:
        """One client: the solver on a stack of one."""
        (group,) = self.plans(solver, offer, np.array([k]), assignment)
        own = {part: {name: t[None] for name, t in m.items()} for part, m in memory.items()}
        with torch.random.fork_rng(devices=[]):
            # Layers that draw numbers themselves (Dropout) draw them from the client's key.
            key = rng.keys(offer.seed, "layers", offer.round, self.fed.population.ids[k])
            torch.manual_seed(rng.torch_seed(key))
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
        assignment: Assignment,
        replies: Room,
    ) -> None:
        if not self.workers:
            for _ in range(self.processes):
                self.workers.append(Worker(self.train_one, [w.pipe for w in self.workers]))
        crew = self.workers[: len(clients)]
        for worker in crew:
            worker.send(("offer", solver, replace(offer, model={}, server={})))
            worker.send_tensors([offer.model, *offer.server.values()], [*offer.server])
        waiting = iter(range(len(clients)))
        busy: dict[Connection, tuple[Worker, int]] = {}

        def deal(worker: Worker) -> None:
            i = next(waiting, None)
            if i is not None:
                worker.send(("client", int(clients[i]), one(assignment, i)))
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


def _row_of(stack: Params, i: int) -> Params:
    """One client's model."""
    return {name: t[i] for name, t in stack.items()}


def _row(memory: Memory, i: int) -> Memory:
    """One client's memory."""
    return {part: _row_of(table, i) for part, table in memory.items()}


def one(assignment: Assignment, i: int) -> Assignment:
    """The i-th client's part of a assignment."""
    return (
        assignment
        if assignment.steps is None
        else replace(assignment, steps=assignment.steps[i : i + 1])
    )
