"""Optimizer: how a client's weights move along the direction its solver gives.

A solver says where to go (the gradient, what pulls it towards an anchor, what corrects it, or a
direction of its own); the optimizer says how far, and may remember the way so far. The two are
chosen apart, so FedProx, SCAFFOLD or Per-FedAvg go with any optimizer.

Every parameter means what it means in torch.optim, and each client's steps are those that
torch.optim would take for it alone. `clip` is `torch.nn.utils.clip_grad_norm_` of a client's whole
direction, before anything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ..base.checks import check_above, check_at_least, require
from ..base.lazy import torch
from ..base.params import Params, State, as_rows, broadcast_clients
from ..base.registry import part

if TYPE_CHECKING:
    from torch import Tensor


@runtime_checkable
class Optimizer(Protocol):
    """Moves a stack of models, each client by itself.

    What it remembers is explicit: named parts of named tensors, each with a leading client axis,
    as it has on the weights. Clients with fewer steps drop off the end of the stack, so a step may
    be given the first clients' weights and memory only, as views.

    An optimizer may have a field `keep`: whether what it remembers lasts from one round of a client
    to the next. Without it, or where it is false, it starts fresh in every round.

    Attributes:
        plain: whether a step is `w <- w - lr g` and nothing else: then engines may fuse it with the
            gradient
    """

    @property
    def plain(self) -> bool:
        """Whether a step is `w <- w - lr g` and nothing else."""
        ...

    def start(self, w: Params) -> State:
        """What is remembered before the first step."""
        ...

    def step(self, w: Params, g: Params, state: State, lr: float) -> None:
        """One step along `-g`, in place on `w` and `state`."""
        ...


def keeps(optimizer: Optimizer) -> bool:
    """Whether what an optimizer remembers lasts from one round of a client to the next."""
    return bool(getattr(optimizer, "keep", False))


@part(Optimizer, "sgd")
@dataclass(frozen=True)
class GradientDescent:
    """SGD as torch.optim.SGD takes it. With `d = g + weight_decay w`:

    `v <- momentum v + (1 - dampening) d` (the first step: `v = d`), then `w <- w - lr v`, or with
    `nesterov` `w <- w - lr (d + momentum v)`. Without momentum `w <- w - lr d`.

    Attributes:
        clip: the most that a client's direction may have as its norm; longer ones are shortened
        keep: whether the velocity lasts from one round to the next
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    dampening: float = 0.0
    clip: float | None = None
    keep: bool = False

    def __post_init__(self) -> None:
        check_at_least("momentum", self.momentum)
        check_at_least("weight_decay", self.weight_decay)
        if self.clip is not None:
            check_above("clip", self.clip)
        require(
            not self.nesterov or (self.momentum > 0 and self.dampening == 0),
            "nesterov", self.nesterov, "with momentum above 0 and without dampening",
        )  # fmt: skip

    @property
    def plain(self) -> bool:
        return self.momentum == 0 and self.weight_decay == 0 and self.clip is None

    def start(self, w: Params) -> State:
        if self.momentum == 0:
            return {}
        damped = {"steps": _counter(w)} if self.dampening else {}
        return {"velocity": _zeros(w), **damped}

    def step(self, w: Params, g: Params, state: State, lr: float) -> None:
        g = _decayed(w, _clipped(g, self.clip), self.weight_decay)
        first = _counted(state) == 1 if "steps" in state else None
        for name, t in w.items():
            d = g[name]
            if self.momentum:
                v = state["velocity"][name]
                added = (1.0 - self.dampening) * d
                if first is not None:
                    added = torch.where(broadcast_clients(first, d), d, added)
                v.mul_(self.momentum).add_(added)
                d = d + self.momentum * v if self.nesterov else v
            t.sub_(d, alpha=lr)


