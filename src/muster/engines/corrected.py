"""Corrected SGD, `w <- w - lr (g + pull (w - anchor) + correction)`, as both engines run it.

Collected by what depends on the batch: `w <- keep w + drift - lr g` with `keep = 1 - lr pull`
and a drift that is the same in every step. FedProx pulls towards the broadcast model, SCAFFOLD
corrects by its control variates, plain SGD does neither.
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
