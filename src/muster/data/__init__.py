"""Where federations come from: data sets by name, and ways to partition a data set."""

from __future__ import annotations

from ..base.registry import kinds
from ..federation import Federation
from .files.folder import from_folder
from .files.huggingface import from_partitioner
from .sets.diabetes import diabetes
from .sets.digits import digits
from .sets.heart import heart
from .sets.images import cifar10, emnist, femnist, fmnist, mnist
from .sets.sent140 import sent140
from .sets.synth import synth
from .sources.catalogue import CATALOGUE
from .sources.readers import read_idx
from .split.few import Few
from .split.label_mix import LabelMix
from .split.partition import (
    IID,
    PARTITIONS,
    Dirichlet,
    Partition,
    Shards,
    by_column,
    federate,
    hold_out,
)
from .split.portions import Parts, Portions
from .split.tuning_rows import for_tuning, leave_out

DATA = kinds(Federation)  # data sets by name; what registers later is in it too

__all__ = [
    "CATALOGUE",
    "DATA",
    "IID",
    "PARTITIONS",
    "Dirichlet",
    "Few",
    "LabelMix",
    "Partition",
    "Parts",
    "Portions",
    "Shards",
    "by_column",
    "cifar10",
    "diabetes",
    "digits",
    "emnist",
    "federate",
    "femnist",
    "fmnist",
    "for_tuning",
    "from_folder",
    "from_partitioner",
    "heart",
    "hold_out",
    "leave_out",
    "mnist",
    "read_idx",
    "sent140",
    "synth",
]
