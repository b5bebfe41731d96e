"""The stacked engine: all clients train at once, parameters carrying the client axis.

The gradient of the *sum* of the clients' losses with respect to stacked parameters is each
client's own gradient, so plain autograd serves any model whose layers have a stacked form, and
fully connected ones take the fused path. Clients with fewer steps drop off the end of the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from .. import params
from ..arrays import Int64
from ..errors import MusterError
from ..federation import Federation
from ..federation.ragged import features
from ..local import Local
from ..params import Memory, Params
from ..parts.solvers import Gradient, Solver, Work
from ..protocol import Appraisal, Offer
from .base import CHUNK, Assignment, Base, Split, reduce
from .batches import Plan
from .corrected import drift_of
from .fused import fusable, fused_step
from .layers import stackable

Batch = tuple[Tensor, Tensor, Tensor]

AT_ONCE = 2**22  # rows whose losses are held at once
PORTION = 2**23  # bytes of models worked on together
COMPILE_FROM = 2.0e7  # parameters times rows of a round above which the compiled loop pays off


class Stacked(Base):
    """Batched products over the client axis."""

    name = "stacked"

    def __init__(
        self,
        module: nn.Module,
        fed: Federation,
        local: Local,
        dtype: torch.dtype = torch.float32,
        device: torch.device = torch.device("cpu"),
    ) -> None:
        super().__init__(module, fed, local, dtype, device)
        layers = stackable(self.module)
        if isinstance(layers, str):
            raise MusterError(
                f"engine: 'stacked' has no form for {layers}; use engine='loop' or 'auto'"
            )
        self.layers = layers
        flat = fed.train.x.dim() == 2 or isinstance(layers[0].module, nn.Flatten)
        self.fused = fusable(layers) if flat else None

    def forward(self, stack: Params, x: Tensor) -> Tensor:
        """Outputs `[K, B, classes]` of each client's model on its own inputs `[K, B, ...]`."""
        for layer in self.layers:
            x = layer.apply(stack, x)
        return x

    def train(
        self,
        solver: Solver,
        offer: Offer,
        clients: Int64,
        memory: Memory,
        assignment: Assignment = Assignment(),
    ) -> tuple[Work, Int64]:
        """Train each group of clients with similar batches as one stack."""
        groups = self.plans(solver, offer, clients, assignment)
        plans = [part for group in groups for part in self._portions(group, offer.model)]
        done: list[Work] = []
        for group in plans:
            own = {name: _rows(m, group.at) for name, m in memory.items()}
            with torch.no_grad():
                done.append(solver(StackedCohort(self, group, offer.lr, solver.draws), offer, own))
        order = np.concatenate([group.at for group in plans])
        back = np.argsort(order, kind="stable")
        steps = np.concatenate([group.steps for group in plans])[back] // solver.draws

        def joined(tables: list[Memory]) -> Memory:
            return {name: _join([t[name] for t in tables], back) for name in tables[0]}

        models = _join([work.models for work in done], back)
        return Work(
            models, joined([w.memory for w in done]), joined([w.extra for w in done])
        ), steps

    def _portions(self, group: Plan, model: Params) -> list[Plan]:
        """Cut a group so that the models of a portion stay in cache through all of its steps."""
        if self.compiled(group, model):
            return [group]
        n = max(1, PORTION // params.nbytes(model))
        return [group.cut(i, i + n) for i in range(0, len(group.at), n)]

    def compiled(self, group: Plan, model: Params) -> bool:
        """Whether the compiled loop serves this model, and is worth loading for this much work."""
        numbers = sum(t.numel() for t in model.values())
        large = float(group.count.sum()) * numbers >= COMPILE_FROM
        return (
            large and self.fused is not None and len(self.fused) == 1 and self.device.type == "cpu"
        )

    @torch.no_grad()
    def appraise_each(self, stack: Params, clients: Int64, split: Split = "train") -> Appraisal:
        """Each client's own model on its rows, several clients of similar size at a time."""
        data = self.data(split)
        sizes = data.sizes[clients]
        if len(clients) > 1 and int(sizes.sum()) > AT_ONCE:
            halves = np.array_split(np.arange(len(clients)), 2)
            parts = [self.appraise_each(_rows(stack, h), clients[h], split) for h in halves]
            return Appraisal(
                np.concatenate([p.loss for p in parts]), np.concatenate([p.accuracy for p in parts])
            )
        order = np.argsort(sizes, kind="stable")
        width = int(np.prod(data.x.shape[1:]))
        loss, right = np.empty(int(sizes.sum())), np.empty(int(sizes.sum()))
        ends = np.cumsum(sizes)
        start = 0
        while start < len(order):
            # As many clients as fit a chunk when padded to the longest of them.
            take = 1
            while (
                start + take < len(order)
                and (take + 1) * int(sizes[order[start + take]]) * width <= CHUNK
                and sizes[order[start + take]] <= 2 * sizes[order[start]]
            ):
                take += 1
            group = order[start : start + take]
            start += take
            n = sizes[group]
            slots = np.minimum(np.arange(n.max()), n[:, None] - 1)
            rows = data.base(data.offsets[clients[group], None] + slots)
            x, y = self.batch(split, rows)
            z = self.forward(_rows(stack, group), x)
            flat = functional.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="none")
            counts = np.arange(n.max()) < n[:, None]
            at = (ends[group] - n)[:, None] + slots
            loss[at[counts]] = flat.view(y.shape).cpu().numpy()[counts]
            right[at[counts]] = (z.argmax(2) == y).cpu().numpy()[counts]
        return reduce(data, clients, data.positions(clients), loss, right)


