"""The stacked engine: many clients train at once, parameters carrying the client axis.

The gradient of the *sum* of the clients' losses with respect to stacked parameters is each
client's own gradient, so plain autograd serves any model whose layers have a stacked form, and
fully connected ones take the fused path. Clients with fewer steps drop off the end of the stack.
A round's clients are cut into portions, which threads take whole, from first step to last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..base import params, rng
from ..base.arrays import Int64
from ..base.errors import MusterError
from ..base.lazy import lazy_module, nn, torch
from ..base.params import Params, State
from ..federation import Federation
from ..federation.ragged_rows import features
from ..local import Local
from ..parts.solvers import Gradient, Solver, Work
from ..privacy.row_noise import RowNoise
from ..protocol import Appraisal, Offer
from ..tasks.classification import Multiclass
from ..tasks.task import Task, averages_rows, has_slope, is_cross_entropy
from .batches import BatchPlan, blocks, cut_portions, estimate_work
from .compute import Compute
from .descent import (
    Dense,
    DriftCache,
    LocalSteps,
    dense_layers,
    direction,
    fusable,
    fused_gradient,
    fused_step,
    hessian_product,
    linear_gradient,
)
from .engine import Assignment, Engine, WorkBuffer
from .modules import DropoutDraws, VmapModule, examples, find_obstacle, has_dropout, stackable
from .row_release import RowRelease, sum_layers, sum_rows
from .row_results import RowResults, Split, row_blocks

if TYPE_CHECKING:
    from torch import Tensor

    from . import kernel
else:
    kernel = lazy_module("muster.engines.kernel")  # numba takes a second

AT_ONCE = 2**22  # rows whose losses are held at once
FETCHED = 2**18  # numbers of input fetched at once: a megabyte, so that they stay in cache
COMPILE_FROM = 2.0e7  # parameters times rows of a portion above which the compiled loop pays off,
# and steps of a whole run above which it does whatever their size, as it saves the calls of each.
# Loading it takes as long as it saves in about 9,000 steps, but once for all runs of a process.
COMPILE_STEPS = 3_000

Flat: TypeAlias = "tuple[Tensor, Tensor, Tensor]"


class StackedEngine(Engine):
    """Batched products over the client axis."""

    name = "stacked"

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
        self.frozen = params.frozen_params(self.main.module)
        layers = stackable(self.main.module)
        self.mapped: VmapModule | None = None
        self.why = "every layer has a stacked form"
        if isinstance(layers, str):
            wrong = find_obstacle(module, examples(fed, self.dtype), compute.engine == "stacked")
            if wrong:
                raise MusterError(f"engine: 'stacked': {wrong}; use engine='loop' or 'auto'")
            self.mapped = VmapModule(lambda: self.replica().module)
            self.why = f"{layers} has no stacked form, so the module is mapped over clients"
            layers = []
        self.layers, self.drops = layers, has_dropout(layers)
        flat = bool(layers) and (fed.train.x.dim() == 2 or isinstance(layers[0].module, nn.Flatten))
        # The fused and compiled steps hold the derivative of cross-entropy, and move every layer.
        dense = fusable(layers) if flat and not self.frozen else None
        self.fused = dense if is_cross_entropy(task) else None
        # The one linear layer of a model whose loss has its derivative in closed form.
        self.linear = dense[0] if dense and len(dense) == 1 and has_slope(task) else None
        # Outputs of the model, where labels are needed one-hot.
        self.outputs = 0 if self.fused is None else self.main.state[self.fused[-1] + "bias"].numel()

    def forward(self, stack: Params, x: Tensor, batch: StackedBatch | None = None) -> Tensor:
        """Outputs `[K, B, outputs]` of each client's model on its own inputs `[K, B, ...]`; with a
        batch, in training."""
        x = self.protect(x)
        if self.mapped is not None:
            return self.mapped(stack, x, batch is not None)
        if self.frozen:
            # One copy for all: seen by each client through a view.
            n = len(x)
            stack = {**stack, **{name: t.expand(n, *t.shape) for name, t in self.frozen.items()}}
        for layer in self.layers:
            if batch is not None and batch.draws is not None and type(layer.module) is nn.Dropout:
                x = batch.draws.drop(x, layer.module.p, batch.counts)
                continue
            x = layer.apply(stack, x)
        return x

    def flatten(self, x: Tensor, labels: Tensor, scale: Tensor) -> Sequence[Flat | None]:
        """Inputs, labels and scale of each step as fused steps take them; None without these.

        Args:
            x: [step, client, row, ...]
            labels: [step, client, row]
            scale: [step, client, row]
        """
        if self.fused is None:
            return (None,) * len(x)
        steps, clients, rows = labels.shape
        zeros = torch.zeros(
            steps, clients, self.outputs, rows, dtype=self.dtype, device=self.device
        )
        hot = zeros.scatter_(2, labels.unsqueeze(2), 1.0)
        every = x.flatten(3).transpose(2, 3), hot, scale.unsqueeze(2)
        return list(zip(*(t.unbind(0) for t in every), strict=True))

    def train(
        self,
        solver: Solver,
        offer: Offer,
        clients: Int64,
        memory: State,
        assignment: Assignment = Assignment(),
    ) -> tuple[Work, Int64]:
        """Train each portion of clients with similar batches as one stack."""
        groups = self.plans(solver, offer, clients, assignment)
        portions = [part for group in groups for part in cut_portions(group, offer.model)]
        room = WorkBuffer(len(clients))

        def take(seat: int, numbers: Iterator[int]) -> None:
            for i in numbers:
                part = portions[i]
                # Held by no name here, or it would stay while the next portion trains.
                room.put(part.at, *self.train_portion(solver, offer, part, memory, assignment))

        about = (
            "train",
            type(solver).__name__,
            offer.seed,
            offer.round,
            offer.lr,
            clients,
            offer.model,
        )
        self.share(len(portions), take, lambda i: portions[i].at, room, *about)
        return room.work(), room.steps

    def train_portion(
        self, solver: Solver, offer: Offer, part: BatchPlan, memory: State, assignment: Assignment
    ) -> tuple[Work, Int64]:
        """One portion of clients: the solver on their stack."""
        own = {name: _rows(m, part.at) for name, m in memory.items()}
        local = assignment.local or self.local
        course = LocalSteps(local, offer, part.steps // solver.draws, own)
        draws = self.draws(offer, part.clients)
        protect = self.row_release(offer, part.clients, assignment)
        cohort = StackedCohort(self, part, course, solver.draws, draws, protect)
        with torch.no_grad():
            done = solver(cohort, offer, own)
        return replace(done, memory=done.memory | course.optimizer_state), course.steps

    def draws(self, offer: Offer, clients: Int64) -> DropoutDraws | None:
        """Return these clients' draws for Dropout in a round; None without Dropout."""
        if not self.drops:
            return None
        keys = rng.keys(offer.seed, "layers", offer.round, self.ids(clients))
        return DropoutDraws([rng.torch_seed(key) for key in keys])

    def appraise_each(self, stack: Params, clients: Int64, split: Split = "train") -> Appraisal:
        """Each client's own model on its rows, several clients at a time."""
        data = self.data(split)
        sizes = data.sizes[clients]
        if not sizes.all():
            return super().appraise_each(stack, clients, split)
        if len(clients) > 1 and int(sizes.sum()) > AT_ONCE:
            halves = np.array_split(np.arange(len(clients)), 2)
            return Appraisal.concat(
                [self.appraise_each(_rows(stack, h), clients[h], split) for h in halves]
            )
        results = RowResults(self.task, self.scoring, int(sizes.sum()))
        every = list(row_blocks(data, clients))

        @torch.no_grad()
        def look(seat: int, numbers: Iterator[int]) -> None:
            for i in numbers:
                x, y = self.batch(split, every[i].rows)
                shared = every[i].rows.ndim == 1
                for group in every[i].groups:
                    n = len(group.who)
                    own = (x.expand(n, *x.shape), y.expand(n, *y.shape)) if shared else (x, y)
                    z = self.forward(_rows(stack, group.who), own[0])
                    results.put(group.at[group.counts], z, own[1], group.counts)

        def get_rows(i: int) -> Int64:
            return np.concatenate([group.at[group.counts] for group in every[i].groups])

        self.share(len(every), look, get_rows, results, "appraise each", split, clients)
        return results.by_client(data, clients, data.positions(clients))


