"""Engines run the clients' work; chosen by the model, unless one is asked for."""

from __future__ import annotations

import re
import warnings

from .. import __version__
from ..base.errors import MusterWarning, plural
from ..base.lazy import nn, torch
from ..federation import Federation
from ..local import Local
from ..privacy.row_noise import RowNoise
from ..tasks.classification import Multiclass
from ..tasks.task import Task
from .compute import Compute, ComputeOptions, resolve_compute
from .engine import Engine
from .loop_engine import LoopEngine
from .modules import examples, find_obstacle, stackable
from .rank_group import read_numbers
from .ranks import SPREAD, digest
from .stacked_engine import StackedEngine

__all__ = [
    "Compute",
    "ComputeOptions",
    "Engine",
    "LoopEngine",
    "StackedEngine",
    "choose",
    "find_engine",
    "resolve_compute",
]

ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of a function in a repr: another one in each process


def choose(
    compute: Compute,
    module: nn.Module,
    fed: Federation,
    local: Local,
    task: Task = Multiclass(),
    row_noise: RowNoise | None = None,
) -> Engine:
    """Return the engine for this model: stacked when every layer has a stacked form or the module
    can be mapped over clients, else the loop. Its `why` is the reason. With "spread" it shares its
    work with the other ranks, which must have the same data, model and versions."""
    if compute.engine == SPREAD:
        return _choose_spread(compute, module, fed, local, task)
    return _choose(compute, module, fed, local, task, row_noise)


def _choose_spread(
    compute: Compute, module: nn.Module, fed: Federation, local: Local, task: Task
) -> Engine:
    if read_numbers().size == 1:
        warnings.warn(
            "engine: 'spread' in one process; to share its work, start it by torchrun "
            "(torchrun --standalone --nproc_per_node 2 -m muster run ...)",
            MusterWarning,
            stacklevel=2,
        )
    engine = _choose(compute, module, fed, local, task)
    engine.ranks.require_same(
        {
            "version of muster": __version__,
            "version of torch": torch.__version__,
            "data": fed.fingerprint(),
            "model": str(digest([type(module), module.state_dict()])),
            "local work": ADDRESS.sub("", repr(local)),
            "task": ADDRESS.sub("", repr(task)),
            "dtype or device": f"{compute.dtype} {engine.device.type}",
            "engine": engine.name,
        }
    )
    engine.why += f"; spread over {plural(engine.ranks.size, 'process')}"
    engine.ranks.begin()
    return engine


def _choose(
    compute: Compute,
    module: nn.Module,
    fed: Federation,
    local: Local,
    task: Task,
    row_noise: RowNoise | None = None,
) -> Engine:
    kind, why = find_engine(compute, module, fed)
    engine = kind(module, fed, local, compute, task, row_noise)
    engine.why = why or engine.why
    return engine


def find_engine(
    compute: Compute, module: nn.Module, fed: Federation
) -> tuple[type[StackedEngine | LoopEngine], str]:
    """Return the class of the engine for this model, and why it is the loop where it is that."""
    if compute.engine == "loop":
        return LoopEngine, "it was asked for"
    if compute.engine == "stacked" or not isinstance(stackable(module), str):
        return StackedEngine, ""
    why = find_obstacle(module, examples(fed, compute.number))
    return (LoopEngine, why) if why else (StackedEngine, "")
