"""Where federations come from: data sets by name, and ways to partition a data set."""

from __future__ import annotations

from collections.abc import Callable

from ..federation import Federation
from .catalogue import CATALOGUE
from .digits import digits
from .huggingface import from_partitioner
from .idx import read_idx
from .images import cifar10, emnist, femnist, fmnist, mnist
from .label_mix import LabelMix
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
from .parts import Parts
from .sent140 import sent140
from .synth import synth

DATA: dict[str, Callable[..., Federation]] = {
    "synth": synth,
    "digits": digits,
    "fmnist": fmnist,
    "mnist": mnist,
    "cifar10": cifar10,
    "emnist": emnist,
    "femnist": femnist,
    "sent140": sent140,
    "folder": from_folder,
}

__all__ = [
    "CATALOGUE",
    "DATA",
    "IID",
    "PARTITIONS",
    "Dirichlet",
    "LabelMix",
    "Partition",
    "Parts",
    "Shards",
    "by_column",
    "cifar10",
    "digits",
    "emnist",
    "federate",
    "femnist",
    "fmnist",
    "from_folder",
    "from_partitioner",
    "hold_out",
    "mnist",
    "read_idx",
    "sent140",
    "synth",
]
