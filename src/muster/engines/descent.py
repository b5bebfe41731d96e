"""Corrected descent along `g + pull (w - anchor) + correction`, as both engines run it.

FedProx pulls towards the broadcast model, SCAFFOLD corrects by its control variates, plain SGD
does neither. Any optimizer can follow that direction (`direction`). For plain SGD,
`w <- w - lr (g + pull (w - anchor) + correction)` is collected by what depends on the batch:
`w <- keep w + drift - lr g` with `keep = 1 - lr pull` and a drift that is the same in every step.

Linear and ReLU layers trained with the update fused into the backward pass.

For a stack of fully connected layers the gradient of a weight is one batched product, and SGD
adds it to the weight at once: `W.baddbmm_(G, h^T, alpha=-lr)` does both without ever storing the
gradient. Activations are `[client, features, batch]`, so that the softmax runs along a strided
axis and every product is a batched matrix multiply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import nn, torch
from ..params import Params
from .layers import Layer

if TYPE_CHECKING:
    from torch import Tensor


def drift_of(
    stack: Params, lr: float, pull: float, anchor: Params | None, correction: Params | None
) -> Params | None:
    """What corrected SGD adds in every step whatever the batch, `lr (pull anchor - correction)`,
    as a stack; None when it adds nothing."""
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


def direction(
    w: Params, g: Params, pull: float, anchor: Params | None, correction: Params | None
) -> Params:
    """`g + pull (w - anchor) + correction` for the first clients of a stack, as many as w has;
    `anchor` and `correction` are one model or a stack."""

    def of(model: Params, name: str) -> torch.Tensor:
        t = model[name]
        return t[: len(w[name])] if t.dim() == w[name].dim() else t

    total = dict(g)
    for name, t in w.items():
        if pull != 0.0 and anchor is not None:
            total[name] = total[name] + pull * (t - of(anchor, name))
        if correction is not None:
            total[name] = total[name] + of(correction, name)
    return total


def fusable(layers: list[Layer]) -> list[str] | None:
    """The prefixes of the Linear layers, when the model is (Flatten) Linear (ReLU Linear)*."""
    kinds = [type(layer.module) for layer in layers]
    body = kinds[1:] if kinds[:1] == [nn.Flatten] else kinds
    plain = len(body) % 2 == 1 and all(
        kind is (nn.Linear if i % 2 == 0 else nn.ReLU) for i, kind in enumerate(body)
    )
    linear = [layer for layer in layers if type(layer.module) is nn.Linear]
    if not plain or any(layer.module.bias is None for layer in linear):
        return None
    return [layer.prefix for layer in linear]


def fused_step(
    stack: Params,
    prefixes: list[str],
    x: Tensor,
    y: Tensor,
    scale: Tensor,
    lr: float,
    keep: float,
    drift: Params | None,
) -> None:
    """One step in place, `w <- keep w + drift - lr g`, for x `[K, B, F]` and labels `[K, B]`.

    `scale` `[K, 1, B]` is 1/|batch| for rows that count and 0 for padding. The affine form holds
    every corrected SGD: the pull towards an anchor and the correction do not depend on the batch.
    """
    hidden = [x.transpose(1, 2)]
    for i, prefix in enumerate(prefixes):
        z = torch.baddbmm(stack[prefix + "bias"].unsqueeze(2), stack[prefix + "weight"], hidden[-1])
        hidden.append(z.relu_() if i + 1 < len(prefixes) else z)
    # d loss / d z = (softmax(z) - onehot(y)) / |batch|
    g = torch.softmax(hidden.pop(), 1)
    g.scatter_add_(1, y.unsqueeze(1), g.new_full((), -1.0).expand(len(y), 1, y.shape[1]))
    g.mul_(scale)
    for i in reversed(range(len(prefixes))):
        w, b = stack[prefixes[i] + "weight"], stack[prefixes[i] + "bias"]
        h = hidden.pop()
        # The gradient below needs the weight as it was: take it before the update.
        below = None
        if i > 0:
            below = torch.bmm(w.transpose(1, 2), g)
            below = torch.ops.aten.threshold_backward(below, h, 0)
        w.baddbmm_(g, h.transpose(1, 2), beta=keep, alpha=-lr)
        if keep != 1.0:
            b.mul_(keep)
        b.sub_(g.sum(2), alpha=lr)
        if drift is not None:
            w.add_(drift[prefixes[i] + "weight"][: len(w)])
            b.add_(drift[prefixes[i] + "bias"][: len(b)])
        if below is not None:
            g = below
