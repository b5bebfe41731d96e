"""Engines: how the clients' work is run. Chosen from the model, and can be forced."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from ..errors import MusterError, unknown
from ..federation import Federation
from ..local import Local
from .base import Engine
from .layers import stackable
from .loop import Loop
from .stacked import Stacked

EngineName = Literal["auto", "stacked", "loop"]

__all__ = ["Engine", "EngineName", "Loop", "Stacked", "choose"]


def choose(
    name: str,
    module: nn.Module,
    fed: Federation,
    local: Local,
    dtype: torch.dtype,
    device: str = "cpu",
    processes: int | None = None,
) -> Engine:
    """The engine for this model: stacked when every layer has a stacked form, else the loop."""
    if name not in ("auto", "stacked", "loop"):
        raise unknown("engine", name, ("auto", "stacked", "loop"))
    if processes is not None and processes < 1:
        raise MusterError(f"processes: {processes}; allowed: 1 and above")
    try:
        where = torch.device(device)
    except RuntimeError:
        raise MusterError(f"device: '{device}'; allowed: cpu, cuda, cuda:0, ...") from None
    if where.type == "cuda" and not torch.cuda.is_available():
        raise MusterError(f"device: '{device}', but no CUDA device is present; use device='cpu'")
    if name == "stacked" or (name == "auto" and not isinstance(stackable(module), str)):
        return Stacked(module, fed, local, dtype, where)
    return Loop(module, fed, local, dtype, where, processes)
