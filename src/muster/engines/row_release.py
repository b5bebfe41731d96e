"""Gradients that protect rows: each row's is bounded, and their sum is released with noise.

Rows' gradients come from one pass for all: for fully connected layers the norm of a row's gradient
is a product of two norms (Goodfellow 2015), and the sum one batched product, so no row's gradient
is ever stored. Any other model is trained as a stack in which every row is a client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..base import params
from ..base.arrays import Int64
from ..base.errors import MusterError
from ..base.lazy import nn, torch
from ..base.params import Params, as_rows, broadcast_clients
from ..federation import Federation
from ..privacy.refusals import refuse
from ..privacy.row_noise import MARGIN, NoiseSource, RowNoise, release
from ..protocol import Offer
from ..tasks.task import Task, averages_rows
from .descent import backward, dense_layers
from .modules import draws_numbers, examples, mixes_rows

if TYPE_CHECKING:
    from torch import Tensor

ROOM = 2**25  # numbers of rows' gradients that are held at once
# Rows that one product sums in the model's dtype; sums of these are float64. However it rounds, the
# sum of 128 float32 vectors moves by less than rows are shortened by.
BLOCK = 128


class RowRelease:
    """The released gradients of some clients in a round: one of each batch, and no more."""

    def __init__(
        self, noise: RowNoise, offer: Offer, clients: Int64, ids: Int64, expected: Int64
    ) -> None:
        """Begin a round.

        Args:
            expected: of each client, the public number of rows by which its sums are divided
        """
        self.clip = noise.clip
        self.deviation = noise.clip * noise.noise[clients]
        self.expected = expected.astype(np.float64)
        self.source = NoiseSource(noise.seeded, "row noise", offer.seed, offer.round, ids)
        self._steps, self._taken = 0, 0

    def begin_step(self, step: int) -> None:
        """Begin a step, with its own batch."""
        _refuse(step < self._steps)
        self._steps = step + 1

    def average(self, sums: Params, dtype: torch.dtype) -> Params:
        """Return the noisy means of the first clients, as many as the sums have, in this dtype."""
        _refuse(self._taken == self._steps)
        self._taken = self._steps
        n = len(next(iter(sums.values())))
        flat = torch.cat([as_rows(t).double().cpu() for t in sums.values()], 1).numpy()
        noisy = release(flat, self.deviation[:n], self.source) / self.expected[:n, None]
        values, found, at = torch.from_numpy(noisy), {}, 0
        for name, t in sums.items():
            size = t[0].numel()
            found[name] = values[:, at : at + size].to(t.device, dtype).view(t.shape)
            at += size
        return found


def refuse_module(module: nn.Module, fed: Federation, task: Task) -> None:
    """Refuse a module or a task with which a row's gradient is not its own alone."""
    rows = examples(fed, torch.float32)
    if not averages_rows(task):
        refuse(
            f"task {type(task).__name__}",
            "its loss ties a client's rows together",
            "use a task whose loss is a mean over rows",
        )
    if draws_numbers(module, rows):
        refuse(
            f"model: {type(module).__name__}",
            "it draws numbers in training (Dropout), from a seed that everyone knows",
            "leave that layer out",
        )
    kept = params.get_params(module, torch.float32, torch.device("cpu"))
    moving = params.trainable_names(module)
    still = [name for name in kept if name not in moving]
    if still or mixes_rows(module, rows, training=True):
        refuse(
            f"model: {still[0] if still else type(module).__name__}",
            "it looks across the rows of a batch",
            "use a model with GroupNorm or LayerNorm in place of BatchNorm",
        )


def _refuse(again: bool) -> None:
    """Refuse a second gradient of a batch: one is accounted for."""
    if again:
        raise MusterError(
            "privacy.unit: 'rows', and the solver takes more than one gradient of a batch; use "
            'solver = "sgd" or "control_variates"'
        )


def shorten(square: Tensor, clip: float) -> Tensor:
    """Return the factor that brings a gradient with this squared norm within the clip; 0 for one
    that is not finite."""
    factor = (MARGIN * clip / square.sqrt()).clamp(max=1.0)
    return torch.where(torch.isfinite(square), factor, torch.zeros_like(factor))


def sum_layers(
    stack: Params, prefixes: list[str], x: Tensor, y: Tensor, counts: Tensor, clip: float
) -> Params:
    """Return each client's sum of bounded gradients of its rows, in float64, for Linear and ReLU
    layers under cross-entropy: a row's gradient of a layer is `g h^T`, of norm `|g| |h|`.

    Args:
        x: inputs [K, F, B]
        y: labels, one-hot [K, classes, B]
        counts: [K, B]: 1 for rows that count, 0 for padding
    """
    layers = list(backward(dense_layers(stack, prefixes), x, y, counts.unsqueeze(1)))
    square = sum(g.pow(2).sum(1) * (h.pow(2).sum(1) + 1.0) for _, g, h in layers)
    factor = shorten(torch.as_tensor(square), clip).unsqueeze(1)
    found: Params = {}
    for (prefix, *_), g, h in layers:
        g = torch.where(factor > 0, g * factor, torch.zeros_like(g))
        h = torch.where(factor > 0, h, torch.zeros_like(h))
        pairs = torch.split(g, BLOCK, 2), torch.split(h.transpose(1, 2), BLOCK, 1)
        blocks = list(zip(*pairs, strict=True))
        weight = sum(torch.bmm(a, b).double() for a, b in blocks)
        found[prefix + "weight"] = torch.as_tensor(weight)
        found[prefix + "bias"] = g.sum(2, dtype=torch.float64)
    return {name: found[name] for name in stack}


def sum_rows(
    loss: Callable[[Params, Tensor, Tensor], Tensor],
    stack: Params,
    x: Tensor,
    y: Tensor,
    counts: Tensor,
    clip: float,
) -> Params:
    """Return each client's sum of bounded gradients of its rows, in float64, for any model.

    Args:
        loss: the losses of a stack of models `[n, ...]` on one row each, `[n, 1, ...]`
        x: inputs [K, B, ...]
        counts: [K, B]: 1 for rows that count, 0 for padding
    """
    clients, rows = counts.shape
    size = sum(t[0].numel() for t in stack.values())
    together = max(1, ROOM // max(1, clients * size))
    total = {name: torch.zeros_like(t, dtype=torch.float64) for name, t in stack.items()}
    for start in range(0, rows, together):
        part = slice(start, start + together)
        width = counts[:, part].shape[1]
        leaves = {
            name: t.detach().repeat_interleave(width, 0).requires_grad_()
            for name, t in stack.items()
        }
        single = (t[:, part].flatten(0, 1).unsqueeze(1) for t in (x, y))
        with torch.enable_grad():
            every = loss(leaves, *single).sum()
            grads = torch.autograd.grad(every, [*leaves.values()], materialize_grads=True)
        square = torch.stack([as_rows(g).pow(2).sum(1) for g in grads]).sum(0)
        factor = shorten(square, clip) * counts[:, part].flatten()
        for name, g in zip(leaves, grads, strict=True):
            scale = broadcast_clients(factor, g)
            bounded = torch.where(scale > 0, scale * g, torch.zeros_like(g))
            each = bounded.view(clients, width, *g.shape[1:])
            total[name] += each.sum(1, dtype=torch.float64)
    return total


def expect_rows(sizes: Int64, batch_size: int | None) -> Int64:
    """Return the public number of rows by which sums over a batch are divided: those of a full
    batch, or as many as a drawn one has on average."""
    return sizes if batch_size is None else np.minimum(sizes, batch_size)
