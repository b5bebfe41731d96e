"""A module of any kind as a stack of many clients': mapped over the client axis by torch.func.

For what has no stacked form written by hand (attention, GroupNorm, residual blocks, modules of
one's own). `refused` says why a module cannot be mapped, or had better not be; what it takes is
tried out first on a few rows, against the module itself.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING

from .. import params
from ..errors import first_line
from ..lazy import nn, torch
from ..params import Params

if TYPE_CHECKING:
    from torch import Tensor

MOST = 2**20  # trained parameters up to which mapping pays: larger ones keep a process busy alone
CLOSE = 1e-8  # how far a mapped module may be from the module itself, in float64


class Mapped:
    """The stacked form of a module: outputs `[K, B, ...]` of K models on their own inputs."""

    def __init__(self, build: Callable[[], nn.Module]) -> None:
        self._build = build
        self._own = threading.local()  # a call puts weights into the module: one for each thread

    def __call__(self, stack: Params, x: Tensor, training: bool) -> Tensor:
        module: nn.Module | None = getattr(self._own, "module", None)
        if module is None:
            module = self._own.module = self._build()
        module.train(training)

        def one(weights: Params, rows: Tensor) -> Tensor:
            outputs: Tensor = torch.func.functional_call(module, weights, (rows,))
            return outputs

        said: Tensor = torch.func.vmap(one)(stack, x)
        return said


def refused(module: nn.Module, example: Tensor, forced: bool = False) -> str:
    """Why a module is not mapped over clients; "" when it is. `forced`: only what cannot be."""
    for name, m in module.named_modules():
        kind = f"{type(m).__name__}{f' ({name})' if name else ''}"
        rate = m.p if isinstance(m, nn.modules.dropout._DropoutNd) else getattr(m, "dropout", 0.0)
        if isinstance(rate, (int, float)) and rate > 0:
            return f"{kind} draws numbers for each client by itself"
        if isinstance(m, nn.RNNBase):
            return f"{kind} has no stacked form"
        if isinstance(m, nn.modules.conv._ConvNd) and not forced:
            return f"{kind} is faster one client at a time"
    kept = params.of_module(module, torch.float64, torch.device("cpu"))
    moving = params.trainable(module)
    statistics = [name for name in kept if name not in moving]
    if statistics:
        return f"{statistics[0]} is a statistic that a training pass changes"
    size = sum(p.numel() for p in module.parameters() if p.requires_grad)
    if size > MOST and not forced:
        return f"{size} parameters train, which is enough work for a process"
    return _tried(module, example)


def _tried(module: nn.Module, example: Tensor) -> str:
    """What is wrong with a module that is mapped over two clients; "" when nothing is."""
    twin = deepcopy(module).double()
    start = params.of_module(twin, torch.float64, torch.device("cpu"))
    stack = {n: torch.stack([t, 1.25 * t + 0.01]) for n, t in start.items()}
    x = example.double() if example.is_floating_point() else example
    x = torch.stack([x, x.flip(0)])
    mapped = Mapped(lambda: twin)
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("error")
            for training in (True, False):
                leaves = {n: t.clone().requires_grad_() for n, t in stack.items()}
                said = mapped(leaves, x, training)
                torch.autograd.grad(said.sum(), list(leaves.values()), materialize_grads=True)
                for k in range(2):
                    own = {n: t[k] for n, t in stack.items()}
                    alone = torch.func.functional_call(twin, own, (x[k],))
                    if not torch.allclose(said[k], alone, atol=CLOSE, rtol=CLOSE):
                        return f"{type(module).__name__} gives other numbers when it is mapped"
    except Warning:  # torch would take one client after another, and says so
        return f"{type(module).__name__} has operations that torch.func does not map"
    except Exception as error:
        return f"{type(module).__name__} cannot be mapped over clients ({first_line(error)[:80]})"
    return ""
