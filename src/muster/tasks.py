"""Tasks by name, for `muster.simulate(..., task=muster.tasks.multiclass())`."""

from __future__ import annotations

from .parts.task import Multiclass, Task

__all__ = ["Task", "multiclass"]


def multiclass() -> Task:
    """One of several classes: cross-entropy and accuracy. The default."""
    return Multiclass()
