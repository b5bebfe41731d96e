"""Corrected descent along `g + pull (w - anchor) + correction`, as both engines run it.

FedProx pulls towards the broadcast model, SCAFFOLD corrects by its control variates, plain SGD
does neither. Any optimizer can follow that direction (`direction`). For plain SGD,
`w <- w - lr (g + pull (w - anchor) + correction)` is collected by what depends on the batch:
`w <- keep w + drift - lr g` with `keep = 1 - lr pull` and a drift that is the same in every step.
"""

from __future__ import annotations

import torch

from ..params import Params


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
