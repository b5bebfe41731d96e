"""Local optimizers by name, for `muster.Local(..., optimizer=muster.optimizers.sgd())`."""

from __future__ import annotations

from .parts.optimizer import GradientDescent, Optimizer

__all__ = ["Optimizer", "sgd"]


def sgd() -> Optimizer:
    """Plain SGD, `w <- w - lr g`. The default."""
    return GradientDescent()
