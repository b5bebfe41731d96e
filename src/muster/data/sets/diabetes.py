"""Diabetes that comes with scikit-learn: a number to predict, no download, quick to train."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from ...base.checks import check_whole
from ...base.lazy import datasets
from ...base.registry import part
from ...federation import Federation, Scaler
from ..split.partition import federate, hold_out

COLUMNS = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")


@part(Federation, "diabetes")
def diabetes(
    clients: int = 6,
    priority: int | tuple[int, ...] | Literal["all"] = 2,
    seed: int = 0,
    test_fraction: float = 0.2,
) -> Federation:
    """442 patients (Efron et al. 2004): ten measurements, and how far the disease has come a year
    later (25 to 346), a number to predict: `task = "regression"`.

    Clients are groups of one age, the youngest first; each holds out `test_fraction` of its own
    rows. Every measurement has mean 0 and deviation 1 over all patients: scikit-learn's numbers by
    a factor, which is the scale of the federation, so that new rows are written as scikit-learn's.

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
    return replace(fed, columns=COLUMNS, label_column="progression", scaler=scale)
