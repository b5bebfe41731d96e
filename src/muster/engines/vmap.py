"""Any module as a stack of many clients' modules, mapped over the client axis by torch.func.

For modules without a stacked form written by hand (attention, GroupNorm, residual blocks, the
user's own). `find_obstacle` returns why a module cannot, or should not, be mapped; the mapped form
is compared with the module itself on a few rows first.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING

from ..base import params
from ..base.errors import first_line
from ..base.lazy import nn, torch
from ..base.params import Params
from .probes import mixes_rows, nearly_equal

if TYPE_CHECKING:
    from torch import Tensor

MOST = 2**20  # trained parameters up to which mapping pays: larger ones keep a process busy alone


class VmapModule:
    """The stacked form of a module: outputs `[K, B, ...]` of K models on their own inputs."""

    def __init__(self, build: Callable[[], nn.Module]) -> None:
        self._build = build
        self._own = threading.local()  # a call puts weights into the module: one for each thread

    def __call__(self, stack: Params, x: Tensor, training: bool) -> Tensor:
        module: nn.Module | None = getattr(self._own, "module", None)
        if module is None:
            module = self._own.module = _padding(self._build())
        module.train(training)

        def one(weights: Params, rows: Tensor) -> Tensor:
            outputs: Tensor = torch.func.functional_call(module, weights, (rows,))
            return outputs

        outputs: Tensor = torch.func.vmap(one)(stack, x)
        return outputs


def find_obstacle(module: nn.Module, example: Tensor, forced: bool = False) -> str:
    """Return why a module is not mapped over clients; "" if it is. `forced`: only if it cannot
    be."""
    for name, m in module.named_modules():
        kind = f"{type(m).__name__}{f' ({name})' if name else ''}"
        rate = m.p if isinstance(m, nn.modules.dropout._DropoutNd) else getattr(m, "dropout", 0.0)
        if isinstance(rate, (int, float)) and rate > 0:
            return f"{kind} draws numbers for each client by itself"
        if isinstance(m, nn.RNNBase):
            return f"{kind} has no stacked form"
        if isinstance(m, (nn.Embedding, nn.EmbeddingBag)) and m.scale_grad_by_freq:
            return f"{kind} counts the tokens of a batch"
        if isinstance(m, nn.modules.conv._ConvNd) and not forced:
            return f"{kind} is faster one client at a time"
    kept = params.get_params(module, torch.float64, torch.device("cpu"))
    moving = params.trainable_names(module)
    statistics = [name for name in kept if name not in moving]
    if statistics:
        return f"{statistics[0]} is a statistic that a training pass changes"
    size = sum(p.numel() for p in module.parameters() if p.requires_grad)
    if size > MOST and not forced:
        return f"{size} parameters train, which is enough work for a process"
    return _try_vmap(module, example)


def _try_vmap(module: nn.Module, example: Tensor) -> str:
    """Return what is wrong with a module mapped over two clients; "" if nothing is."""
    kind = type(module).__name__
    twin = deepcopy(module).double()
    mapped = VmapModule(lambda: deepcopy(twin))
    start = params.get_params(twin, torch.float64, torch.device("cpu"))
    stack = {n: torch.stack([t, 1.25 * t + 0.01]) for n, t in start.items()}
    x = example.double() if example.is_floating_point() else example
    x = torch.stack([x, x.flip(0)])

    def one_by_one(weights: Params) -> Tensor:
        own = [{n: t[k] for n, t in weights.items()} for k in range(2)]
        call = torch.func.functional_call
        return torch.stack([call(twin, own[k], (x[k].clone(),)) for k in range(2)])

    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("error")
            for training in (True, False):
                twin.train(training)
                together, slope = _differentiate(
                    partial(mapped, x=x.clone(), training=training), stack
                )
                alone, steep = _differentiate(one_by_one, stack)
                if not nearly_equal(together, alone):
                    return f"{kind} gives other numbers when it is mapped"
                if not all(map(nearly_equal, slope, steep)):
                    return f"{kind} has other gradients when it is mapped"
                if mixes_rows(twin, x[0], training):
                    return f"{kind} looks across the rows of a batch, which padding would change"
    except Warning:  # torch would take one client after another, and says so
        return f"{kind} has operations that torch.func does not map"
    except Exception as error:
        return f"{kind} cannot be mapped over clients ({first_line(error)[:80]})"
    return ""


def _differentiate(
    forward: Callable[[Params], Tensor], stack: Params
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return a module's outputs, and the gradient of their sum with different weights."""
    leaves = {n: t.clone().requires_grad_() for n, t in stack.items()}
    z = forward(leaves)
    counts = torch.linspace(0.5, 1.5, z.numel(), dtype=z.dtype).view(z.shape)
    total = (z * counts).sum()
    return z.detach(), torch.autograd.grad(total, [*leaves.values()], materialize_grads=True)


def _padding(module: nn.Module) -> nn.Module:
    """Return the module with embeddings that leave the padding token's vector alone when they are
    mapped: torch.func forgets `padding_idx`."""

    def hook(embedding: nn.Module, inputs: tuple[Tensor, ...], z: Tensor) -> Tensor:
        padding = inputs[0].eq(embedding.padding_idx)  # type: ignore[arg-type]
        return torch.where(padding.unsqueeze(-1), z.detach(), z)

    for m in module.modules():
        if isinstance(m, nn.Embedding) and m.padding_idx is not None:
            m.register_forward_hook(hook)
    return module
