"""Engines: how the clients' work is run. Chosen from the model, and can be forced."""

from __future__ import annotations

from ..federation import Federation
from ..lazy import nn
from ..local import Local
from ..parts.task import Multiclass, Task
from .base import Engine
from .compute import Compute, How, compute_of
from .layers import stackable
from .loop import Loop
from .stacked import Stacked

__all__ = ["Compute", "Engine", "How", "Loop", "Stacked", "choose", "compute_of"]


def choose(
    compute: Compute,
    module: nn.Module,
    fed: Federation,
    local: Local,
    task: Task = Multiclass(),
) -> Engine:
    """The engine for this model: stacked when every layer has a stacked form, else the loop."""
    auto = compute.engine == "auto"
    if compute.engine == "stacked" or (auto and not isinstance(stackable(module), str)):
        return Stacked(module, fed, local, compute, task)
    return Loop(module, fed, local, compute, task)
