"""Engines: how the clients' work is run. Chosen from the model, and can be forced."""

from __future__ import annotations

from ..base.lazy import nn
from ..federation import Federation
from ..local import Local
from ..tasks.base import Task
from ..tasks.classification import Multiclass
from .base import Engine
from .compute import Compute, How, compute_of
from .layers import stackable
from .loop import Loop
from .mapped import refused
from .probes import examples
from .stacked import Stacked

__all__ = ["Compute", "Engine", "How", "Loop", "Stacked", "choose", "compute_of"]


def choose(
    compute: Compute,
    module: nn.Module,
    fed: Federation,
    local: Local,
    task: Task = Multiclass(),
) -> Engine:
    """The engine for this model: stacked when every layer has a stacked form or the module can be
    mapped over clients, else the loop. It says why it was chosen."""
    if compute.engine == "stacked":
        return Stacked(module, fed, local, compute, task)
    why = "it was asked for"
    if compute.engine == "auto":
        missing = stackable(module)
        if not isinstance(missing, str):
            return Stacked(module, fed, local, compute, task)
        why = refused(module, examples(fed, compute.number))
        if not why:
            return Stacked(module, fed, local, compute, task)
    loop = Loop(module, fed, local, compute, task)
    loop.why = why
    return loop
