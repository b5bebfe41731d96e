"""Data: data sets by name, your own files, partitions (IID and non-IID), train/test split."""

from __future__ import annotations

from ..base.registry import kinds
from ..federation import Federation
from .files.column_check import DataProblem
from .files.data_check import DataCheck, check
from .files.folder import from_folder
from .files.huggingface import from_partitioner
from .sets.images import cifar10, emnist, femnist, fmnist, mnist
from .sets.natural_clients import (
    azpro,
    bdf,
    contraception,
    exam,
    flights,
    heart,
    hsb,
    immun,
    indo_rct,
    lending,
    opt,
    randhie,
    sent140,
    stack,
    tcga_brca,
    vote16,
)
from .sets.scikit_learn import diabetes, digits
from .sets.synth import synth
from .sources.catalogue import CATALOGUE
from .sources.readers import read_idx
from .split.partition import (
    IID,
    PARTITIONS,
    Dirichlet,
    Few,
    LabelMix,
    Partition,
    Shards,
    by_column,
)
from .split.portions import Portions
from .split.resplit import for_tuning, leave_out
from .split.train_test import federate, hold_out

DATA = kinds(Federation)  # data sets by name, also those that are registered later

__all__ = [
    "CATALOGUE",
    "DATA",
    "IID",
    "PARTITIONS",
    "DataCheck",
    "DataProblem",
    "Dirichlet",
    "Few",
    "LabelMix",
    "Partition",
    "Portions",
    "Shards",
    "azpro",
    "bdf",
    "by_column",
    "check",
    "cifar10",
    "contraception",
    "diabetes",
    "digits",
    "emnist",
    "exam",
    "federate",
    "femnist",
    "flights",
    "fmnist",
    "for_tuning",
    "from_folder",
    "from_partitioner",
    "heart",
    "hold_out",
    "hsb",
    "immun",
    "indo_rct",
    "leave_out",
    "lending",
    "mnist",
    "opt",
    "randhie",
    "read_idx",
    "sent140",
    "stack",
    "synth",
    "tcga_brca",
    "vote16",
]
