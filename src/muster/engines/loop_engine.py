"""The loop engine: any `nn.Module`, one client after another, a process for each core.

A client's training runs on one thread in one process from its own key, so its result does not
depend on how many processes there are. Workers are forked: they see the data and the user's
module without copying or pickling either; models travel as raw bytes over pipes.
"""

from __future__ import annotations

import multiprocessing as mp
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING

import numpy as np

from ..base import rng
from ..base.arrays import Int64
from ..base.errors import MusterError, MusterWarning, first_line
from ..base.lazy import nn, torch
from ..base.params import Params, State
from ..federation import Federation
from ..federation.ragged_rows import RowLists
from ..local import Local
from ..parts.solvers import Gradient, Solver, Work
from ..privacy.row_noise import RowNoise
from ..protocol import Appraisal, Offer
from ..tasks.classification import Multiclass
from ..tasks.task import Task, averages_rows
from .batches import BatchPlan, needs_two_rows
from .compute import Compute, fork_rng, one_thread
from .descent import DriftCache, LocalSteps, direction, hessian_product
from .engine import Assignment, Engine, Replica, WorkBuffer
from .modules import VmapModule, examples, find_obstacle, mixes_rows
from .processes import Watchdog, Worker, WorkerExit
from .ranks import digest
from .row_release import RowRelease, shorten, sum_rows
from .row_results import Split

if TYPE_CHECKING:
    from torch import Tensor

MOST_LOST = 3  # workers that may end in one run

# torch's messages about modules that cannot be trained.
NO_GRADIENT = ("does not require grad", "modified by an inplace operation")


