"""Local optimizers by name, for `muster.Local(..., optimizer=muster.optimizers.sgd(momentum=0.9))`.

Every parameter means what it means in torch.optim. `clip` shortens a client's whole direction to
that norm. State starts fresh in every round unless `keep=True`: then each client keeps its own.
"""

from __future__ import annotations

from .parts.optimizers import Adam, AdamW, GradientDescent, Optimizer

__all__ = ["Optimizer", "adam", "adamw", "sgd"]

sgd = GradientDescent
adam = Adam
adamw = AdamW
