"""Second derivatives where a solver asks for them, without ever writing a Hessian down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..base.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


def along(loss: Tensor, weights: Sequence[Tensor], v: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The Hessian of a loss times v, exactly: the gradient of `g . v` (Pearlmutter 1994)."""
    first = torch.autograd.grad(loss, weights, create_graph=True, materialize_grads=True)
    slope = torch.stack([(g * u).sum() for g, u in zip(first, v, strict=True)]).sum()
    if not slope.requires_grad:
        return tuple(torch.zeros_like(w) for w in weights)  # the loss is linear in them
    return torch.autograd.grad(slope, weights, materialize_grads=True)