class StackedCohort:
    """One group of clients at work on the stacked engine."""

    def __init__(self, engine: Stacked, group: Plan, lr: float, draws: int = 1) -> None:
        self.engine, self.group, self.lr, self.draws = engine, group, lr, draws
        self.steps = group.steps // draws

    def _batches(self) -> Iterator[tuple[int, list[Batch]]]:
        """For each step: how many clients take it, and its batches: inputs, labels and row
        weights [n, B]."""
        group, engine = self.group, self.engine
        # Full batches are the same rows in every step, which the plan holds once.
        distinct = slice(0, 1) if group.rows.strides[1] == 0 else slice(None)
        rows = torch.from_numpy(group.rows[:, distinct].swapaxes(0, 1).copy()).to(engine.device)
        labels = engine.y["train"][rows]
        count = group.count[:, distinct, None]
        weight = np.where(np.arange(rows.shape[2]) < count, 1.0 / np.maximum(count, 1), 0.0)
        scale = torch.from_numpy(weight).to(engine.dtype).transpose(0, 1).to(engine.device)
        x = engine.x["train"].flatten(1)
        # Into the same memory every step: allocating it anew costs more than filling it.
        width = rows[0].numel() if len(rows) else 0
        rooms = [x.new_empty(width, x.shape[1]) for _ in range(self.draws)]
        for s in range(int(self.steps.max(initial=0))):
            n = group.active(s * self.draws)
            batches: list[Batch] = []
            for i, room in enumerate(rooms, start=s * self.draws):
                at = rows[i % len(rows), :n]
                drawn = torch.index_select(x, 0, at.flatten(), out=room[: at.numel()])
                inputs = features(drawn, engine.dtype).view(*at.shape, *engine.x["train"].shape[1:])
                batches.append((inputs, labels[i % len(rows), :n], scale[i % len(rows), :n]))
            yield n, batches

    def descend(
        self,
        stack: Params,
        pull: float = 0.0,
        anchor: Params | None = None,
        correction: Params | None = None,
    ) -> Params:
        """Corrected SGD: compiled for softmax regression, fused for fully connected models,
        otherwise by autograd."""
        lr, keep = self.lr, 1.0 - self.lr * pull
        drift = drift_of(stack, lr, pull, anchor, correction)
        prefixes = self.engine.fused
        if prefixes is not None and self.engine.compiled(
            self.group, {n: t[0] for n, t in stack.items()}
        ):
            self._compiled(stack, prefixes[0], keep, drift)
            return stack
        if prefixes is not None:
            for n, ((x, y, scale),) in self._batches():
                active = {name: t[:n] for name, t in stack.items()}
                fused_step(active, prefixes, x.flatten(2), y, scale.unsqueeze(1), lr, keep, drift)
            return stack

        def update(w: Params, grads: Sequence[Gradient]) -> Params:
            g = grads[0](w)
            for name, t in w.items():
                t.mul_(keep).sub_(g[name], alpha=lr)
                if drift is not None:
                    t.add_(drift[name][: len(t)])
            return w

        return self.iterate(stack, update)

    def _compiled(self, stack: Params, prefix: str, keep: float, drift: Params | None) -> None:
        from .kernel import softmax_regression

        w, bias = stack[prefix + "weight"], stack[prefix + "bias"]
        added = None
        if drift is not None:
            pair = (drift[prefix + "weight"], drift[prefix + "bias"])
            # A drift all clients share is a view that repeats one model: hand over just that one.
            w_move, b_move = ((t[:1] if t.stride(0) == 0 else t).contiguous().numpy() for t in pair)
            added = (w_move, b_move)
        x = self.engine.x["train"].flatten(1)
        softmax_regression(
            w.numpy(), bias.numpy(), x.numpy(), self.engine.y["train"].numpy(), self.group.rows,
            self.group.count, self.steps, self.lr, keep, added, torch.get_num_threads(),
        )  # fmt: skip

    def iterate(
        self, stack: Params, update: Callable[[Params, Sequence[Gradient]], Params]
    ) -> Params:
        """An update of the solver's own, on the prefix of clients that take each step."""
        for n, batches in self._batches():
            grads = [partial(self._gradient, batch) for batch in batches]
            following = update({name: t[:n] for name, t in stack.items()}, grads)
            for name, t in following.items():
                stack[name][:n] = t
        return stack

    def _gradient(self, batch: Batch, w: Params) -> Params:
        """Each client's gradient: that of the sum over clients of their mean losses."""
        x, y, scale = batch
        with torch.enable_grad():
            leaves = {name: t.detach().requires_grad_() for name, t in w.items()}
            z = self.engine.forward(leaves, x)
            flat = functional.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="none")
            total = (flat.view(y.shape) * scale).sum()
            grads = torch.autograd.grad(total, list(leaves.values()))
        return dict(zip(leaves, grads, strict=True))


def _rows(stack: Params, at: Int64) -> Params:
    """Rows of a stack, in this order; the stack itself when that is all of it in order."""
    if np.array_equal(at, np.arange(len(next(iter(stack.values()))))):
        return stack
    index = torch.from_numpy(at)
    return {name: t[index.to(t.device)] for name, t in stack.items()}


def _join(stacks: list[Params], back: Int64) -> Params:
    """Stacks of groups end to end, put back in the order that was asked for."""
    whole = stacks[0]
    if len(stacks) > 1:
        whole = {name: torch.cat([s[name] for s in stacks]) for name in whole}
    return _rows(whole, back)
