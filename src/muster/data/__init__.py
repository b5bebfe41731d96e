"""Where federations come from: data sources by name, and ways to partition a data set."""

from __future__ import annotations

from collections.abc import Callable

from ..federation import Federation
from .digits import digits
from .fmnist import fmnist, read_idx
from .huggingface import from_partitioner
from .own import from_folder
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

DATA: dict[str, Callable[..., Federation]] = {
    "synth": synth,
    "digits": digits,
    "fmnist": fmnist,
    "folder": from_folder,
}

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
    "from_folder",
    "from_partitioner",
    "hold_out",
    "read_idx",
    "synth",
]