class LoopEngine(Engine):
    """One client at a time, on as many processes as there are cores."""

    name = "loop"

    def __init__(
        self,
        module: nn.Module,
        fed: Federation,
        local: Local,
        compute: Compute = Compute(),
        task: Task = Multiclass(),
        row_noise: RowNoise | None = None,
    ) -> None:
        super().__init__(module, fed, local, compute, task, row_noise)
        self.merge_single = needs_two_rows(module)
        if self.merge_single and bool((fed.train.sizes == 1).any()):
            k = int(np.flatnonzero(fed.train.sizes == 1)[0])
            raise MusterError(
                f"model: BatchNorm cannot train on client {k}, which has one row; "
                "give it more rows or use a model without BatchNorm"
            )
        if self.merge_single and local.batch_size == 1:
            raise MusterError("local batch_size: 1; BatchNorm needs batches of 2 and above")
        rows = examples(fed, self.dtype).to(self.device)
        self.mixes = mixes_rows(self.main.module, rows)
        self.mapped: VmapModule | None = None  # for the gradients of rows
        if row_noise is not None and not find_obstacle(module, rows, forced=True):
            self.mapped = VmapModule(lambda: self.replica().module)
        can_fork = "fork" in mp.get_all_start_methods()
        self.processes = compute.workers() if can_fork else 1
        self.workers: list[Worker] = []
        self.watch: Watchdog | None = None
        self.lost = 0

    def replica(self) -> Replica:
        """Another copy of the user's own module, laid out as convolutions are fastest."""
        replica = super().replica()
        images = self.fed.train.x.dim() == 4
        convolution = nn.modules.conv._ConvNd
        if images and any(isinstance(m, convolution) for m in replica.module.modules()):
            replica.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            return Replica(replica.module)
        return replica

    def appraise(
        self,
        model: Params,
        clients: Int64,
        split: Split = "train",
        rows: RowLists | None = None,
        most: float = float("inf"),
    ) -> Appraisal:
        """Loss and score of one model on each client's rows; of a module that looks across rows,
        one client at a time."""
        if rows is not None and self.mixes:
            one = np.arange(len(clients))[:, None]
            parts = [super().appraise(model, clients[i], split, rows.pick(i)) for i in one]
            return Appraisal.concat(parts)
        if not self.mixes:
            return super().appraise(model, clients, split, rows, most)
        everyones = {name: t.expand(len(clients), *t.shape) for name, t in model.items()}
        return self.appraise_each(everyones, clients, split)

    def train(
        self,
        solver: Solver,
        offer: Offer,
        clients: Int64,
        memory: State,
        assignment: Assignment = Assignment(),
    ) -> tuple[Work, Int64]:
        """Deal clients to workers as they become free; put results where they belong."""
        room = WorkBuffer(len(clients))

        def take(mine: Sequence[int]) -> None:
            if min(self.processes, len(mine)) > 1:
                try:
                    self._train_in_workers(mine, solver, offer, clients, memory, assignment, room)
                except BaseException:
                    self._end_workers()  # they may be in the middle of a client, or of a message
                    raise
                return
            with one_thread():
                for i in mine:
                    own = _row(memory, i), one(assignment, i)
                    room.put(np.array([i]), *self.train_one(solver, offer, int(clients[i]), *own))

        about = (
            "train",
            type(solver).__name__,
            offer.seed,
            offer.round,
            offer.lr,
            clients,
            offer.model,
        )
        self.ranks.run(len(clients), take, lambda i: np.array([i]), room, lambda: digest(about))
        return room.work(), room.steps

    def train_one(
        self, solver: Solver, offer: Offer, k: int, memory: State, assignment: Assignment
    ) -> tuple[Work, Int64]:
        """One client: the solver on a stack of one."""
        client = np.array([k])
        (group,) = self.plans(solver, offer, client, assignment)
        local = assignment.local or self.local
        course = LocalSteps(local, offer, group.steps // solver.draws, memory)
        key = rng.keys(offer.seed, "layers", offer.round, self.ids(client)[0])
        with fork_rng(self.device), torch.no_grad():
            # Layers that draw numbers themselves (Dropout) draw them from the client's key.
            rng.seed_torch(rng.torch_seed(key), self.device.type)
            protect = self.row_release(offer, client, assignment)
            work = solver(LoopCohort(self, group, course, solver.draws, protect), offer, memory)
            return replace(work, memory=work.memory | course.optimizer_state), course.steps

    def _train_in_workers(
        self,
        mine: Sequence[int],
        solver: Solver,
        offer: Offer,
        clients: Int64,
        memory: State,
        assignment: Assignment,
        room: WorkBuffer,
    ) -> None:
        if self.watch is None:
            for _ in range(self.processes):
                # The next one must know this one's pipe.
                self.workers.append(self._start_worker(memory))
            self.watch = Watchdog(self.workers)
        waiting = list(mine)[::-1]
        busy: dict[Connection, tuple[Worker, int]] = {}

        def brief(worker: Worker) -> None:
            worker.send(("offer", solver, replace(offer, model={}, server={})))
            worker.send_tensors([offer.model, *offer.server.values()], [*offer.server])

        def deal(worker: Worker, begins: bool) -> None:
            """Give a worker the next client, and take another worker where this one is lost."""
            while waiting:
                i = waiting.pop()
                try:
                    if begins:
                        brief(worker)
                    worker.send(("client", int(clients[i]), one(assignment, i)))
                    worker.send_tensors([*_row(memory, i).values()], [*memory])
                    busy[worker.pipe] = (worker, i)
                    return
                except WorkerExit as lost:
                    waiting.append(i)
                    worker, begins = self._replace_worker(worker, lost, memory), True

        for worker in self.workers[: len(mine)]:
            deal(worker, begins=True)
        while busy:
            ready = wait(list(busy))
            for pipe in [p for p in busy if p in ready]:
                worker, i = busy.pop(pipe)
                try:
                    steps, kept = worker.receive()
                    (models, *tables), names = worker.receive_tensors()
                except WorkerExit as lost:
                    waiting.append(i)
                    deal(self._replace_worker(worker, lost, memory), begins=True)
                    continue
                parts = list(zip(names, tables, strict=True))
                work = Work(models, dict(parts[:kept]), dict(parts[kept:]))
                room.put(np.array([i]), work, steps)
                deal(worker, begins=False)

    def _start_worker(self, memory: State) -> Worker:
        return Worker(self.train_one, [w.pipe for w in self.workers], memory)

    def _replace_worker(self, worker: Worker, lost: WorkerExit, memory: State) -> Worker:
        """Start a worker in the place of one that ended; raise when too many did."""
        self.lost += 1
        worker.close()
        if self.lost > MOST_LOST:
            raise MusterError(
                f"a worker process ended unexpectedly (exit code {lost.code}), for the "
                f"{self.lost}th time; it may have run out of memory: try processes=1"
            )
        warnings.warn(
            f"a worker process ended or was stopped (exit code {lost.code}); another one takes "
            "over its client",
            MusterWarning,
            stacklevel=2,
        )
        at = self.workers.index(worker)
        self.workers[at] = self._start_worker(memory)
        return self.workers[at]

    def close(self) -> None:
        """End the workers and the threads."""
        self._end_workers()
        super().close()

    def _end_workers(self) -> None:
        if self.watch is not None:
            self.watch.close()
            self.watch = None
        for worker in self.workers:
            worker.close()
        self.workers = []


class LoopCohort:
    """One client at work: the module itself, trained in place."""

    def __init__(
        self,
        engine: LoopEngine,
        group: BatchPlan,
        course: LocalSteps,
        draws: int = 1,
        release: RowRelease | None = None,
    ) -> None:
        self.engine, self.group, self.course, self.draws = engine, group, course, draws
        self.release = release
        self.steps = course.steps
        parameters = dict(engine.main.module.named_parameters())
        self.weights: list[Tensor] = [parameters[name] for name in engine.trainable]

    @property
    def plain_rate(self) -> float | None:
        """The one rate of all steps where each is `w <- w - lr d`; None elsewhere."""
        return self.course.plain_rate

    def _batches(self) -> Iterator[tuple[float, list[LoopBatch]]]:
        """For each step its learning rate and its batches."""
        # To the device once, not in every step.
        rows = torch.from_numpy(self.group.rows[0].copy()).to(self.engine.device)
        for s, lr in enumerate(self.course.rates):
            batches = []
            for i in range(s * self.draws, (s + 1) * self.draws):
                at = rows[i, : self.group.count[0, i]]
                x, y = self.engine.rows("train", at), self.engine.y["train"][at]
                if x.dim() == 4:
                    x = x.contiguous(memory_format=torch.channels_last)
                batches.append(LoopBatch(self.engine, self.weights, x, y, self.release))
            if self.release is not None:
                self.release.begin_step(s)
            yield lr, batches

    def _enter(self, stack: Params) -> None:
        self.engine.main.begin({name: t[0] for name, t in stack.items()})

    def _leave(self) -> Params:
        # Read again: a forward pass may have replaced buffers by other tensors.
        state = self.engine.main.module.state_dict()
        return {
            name: state[name].detach().clone(memory_format=torch.contiguous_format)[None]
            for name in self.engine.travels
        }

    def descend(
        self,
        stack: Params,
        pull: float = 0.0,
        anchor: Params | None = None,
        correction: Params | None = None,
    ) -> Params:
        """Corrected descent in place: by plain SGD, a few operations for all parameters together;
        by any optimizer, on a stack of one."""
        self._enter(stack)
        step = self.course.optimizer.step
        if not self.course.optimizer.plain or self.release is not None:
            w = {
                n: t.detach()[None]
                for n, t in zip(self.engine.trainable, self.weights, strict=True)
            }
            state = self.course.state(w)
            for lr, (batch,) in self._batches():
                g = _as_stack(self.engine.trainable, batch.gradient())
                step(w, direction(w, g, pull, anchor, correction), state, lr)
            return self._leave()
        drifts = DriftCache(stack, pull, anchor, correction)
        for lr, (batch,) in self._batches():
            drift = drifts.at(lr)
            add = None if drift is None else [drift[name][0] for name in self.engine.trainable]
            grads = batch.gradient()
            if add is not None:
                torch._foreach_mul_(self.weights, 1.0 - lr * pull)
                torch._foreach_add_(self.weights, add, alpha=1)
            torch._foreach_add_(self.weights, grads, alpha=-lr)
        return self._leave()

    def iterate(
        self, stack: Params, update: Callable[[Params, Sequence[Gradient]], Params]
    ) -> Params:
        """A direction of the solver's own; gradients are taken by loading the point they are at."""
        self._enter(stack)
        w = {name: stack[name] for name in self.engine.trainable}
        state = self.course.state(w)
        for lr, batches in self._batches():
            self.course.optimizer.step(w, update(w, batches), state, lr)
        return {**self._leave(), **w}


class LoopBatch:
    """A step's rows of one client, and the gradient of its mean loss there."""

    def __init__(
        self,
        engine: LoopEngine,
        weights: list[Tensor],
        x: Tensor,
        y: Tensor,
        release: RowRelease | None = None,
    ) -> None:
        self.engine, self.weights, self.x, self.y = engine, weights, x, y
        self.release = release

    def __call__(self, w: Params) -> Params:
        """The gradient at w, a stack of one."""
        self._enter(w)
        return _as_stack(self.engine.trainable, self.gradient())

    def hessian(self, w: Params, v: Params) -> Params:
        """`H(w) v`: the gradient of the gradient along v."""
        assert self.release is None, "a Hessian is not accounted for"
        self._enter(w)
        with torch.enable_grad():
            product = hessian_product(
                self._loss(), self.weights, [v[n][0] for n in self.engine.trainable]
            )
        return _as_stack(self.engine.trainable, product)

    def gradient(self) -> tuple[Tensor, ...]:
        """The gradient where the module is; where rows are protected, the released one."""
        if self.release is not None:
            sums = self._sum_bounded(self.release.clip)
            released = self.release.average(sums, self.weights[0].dtype)
            return tuple(t[0] for t in released.values())
        if not len(self.x):  # an empty draw of rows
            return tuple(torch.zeros_like(w) for w in self.weights)
        return self._gradient()

    def _sum_bounded(self, clip: float) -> Params:
        """The sum of the rows' gradients, each bounded, as a stack of one, in float64: in one pass
        where the module can be mapped over rows, else row by row."""
        names, mapped, task = self.engine.trainable, self.engine.mapped, self.engine.task
        stack = _as_stack(names, [w.detach() for w in self.weights])
        if mapped is not None:

            def loss(leaves: Params, x: Tensor, y: Tensor) -> Tensor:
                return task.loss(mapped(leaves, self.engine.protect(x), True), y)

            counts = self.weights[0].new_ones(1, len(self.x))
            return sum_rows(loss, stack, self.x[None], self.y[None], counts, clip)
        total = {name: torch.zeros_like(t, dtype=torch.float64) for name, t in stack.items()}
        for i in range(len(self.x)):
            row = LoopBatch(self.engine, self.weights, self.x[i : i + 1], self.y[i : i + 1])
            grads = row._gradient()
            factor = float(shorten(torch.stack([g.pow(2).sum() for g in grads]).sum(), clip))
            for name, g in zip(names, grads, strict=True):
                total[name] += factor * g if factor > 0 else 0.0
        return total

    def _gradient(self) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            loss = self._loss()
            try:
                # A parameter the output does not depend on has a gradient of zeros.
                return torch.autograd.grad(loss, self.weights, materialize_grads=True)
            except RuntimeError as error:
                if not any(why in str(error) for why in NO_GRADIENT):
                    raise
                raise MusterError(
                    f"model: torch cannot take its gradient: {first_line(error)}; its output must "
                    "depend on its parameters through differentiable operations, and none may "
                    "write over what another one needs (inplace=True)"
                ) from error

    def _enter(self, w: Params) -> None:
        self.engine.main.load({name: t[0] for name, t in w.items()})

    def _loss(self) -> Tensor:
        module = self.engine.main.module
        module.train()
        task, z = self.engine.task, module(self.engine.protect(self.x))
        if averages_rows(task):
            return task.loss(z, self.y).mean()
        together: Tensor = task.set_loss(z, self.y, z.new_ones(len(z)))  # type: ignore[attr-defined]
        return together


def _as_stack(names: Sequence[str], values: Sequence[Tensor]) -> Params:
    """Return a stack of one model."""
    return {n: t[None] for n, t in zip(names, values, strict=True)}


def _row(memory: State, i: int) -> State:
    """One client's memory, a stack of one."""
    return {
        part: {name: t[i : i + 1] for name, t in table.items()} for part, table in memory.items()
    }


def one(assignment: Assignment, i: int) -> Assignment:
    """The i-th client's part of an assignment."""
    return replace(
        assignment,
        steps=None if assignment.steps is None else assignment.steps[i : i + 1],
        rows=None if assignment.rows is None else assignment.rows.pick(np.array([i])),
        ids=None if assignment.ids is None else assignment.ids[i : i + 1],
    )