def is_worth_compiling(work: float, steps: float) -> bool:
    """Return True if the compiled loop is used: it saves more time than loading it takes, in one
    portion or over the runs of a process.

    Args:
        work: parameters times rows over all steps of a portion of clients in a round
        steps: steps of a client in the whole run
    """
    return work >= COMPILE_FROM or steps >= COMPILE_STEPS


class StackedCohort:
    """One portion of clients at work on the stacked engine."""

    def __init__(
        self,
        engine: StackedEngine,
        group: BatchPlan,
        course: LocalSteps,
        per_step: int,
        draws: DropoutDraws | None,
        release: RowRelease | None = None,
    ) -> None:
        self.engine, self.group, self.course, self.per_step = engine, group, course, per_step
        self.steps, self.draws, self.release = course.steps, draws, release

    @property
    def plain_rate(self) -> float | None:
        """The one rate of all steps where each is `w <- w - lr d`; None elsewhere."""
        return self.course.plain_rate

    def _batches(self) -> Iterator[tuple[int, float, list[StackedBatch]]]:
        """For each step: how many clients take it, its learning rate, and its batches.

        For models so small that a step costs what calling it costs, the calls here count too: the
        rows of as many steps as fit in cache are fetched at once, into the same memory each time.
        """
        group, engine = self.group, self.engine
        # Full batches are the same rows in every step, which the plan holds once.
        distinct = slice(0, 1) if group.rows.strides[1] == 0 else slice(None)
        rows = torch.from_numpy(group.rows[:, distinct].swapaxes(0, 1).copy()).to(engine.device)
        targets = engine.y["train"][rows]
        count = group.count[:, distinct, None]
        weight = np.where(np.arange(rows.shape[2]) < count, 1.0 / np.maximum(count, 1), 0.0)
        scale = torch.from_numpy(weight).to(engine.dtype).transpose(0, 1).to(engine.device)
        together = self._count_together(rows[:1].numel())
        room = engine.x["train"].new_empty(rows[:together].numel(), *engine.x["train"].shape[1:])
        block: list[StackedBatch] = []
        start, held, steps = 0, 0, rows.shape[0]
        for s, n in enumerate(group.active()[:: self.per_step]):
            first = s * self.per_step % steps
            if not start <= first < start + len(block):
                start, held, span = first, n, (slice(first, first + together), slice(n))
                counts = group.count[:, distinct].T[span]
                block = self._fetch(rows[span], targets[span], scale[span], counts, room)
            few = [block[i % steps - start] for i in range(first, first + self.per_step)]
            if self.release is not None:
                self.release.begin_step(s)
            yield n, self.course.rates[s], few if n == held else [batch.first(n) for batch in few]

    def _count_together(self, rows: int) -> int:
        """Return the number of batches of this many rows that are fetched at once: whole steps."""
        width = self.engine.x["train"][0].numel() + self.engine.outputs
        return max(1, FETCHED // max(1, rows * width * self.per_step)) * self.per_step

    def _fetch(
        self, rows: Tensor, targets: Tensor, scale: Tensor, counts: Int64, room: Tensor
    ) -> list[StackedBatch]:
        """Return the batches of some steps `[step, client, row]`, with inputs in this room."""
        engine, room = self.engine, room[: rows.numel()]
        drawn = torch.index_select(engine.x["train"], 0, rows.flatten(), out=room)
        x = features(drawn, engine.dtype).view(*rows.shape, *room.shape[1:])
        flat = engine.flatten(x, targets, scale)
        pieces = zip(x.unbind(0), targets.unbind(0), scale.unbind(0), counts, flat, strict=True)
        return [StackedBatch(engine, *piece, self.draws, self.release) for piece in pieces]

    def descend(
        self,
        stack: Params,
        pull: float = 0.0,
        anchor: Params | None = None,
        correction: Params | None = None,
    ) -> Params:
        """Corrected descent. Plain SGD is compiled for softmax regression, fused for fully
        connected models, and otherwise by autograd, as any optimizer is."""
        if not self.course.optimizer.plain or self.release is not None:
            return self.iterate(
                stack, lambda w, grads: direction(w, grads[0](w), pull, anchor, correction)
            )
        drifts, even = DriftCache(stack, pull, anchor, correction), self.course.constant_rate
        prefixes = self.engine.fused
        one = {name: t[0] for name, t in stack.items()}
        if prefixes is not None and even is not None and self._compiles(prefixes, one):
            parts = blocks(self.group, one, self.engine.threads.size)
            self._run_kernel(stack, prefixes[0], even, 1.0 - even * pull, drifts.at(even), parts)
            return stack
        closed = prefixes is not None or self.engine.linear is not None
        held, w, layers = -1, stack, list[Dense]()
        # Steps in closed form leave nothing behind but the stack: torch need not watch them, which
        # saves time where calls are what takes it, on the processor.
        unwatched = closed and self.engine.device.type == "cpu"
        with torch.inference_mode() if unwatched else nullcontext():
            for n, lr, (batch,) in self._batches():
                if n != held:
                    held, w = n, _first(stack, n)
                    layers = dense_layers(w, prefixes or [])
                keep, drift = 1.0 - lr * pull, drifts.at(lr)
                if batch.flat is not None:
                    fused_step(layers, *batch.flat, lr, keep, drift)
                    continue
                g = batch(w)
                for name, t in w.items():
                    if keep != 1.0:
                        t.mul_(keep)
                    t.sub_(g[name], alpha=lr)
                    if drift is not None:
                        t.add_(drift[name][:n])
        return stack

    def _compiles(self, prefixes: list[str], model: Params) -> bool:
        """Return True if the compiled loop fits this model, and is worth loading for this run."""
        fits = len(prefixes) == 1 and self.engine.device.type == "cpu"
        work = float(estimate_work(self.group, model).sum())
        return fits and is_worth_compiling(work, len(self.course.rates) * self.course.rounds)

    def _run_kernel(
        self,
        stack: Params,
        prefix: str,
        lr: float,
        keep: float,
        drift: Params | None,
        parts: list[slice],
    ) -> None:
        descend = kernel.softmax_regression  # loaded here, before there are threads
        w, bias = stack[prefix + "weight"].numpy(), stack[prefix + "bias"].numpy()
        engine, group = self.engine, self.group
        x, y = engine.x["train"].flatten(1).numpy(), engine.y["train"].numpy()
        moves = None if drift is None else (drift[prefix + "weight"], drift[prefix + "bias"])

        def walk(seat: int, numbers: Iterator[int]) -> None:
            for i in numbers:
                at = parts[i]
                own = None if moves is None else (_pack(moves[0], at), _pack(moves[1], at))
                rows, count, steps = group.rows[at], group.count[at], self.steps[at]
                descend(w[at], bias[at], x, y, rows, count, steps, lr, keep, own)

        # Clients are apart from each other here, so idle threads may take some of them.
        engine.threads.share(len(parts), walk)

    def iterate(
        self, stack: Params, update: Callable[[Params, Sequence[Gradient]], Params]
    ) -> Params:
        """A direction of the solver's own, for the prefix of clients that take each step."""
        state = self.course.state(stack)
        for n, lr, batches in self._batches():
            w = _first(stack, n)
            seen = {part: _first(table, n) for part, table in state.items()}
            self.course.optimizer.step(w, update(w, batches), seen, lr)
        return stack


class StackedBatch:
    """A step's rows of each client, and the gradient of its mean loss there.

    Attributes:
        x: inputs [n, B, ...]
        y: targets [n, B, ...]
        scale: [n, B]: 1 / |batch| for rows that count, 0 for padding
        counts: [n] how many rows count; here, not on the device: asking it would mean to wait
        flat: inputs [n, F, B], labels one-hot [n, outputs, B] and scale [n, 1, B], where fully
            connected layers take them
    """

    def __init__(
        self,
        engine: StackedEngine,
        x: Tensor,
        y: Tensor,
        scale: Tensor,
        counts: Int64,
        flat: Flat | None,
        draws: DropoutDraws | None = None,
        release: RowRelease | None = None,
    ) -> None:
        self.engine, self.x, self.y, self.scale = engine, x, y, scale
        self.counts, self.flat, self.draws, self.release = counts, flat, draws, release

    def first(self, n: int) -> StackedBatch:
        """The batches of the first n clients."""
        flat = None if self.flat is None else (self.flat[0][:n], self.flat[1][:n], self.flat[2][:n])
        own = self.x[:n], self.y[:n], self.scale[:n], self.counts[:n]
        return StackedBatch(self.engine, *own, flat, self.draws, self.release)

    def __call__(self, w: Params) -> Params:
        """Each client's gradient: that of the sum over clients of their mean losses; where rows
        are protected, the released one."""
        if self.release is not None:
            return self.release.average(self._sum_bounded(w, self.release.clip), self.engine.dtype)
        if self.engine.fused is not None and self.flat is not None:
            return fused_gradient(w, self.engine.fused, *self.flat)
        if self.engine.linear is not None:
            slope = self.engine.task.slope(self.engine.forward(w, self.x), self.y)  # type: ignore[attr-defined]
            x = self.x if self.x.dim() == 3 else self.x.flatten(2)
            return linear_gradient(self.engine.linear, x, slope.mul_(self.scale.unsqueeze(-1)))
        with torch.enable_grad():
            leaves, total = self._total(w)
            values = list(leaves.values())
            # A parameter the output does not depend on has a gradient of zeros.
            return _by_name(leaves, torch.autograd.grad(total, values, materialize_grads=True))

    def hessian(self, w: Params, v: Params) -> Params:
        """Each client's `H(w) v`: the gradient of the gradient along v."""
        assert self.release is None, "a Hessian is not accounted for"
        with torch.enable_grad():
            leaves, total = self._total(w)
            return _by_name(
                leaves, hessian_product(total, list(leaves.values()), [v[n] for n in leaves])
            )

    def _sum_bounded(self, w: Params, clip: float) -> Params:
        """Each client's sum of its rows' gradients, each bounded."""
        counts = (self.scale > 0).to(self.scale)
        if self.engine.fused is not None and self.flat is not None:
            x, hot, _ = self.flat
            return sum_layers(w, self.engine.fused, x, hot, counts, clip)

        def loss(leaves: Params, x: Tensor, y: Tensor) -> Tensor:
            return self.engine.task.loss(self.engine.forward(leaves, x, self), y)

        return sum_rows(loss, w, self.x, self.y, counts, clip)

    def _total(self, w: Params) -> tuple[Params, Tensor]:
        """The weights as leaves, and the sum of the clients' losses, each on its own rows."""
        leaves = {name: t.detach().requires_grad_() for name, t in w.items()}
        task, z = self.engine.task, self.engine.forward(leaves, self.x, self)
        if averages_rows(task):
            return leaves, (task.loss(z, self.y) * self.scale).sum()
        return leaves, task.set_loss(z, self.y, self.scale).sum()  # type: ignore[attr-defined]


def _by_name(leaves: Params, values: Sequence[Tensor]) -> Params:
    return dict(zip(leaves, values, strict=True))


def _pack(drift: Tensor, at: slice) -> NDArray[Any]:
    """Some clients' drift; just one where all clients share it as a view that repeats it."""
    return (drift[:1] if drift.stride(0) == 0 else drift[at]).contiguous().numpy()


def _first(stack: Params, n: int) -> Params:
    """The first n clients of a stack, as views."""
    return {name: t[:n] for name, t in stack.items()}


def _rows(stack: Params, at: Int64) -> Params:
    """Rows of a stack, in this order; as views where they lie in this order."""
    if np.array_equal(at, np.arange(at[0], at[0] + len(at))):
        return {name: t[at[0] : at[0] + len(at)] for name, t in stack.items()}
    index = torch.from_numpy(at)
    return {name: t[index.to(t.device)] for name, t in stack.items()}
