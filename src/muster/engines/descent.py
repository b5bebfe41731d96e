"""Descent as both engines run it: the optimizer, its state and the learning rate of every step
(`LocalSteps`), along `g + pull (w - anchor) + correction`.

FedProx pulls towards the broadcast model, SCAFFOLD corrects by its control variates, plain SGD
does neither. Any optimizer can follow that direction (`direction`). For plain SGD,
`w <- w - lr (g + pull (w - anchor) + correction)` is collected by what depends on the batch:
`w <- keep w + drift - lr g` with `keep = 1 - lr pull` and a drift that is the same in every step.

Linear and ReLU layers trained with the update fused into the backward pass.

For a stack of fully connected layers the gradient of a weight is one batched product, and SGD
adds it to the weight at once: `W.baddbmm_(G, h^T, alpha=-lr)` does both without ever storing the
gradient. Solvers and optimizers that need the gradient itself get it by the same products.
Activations are `[client, features, batch]`, so that the softmax runs along a strided
axis and every product is a batched matrix multiply.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..base.arrays import Int64
from ..base.lazy import nn, torch
from ..base.params import Params, State, copy
from ..local import Local
from ..optimizers import Optimizer, keeps_state
from ..protocol import Offer
from .modules import Layer

if TYPE_CHECKING:
    from torch import Tensor

SLOT = "optimizer"  # prefix of an optimizer's tables in a client's state: optimizer0.mean


class LocalSteps:
    """The steps of some clients in one round.

    Attributes:
        rounds: rounds of the whole run
        rates: the learning rate of each step, as many as the busiest client takes
        constant_rate: the one rate of all steps; None where they differ
        optimizer_state: the optimizer's state at the end, for the clients' state
    """

    def __init__(self, local: Local, offer: Offer, steps: Int64, memory: State) -> None:
        self.optimizer: Optimizer = local.optimizer
        self.steps, self.rounds = steps, offer.rounds
        most = int(steps.max(initial=0))
        self.constant_rate = offer.lr if local.constant else None
        self.rates = [
            offer.lr if local.constant else local.rate_at(offer.round, j, offer.rounds)
            for j in range(most)
        ]
        self._memory = {p: m for p, m in memory.items() if p.startswith(SLOT)}
        self.optimizer_state: State = {}
        self._descents = 0

    @property
    def plain_rate(self) -> float | None:
        """The one rate of all steps where each is `w <- w - lr d`; None elsewhere."""
        return self.constant_rate if self.optimizer.plain else None

    def state(self, w: Params) -> State:
        """Return the optimizer's state before a descent's first step, to be changed in place."""
        slot = f"{SLOT}{self._descents}."
        self._descents += 1
        mine = {p: m for p, m in self._memory.items() if p.startswith(slot)}
        last = {part.removeprefix(slot): copy(table) for part, table in mine.items()}
        if not last:
            return self.optimizer.start(w)
        self.optimizer_state |= {slot + part: table for part, table in last.items()}
        return last


def initial_optimizer_state(optimizer: Optimizer, descents: int, model: Params) -> State:
    """Return a client's first optimizer state where it lasts over rounds: one for each of the
    solver's descents in a round."""
    if not keeps_state(optimizer):
        return {}
    fresh = optimizer.start({name: t[None] for name, t in model.items()})
    return {
        f"{SLOT}{i}.{part}": {name: t[0] for name, t in table.items()}
        for i in range(descents)
        for part, table in fresh.items()
    }


def compute_drift(
    stack: Params, lr: float, pull: float, anchor: Params | None, correction: Params | None
) -> Params | None:
    """Return what corrected SGD adds in every step whatever the batch, `lr (pull anchor -
    correction)`, as a stack; None when it adds nothing."""
    if pull == 0.0 and correction is None:
        return None
    drift: Params = {}
    for name, t in stack.items():
        total = torch.zeros((), dtype=t.dtype, device=t.device)
        if pull != 0.0 and anchor is not None:
            total = total + lr * pull * anchor[name]
        if correction is not None:
            total = total - lr * correction[name]
        drift[name] = total.expand_as(t)
    return drift


class DriftCache:
    """The drift for each learning rate: computed once where it does not change."""

    def __init__(
        self, stack: Params, pull: float, anchor: Params | None, correction: Params | None
    ) -> None:
        self._stack, self._pull = stack, pull  # shapes alone are taken of the stack, which moves
        self._anchor, self._correction = anchor, correction
        self._lr = float("nan")
        self._drift: Params | None = None

    def at(self, lr: float) -> Params | None:
        """Return what a step at this learning rate adds whatever the batch."""
        if lr != self._lr:
            self._lr = lr
            self._drift = compute_drift(self._stack, lr, self._pull, self._anchor, self._correction)
        return self._drift


def direction(
    w: Params, g: Params, pull: float, anchor: Params | None, correction: Params | None
) -> Params:
    """`g + pull (w - anchor) + correction` for the first clients of a stack, as many as w has;
    `anchor` and `correction` are one model or a stack."""

    def take(model: Params, name: str) -> torch.Tensor:
        t = model[name]
        return t[: len(w[name])] if t.dim() == w[name].dim() else t

    total = dict(g)
    for name, t in w.items():
        if pull != 0.0 and anchor is not None:
            total[name] = total[name] + pull * (t - take(anchor, name))
        if correction is not None:
            total[name] = total[name] + take(correction, name)
    return total


