"""Where federations come from: data sources by name, and ways to partition a data set."""

from __future__ import annotations

from collections.abc import Callable

from ..federation import Federation
from .digits import digits
from .fmnist import fmnist, read_idx
from .partition import (
    IID,
    PARTITIONS,
    Dirichlet,
    Partition,
    Shards,
    by_column,
    federate,
    hold_out,
)
from .synth import synth

DATA: dict[str, Callable[..., Federation]] = {"synth": synth, "digits": digits, "fmnist": fmnist}

__all__ = [
    "DATA",
    "IID",
    "PARTITIONS",
    "Dirichlet",
    "Partition",
    "Shards",
    "by_column",
    "digits",
    "federate",
    "fmnist",
    "hold_out",
    "read_idx",
    "synth",
]
