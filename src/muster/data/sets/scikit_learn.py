"""Data sets that come with scikit-learn: digits and diabetes, no download, seconds to train."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np

from ...base.arrays import Float64, Int64
from ...base.checks import check_whole
from ...base.lazy import datasets
from ...base.registry import part
from ...federation import Federation, Scaler
from ..split.partition import Partition, Shards, choose_few
from ..split.train_test import federate, hold_out, hold_out_partition

DIABETES_COLUMNS = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")
TWO_SHARDS = Shards(per_client=2)
DIGITS_SHAPE = (1797, 65)  # of scikit-learn's table: the pixels, then the label


@part(Federation, "digits")
def digits(
    clients: int = 20,
    priority: int | tuple[int, ...] | Literal["all"] = 2,
    unseen: int = 0,
    partition: Partition = TWO_SHARDS,
    seed: int = 0,
    test_fraction: float = 0.2,
) -> Federation:
    """1797 images of 8x8 pixels in [0, 1], flattened to 64 features; ten classes.

    There is no official test set: each client holds out `test_fraction` of its rows.

    Args:
        priority: a number n for the first n clients (the partition is random), their indices, or
            "all"
        unseen: number of clients, the last ones, that never train and only evaluate
    """
    pixels, known = load_digits()
    x, labels = (pixels / 16).astype(np.float32), known.copy()
    partition = choose_few(partition, priority)
    train, test = hold_out_partition(partition, labels, clients, test_fraction, seed)
    fed = federate(
        x,
        labels,
        train,
        test_parts=test,
        priority=priority,
        unseen=unseen,
        classes=10,
        name="digits",
        varies="deal and split",
    )
    return replace(fed, image=(1, 8, 8))


@cache
def load_digits() -> tuple[Float64, Int64]:
    """Return pixels from 0 to 16, and labels: read from scikit-learn's table where it is found,
    because importing scikit-learn takes longer than everything else; otherwise by scikit-learn.
    Read once in a process."""
    home = find_spec("sklearn")
    for folder in (home.submodule_search_locations or ()) if home else ():
        file = Path(folder, "datasets", "data", "digits.csv.gz")
        table = np.loadtxt(file, delimiter=",") if file.is_file() else np.empty(0)
        if table.shape == DIGITS_SHAPE:
            return table[:, :-1], table[:, -1].astype(np.int64)
    pixels, labels = datasets.load_digits(return_X_y=True)
    return pixels, labels


@part(Federation, "diabetes")
def diabetes(
    clients: int = 6,
    priority: int | tuple[int, ...] | Literal["all"] = 2,
    seed: int = 0,
    test_fraction: float = 0.2,
) -> Federation:
    """442 patients (Efron et al. 2004): ten measurements, and the progression of the disease after
    a year (25 to 346), a number to predict: `task = "regression"`.

    Clients are groups of one age, the youngest first; each holds out `test_fraction` of its rows.
    Every measurement has mean 0 and deviation 1 over all patients: scikit-learn's numbers by a
    factor, which is the scaler of the federation, so that new rows are written as scikit-learn's.

    Args:
        priority: a number n for the first n clients, their indices, or "all"
    """
    check_whole("clients", clients, 1, 100)
    x, y = datasets.load_diabetes(return_X_y=True)
    by_age = np.argsort(x[:, 0], kind="stable")
    parts = [np.sort(part) for part in np.array_split(by_age, clients)]
    train, test = hold_out(parts, np.zeros(len(y), np.int64), test_fraction, seed)
    width = x.shape[1]
    scale = Scaler(np.zeros(width), np.full(width, 1 / np.sqrt(len(x))))
    fed = federate(
        scale(x),
        y,
        train,
        test_parts=test,
        priority=priority,
        classes=0,
        name="diabetes",
        varies="split",
    )
    return replace(fed, columns=DIABETES_COLUMNS, label_column="progression", scaler=scale)