def hessian_product(
    loss: Tensor, weights: Sequence[Tensor], v: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Return the Hessian of a loss times v, exactly: the gradient of `g . v` (Pearlmutter 1994)."""
    first = torch.autograd.grad(loss, weights, create_graph=True, materialize_grads=True)
    slope = torch.stack([(g * u).sum() for g, u in zip(first, v, strict=True)]).sum()
    if not slope.requires_grad:
        return tuple(torch.zeros_like(w) for w in weights)  # the loss is linear in them
    return torch.autograd.grad(slope, weights, materialize_grads=True)


def fusable(layers: list[Layer]) -> list[str] | None:
    """Return the prefixes of the Linear layers, when the model is (Flatten) Linear (ReLU
    Linear)*."""
    kinds = [type(layer.module) for layer in layers]
    body = kinds[1:] if kinds[:1] == [nn.Flatten] else kinds
    plain = len(body) % 2 == 1 and all(
        kind is (nn.Linear if i % 2 == 0 else nn.ReLU) for i, kind in enumerate(body)
    )
    linear = [layer for layer in layers if type(layer.module) is nn.Linear]
    if not plain or any(layer.module.bias is None for layer in linear):
        return None
    return [layer.prefix for layer in linear]


class Dense(NamedTuple):
    """A Linear layer of a stack of models: `weight` [K, out, in], `bias` [K, out], and the bias as
    a column [K, out, 1]."""

    prefix: str
    weight: Tensor
    bias: Tensor
    column: Tensor


def dense_layers(stack: Params, prefixes: list[str]) -> list[Dense]:
    """Return the layers of a stack, as views."""
    named = [(prefix, stack[prefix + "weight"], stack[prefix + "bias"]) for prefix in prefixes]
    return [Dense(prefix, w, b, b.unsqueeze(2)) for prefix, w, b in named]


def backward(
    layers: list[Dense], x: Tensor, y: Tensor, scale: Tensor
) -> Iterator[tuple[Dense, Tensor, Tensor]]:
    """Yield, from the last layer to the first: the layer, the loss's gradient with respect to its
    output `[K, out, B]`, and its input `[K, in, B]`, for x `[K, F, B]` and one-hot labels
    `[K, classes, B]`.

    `scale` `[K, 1, B]` is 1/|batch| for rows that count and 0 for padding. A layer may be changed
    in place once it is given out: nothing asks for it again.
    """
    hidden = [x]
    for layer in layers:
        z = torch.baddbmm(layer.column, layer.weight, hidden[-1])
        hidden.append(z.relu_() if layer is not layers[-1] else z)
    # d loss / d z = (softmax(z) - onehot(y)) / |batch|
    g = torch.softmax(hidden.pop(), 1).sub_(y).mul_(scale)
    for layer in reversed(layers):
        h, below = hidden.pop(), g
        if hidden:
            below = torch.bmm(layer.weight.transpose(1, 2), g)
            below = torch.ops.aten.threshold_backward(below, h, 0)
        yield layer, g, h
        g = below


def linear_gradient(prefix: str, x: Tensor, slope: Tensor) -> Params:
    """Return each client's gradient of one linear layer, by the products that autograd takes: from
    its inputs `[K, B, F]` and the loss's gradient with respect to its outputs `[K, B, out]`."""
    weight = torch.bmm(x.transpose(1, 2), slope).transpose(1, 2)
    return {prefix + "weight": weight, prefix + "bias": slope.sum(1)}


def fused_step(
    layers: list[Dense],
    x: Tensor,
    y: Tensor,
    scale: Tensor,
    lr: float,
    keep: float,
    drift: Params | None,
) -> None:
    """Take one step in place, `w <- keep w + drift - lr g`, on the batch that `backward` takes. The
    affine form holds every corrected SGD: the pull towards an anchor and the correction do not
    depend on the batch."""
    for (prefix, w, b, _), g, h in backward(layers, x, y, scale):
        w.baddbmm_(g, h.transpose(1, 2), beta=keep, alpha=-lr)
        if keep != 1.0:
            b.mul_(keep)
        b.sub_(g.sum(2), alpha=lr)
        if drift is not None:
            w.add_(drift[prefix + "weight"][: len(w)])
            b.add_(drift[prefix + "bias"][: len(b)])


def fused_gradient(
    stack: Params, prefixes: list[str], x: Tensor, y: Tensor, scale: Tensor
) -> Params:
    """Return each client's gradient on the batch that `backward` takes, as autograd would."""
    found: Params = {}
    for layer, g, h in backward(dense_layers(stack, prefixes), x, y, scale):
        found[layer.prefix + "weight"] = torch.bmm(g, h.transpose(1, 2))
        found[layer.prefix + "bias"] = g.sum(2)
    return {name: found[name] for name in stack}