class Moments:
    """What Adam and AdamW share: running means of the direction and of its square."""

    betas: tuple[float, float]
    eps: float
    amsgrad: bool
    clip: float | None
    plain = False

    def __post_init__(self) -> None:
        within = len(self.betas) == 2 and all(0 <= b < 1 for b in self.betas)
        require(within, "betas", self.betas, "two numbers from 0 up to but not 1")
        check_at_least("eps", self.eps)
        check_at_least("weight_decay", getattr(self, "weight_decay", 0.0))
        if self.clip is not None:
            check_above("clip", self.clip)

    def start(self, w: Params) -> State:
        most = {"most": _zeros(w)} if self.amsgrad else {}
        return {"mean": _zeros(w), "square": _zeros(w), **most, "steps": _counter(w)}

    def move(self, w: Params, g: Params, state: State, lr: float) -> None:
        """`m <- b1 m + (1 - b1) g`, `s <- b2 s + (1 - b2) g^2`,
        `w <- w - lr m / (1 - b1^t) / (sqrt(s / (1 - b2^t)) + eps)`; with amsgrad the largest s."""
        one, two = self.betas
        steps = _counted(state).double()
        for name, t in w.items():
            mean, square = state["mean"][name], state["square"][name]
            mean.lerp_(g[name], 1.0 - one)
            square.mul_(two).addcmul_(g[name], g[name], value=1.0 - two)
            if self.amsgrad:
                square = torch.maximum(state["most"][name], square, out=state["most"][name])
            # In float64: early on 1 - b2^t is small, and float32 would leave it four digits.
            reach, root = lr / (1.0 - one**steps), (1.0 - two**steps).sqrt()
            below = (square.sqrt() / broadcast_clients(root, t).to(t)).add_(self.eps)
            t.sub_(broadcast_clients(reach, t).to(t) * mean / below)


@part(Optimizer, "adam")
@dataclass(frozen=True)
class Adam(Moments):
    """Adam (Kingma and Ba 2015) as torch.optim.Adam takes it: `weight_decay` adds
    `weight_decay w` to the direction.

    Attributes:
        clip: the most that a client's direction may have as its norm; longer ones are shortened
        keep: whether the running means last from one round to the next
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False
    clip: float | None = None
    keep: bool = False

    def step(self, w: Params, g: Params, state: State, lr: float) -> None:
        self.move(w, _decayed(w, _clipped(g, self.clip), self.weight_decay), state, lr)


@part(Optimizer, "adamw")
@dataclass(frozen=True)
class AdamW(Moments):
    """AdamW (Loshchilov and Hutter 2019) as torch.optim.AdamW takes it: weights decay by
    themselves, `w <- (1 - lr weight_decay) w`, before Adam's step.

    Attributes:
        clip: the most that a client's direction may have as its norm; longer ones are shortened
        keep: whether the running means last from one round to the next
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    amsgrad: bool = False
    clip: float | None = None
    keep: bool = False

    def step(self, w: Params, g: Params, state: State, lr: float) -> None:
        g = _clipped(g, self.clip)
        for t in w.values():
            t.mul_(1.0 - lr * self.weight_decay)
        self.move(w, g, state, lr)


def _zeros(w: Params) -> Params:
    return {name: torch.zeros_like(t) for name, t in w.items()}


def _counter(w: Params) -> Params:
    """Steps taken, one number per client: clients with fewer steps drop off the stack."""
    one = next(iter(w.values()), None)
    return {} if one is None else {"taken": one.new_zeros(len(one))}


def _counted(state: State) -> Tensor:
    return state["steps"]["taken"].add_(1)


def _decayed(w: Params, g: Params, decay: float) -> Params:
    return g if decay == 0 else {name: g[name].add(t, alpha=decay) for name, t in w.items()}


def _clipped(g: Params, most: float | None) -> Params:
    """`g min(1, most / (|g| + 1e-6))`, the norm over all of a client's parameters."""
    if most is None:
        return g
    squares = [as_rows(t).square().sum(1) for t in g.values()]
    norm = torch.stack(squares).sum(0).sqrt()
    scale = (most / (norm + 1e-6)).clamp(max=1.0)
    return {name: t * broadcast_clients(scale, t) for name, t in g.items()}
