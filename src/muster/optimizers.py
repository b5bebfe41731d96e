"""Local optimizers: the rules that move a client's weights along its solver's direction.

    muster.Local(steps=5, optimizer=muster.optimizers.sgd(momentum=0.9))

A solver gives the direction (the gradient, a pull towards an anchor, a correction); the optimizer
turns it into a step and may keep state. The two are chosen separately, so FedProx, SCAFFOLD or
Per-FedAvg work with any optimizer.

Every parameter means what it means in torch.optim, and each client's steps are those torch.optim
would take for it alone. `clip` is `torch.nn.utils.clip_grad_norm_` of a client's whole direction,
before anything else. State starts fresh in every round unless `keep=True`: then each client keeps
its own.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from .base.checks import check_above, check_at_least, require
from .base.lazy import torch
from .base.params import Params, State, as_rows, broadcast_clients
from .base.registry import part

if TYPE_CHECKING:
    from torch import Tensor


@runtime_checkable
class Optimizer(Protocol):
    """A rule that moves a stack of models, each client by itself.

    Write one by inheriting from this class; only `step` has no default. Weights and state carry a
    leading client axis. Clients with fewer steps drop off the end of the stack, so a step may get
    the weights and state of the first clients only, as views: change them in place.

    An optimizer may have a field `keep`: True if its state lasts from one round of a client to the
    next. Without the field it starts fresh in every round.
    """

    @property
    def plain(self) -> bool:
        """True if a step is `w <- w - lr g` and nothing else; engines may then fuse it."""
        return False

    def start(self, w: Params) -> State:
        """Return the state before the first step: tables of tensors by name, `{}` for none.

        Args:
            w: the weights by name, each `[client, *shape]`

        Returns:
            named tables (`"velocity"`, say) of named tensors with the same leading client axis
        """
        return {}

    @abstractmethod
    def step(self, w: Params, g: Params, state: State, lr: float) -> None:
        """Take one step along `-g`, in place on `w` and `state`.

        Args:
            w: the weights by name, each `[client, *shape]`
            g: the direction, by the same names and of the same shapes
            state: the tables of `start`, as earlier steps left them
            lr: the learning rate of this step
        """
        ...


def keeps_state(optimizer: Optimizer) -> bool:
    """Return True if an optimizer's state lasts from one round of a client to the next."""
    return bool(getattr(optimizer, "keep", False))


@part(Optimizer, "sgd")
@dataclass(frozen=True)
class GradientDescent(Optimizer):
    """Stochastic gradient descent as in torch.optim.SGD. With `d = g + weight_decay w`:

    `v <- momentum v + (1 - dampening) d` (the first step: `v = d`), then `w <- w - lr v`, or with
    `nesterov` `w <- w - lr (d + momentum v)`. Without momentum `w <- w - lr d`.

    Attributes:
        clip: largest norm of a client's direction; longer ones are shortened; None: no bound
        keep: keep the velocity from one round to the next
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
        allowed = not self.nesterov or (self.momentum > 0 and self.dampening == 0)
        require(allowed, "nesterov", self.nesterov, "with momentum above 0 and without dampening")

    @property
    def plain(self) -> bool:
        return self.momentum == 0 and self.weight_decay == 0 and self.clip is None

    def start(self, w: Params) -> State:
        if self.momentum == 0:
            return {}
        damped = {"steps": _counter(w)} if self.dampening else {}
        return {"velocity": _zeros(w), **damped}

    def step(self, w: Params, g: Params, state: State, lr: float) -> None:
        g = _add_decay(w, _clip(g, self.clip), self.weight_decay)
        first = _count_step(state) == 1 if "steps" in state else None
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


class Moments(Optimizer):
    """Base of Adam and AdamW: running means of the direction and of its square."""

    betas: tuple[float, float]
    eps: float
    amsgrad: bool
    clip: float | None

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

    def update(self, w: Params, g: Params, state: State, lr: float) -> None:
        """Take Adam's step: `m <- b1 m + (1 - b1) g`, `s <- b2 s + (1 - b2) g^2`,
        `w <- w - lr m / (1 - b1^t) / (sqrt(s / (1 - b2^t)) + eps)`; with amsgrad the largest s."""
        one, two = self.betas
        steps = _count_step(state).double()
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
    """Adam (Kingma and Ba 2015) as in torch.optim.Adam: `weight_decay` adds
    `weight_decay w` to the direction.

    Attributes:
        clip: largest norm of a client's direction; longer ones are shortened; None: no bound
        keep: keep the running means from one round to the next
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False
    clip: float | None = None
    keep: bool = False

    def step(self, w: Params, g: Params, state: State, lr: float) -> None:
        self.update(w, _add_decay(w, _clip(g, self.clip), self.weight_decay), state, lr)


@part(Optimizer, "adamw")
@dataclass(frozen=True)
class AdamW(Moments):
    """AdamW (Loshchilov and Hutter 2019) as in torch.optim.AdamW: weights decay separately,
    `w <- (1 - lr weight_decay) w`, before Adam's step.

    Attributes:
        clip: largest norm of a client's direction; longer ones are shortened; None: no bound
        keep: keep the running means from one round to the next
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    amsgrad: bool = False
    clip: float | None = None
    keep: bool = False

    def step(self, w: Params, g: Params, state: State, lr: float) -> None:
        g = _clip(g, self.clip)
        for t in w.values():
            t.mul_(1.0 - lr * self.weight_decay)
        self.update(w, g, state, lr)


def _zeros(w: Params) -> Params:
    return {name: torch.zeros_like(t) for name, t in w.items()}


def _counter(w: Params) -> Params:
    """Return a zero step count for each client."""
    one = next(iter(w.values()), None)
    return {} if one is None else {"taken": one.new_zeros(len(one))}


def _count_step(state: State) -> Tensor:
    """Add one to each client's step count, and return the counts."""
    return state["steps"]["taken"].add_(1)


def _add_decay(w: Params, g: Params, decay: float) -> Params:
    return g if decay == 0 else {name: g[name].add(t, alpha=decay) for name, t in w.items()}


def _clip(g: Params, most: float | None) -> Params:
    """Return `g min(1, most / (|g| + 1e-6))`, the norm over all of a client's parameters."""
    if most is None:
        return g
    squares = [as_rows(t).square().sum(1) for t in g.values()]
    norm = torch.stack(squares).sum(0).sqrt()
    scale = (most / (norm + 1e-6)).clamp(max=1.0)
    return {name: t * broadcast_clients(scale, t) for name, t in g.items()}


sgd = GradientDescent
adam = Adam
adamw = AdamW
