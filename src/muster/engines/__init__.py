"""Engines run the clients' work; chosen by the model, unless one is asked for."""

from __future__ import annotations

from ..base.lazy import nn
from ..federation import Federation
from ..local import Local
from ..tasks.classification import Multiclass
from ..tasks.task import Task
from .compute import Compute, ComputeOptions, resolve_compute
from .engine import Engine
from .loop_engine import LoopEngine
from .modules import examples, find_obstacle, stackable
from .stacked_engine import StackedEngine

__all__ = [
    "Compute",
    "ComputeOptions",
    "Engine",
    "LoopEngine",
    "StackedEngine",
    "choose",
    "resolve_compute",
]


def choose(
    compute: Compute,
    module: nn.Module,
    fed: Federation,
    local: Local,
    task: Task = Multiclass(),
) -> Engine:
    """Return the engine for this model: stacked when every layer has a stacked form or the module
    can be mapped over clients, else the loop. Its `why` is the reason."""
    if compute.engine == "stacked":
        return StackedEngine(module, fed, local, compute, task)
    why = "it was asked for"
    if compute.engine == "auto":
        missing = stackable(module)
        if not isinstance(missing, str):
            return StackedEngine(module, fed, local, compute, task)
        why = find_obstacle(module, examples(fed, compute.number))
        if not why:
            return StackedEngine(module, fed, local, compute, task)
    loop = LoopEngine(module, fed, local, compute, task)
    loop.why = why
    return loop
