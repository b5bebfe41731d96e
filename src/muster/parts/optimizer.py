"""Optimizer: how a client's weights move along the direction its solver gives.

A solver says where to go (the gradient, what pulls it towards an anchor, what corrects it, or a
direction of its own); the optimizer says how far, and may remember the way so far. The two are
chosen apart, so FedProx, SCAFFOLD or Per-FedAvg go with any optimizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from ..params import Memory, Params
from ..registry import part


@runtime_checkable
class Optimizer(Protocol):
    """Moves a stack of models, each client by itself.

    What it remembers is explicit: named parts of named tensors, each with a leading client axis,
    as it has on the weights. Clients with fewer steps drop off the end of the stack, so a step may
    be given the first clients' weights and memory only, as views.

    plain  whether a step is `w <- w - lr g` and nothing else: then engines may fuse it with the
           gradient
    """

    @property
    def plain(self) -> bool:
        """Whether a step is `w <- w - lr g` and nothing else."""
        ...

    def start(self, w: Params) -> Memory:
        """What is remembered before the first step."""
        ...

    def step(self, w: Params, g: Params, state: Memory, lr: float) -> None:
        """One step along `-g`, in place on `w` and `state`."""
        ...


@part(Optimizer, "sgd")
@dataclass(frozen=True)
class GradientDescent:
    """Plain SGD, `w <- w - lr g`."""

    plain: ClassVar[bool] = True

    def start(self, w: Params) -> Memory:
        return {}

    def step(self, w: Params, g: Params, state: Memory, lr: float) -> None:
        for name, t in w.items():
            t.sub_(g[name], alpha=lr)
