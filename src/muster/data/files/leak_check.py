"""Search for columns that tell the label: a code that is given only to the ill, a dose that follows
the diagnosis. A model that has them is perfect on such files, and of no use where the label is not
known yet."""

from __future__ import annotations

from collections.abc import Mapping
from math import lgamma, log

import numpy as np

from ...base.arrays import Float64
from ...base.lazy import pl
from .column_kinds import as_numbers

CHANCE = log(1e-6)  # of a column that tells the label of every row by accident
STRAIGHT = 1 - 1e-9  # correlation from which two columns of numbers are the same
FEWEST = 10  # rows of a client from which a correlation says anything


def tells_label(values: Mapping[str, pl.Series], labels: Mapping[str, pl.Series]) -> bool:
    """Return True if a column tells the label of every row, at every client that has several: each
    of its values goes with one label, or its order divides the labels.

    Args:
        values: the column at each client, as text; null where a value is missing
        labels: the label at each client
    """
    chance = 0.0
    for client, column in values.items():
        rows = pl.DataFrame({"value": column, "label": labels[client]}).drop_nulls("label")
        if rows["label"].n_unique() < 2:
            continue
        if rows["value"].null_count():
            return False
        own = measure_chance(rows["value"], rows["label"])
        if own is None:
            return False
        chance += own
    return chance < CHANCE


def measure_chance(value: pl.Series, label: pl.Series) -> float | None:
    """Return the logarithm of the chance that it fits shuffled labels as well; None if the column
    does not fit them.

    Of L values that each go with one of K labels it is at most K^L over the number of orders of the
    labels; of a column whose order divides them, K! over it.
    """
    pairs = pl.DataFrame({"value": value, "label": label})
    counts = label.value_counts()["count"].to_list()
    orders = lgamma(len(label) + 1) - sum(lgamma(n + 1) for n in counts)
    levels = value.n_unique()
    found = []
    if len(pairs.unique()) == levels:
        found.append(levels * log(len(counts)) - orders)
    numbers = as_numbers(value)
    if np.isfinite(numbers).all() and divides(numbers, label):
        found.append(lgamma(len(counts) + 1) - orders)
    return min(found, default=None)


def divides(numbers: Float64, label: pl.Series) -> bool:
    """Return True if rows in the order of their numbers have each label in one piece, and rows of
    one number one label."""
    codes = label.rank("dense").to_numpy()
    order = np.lexsort((codes, numbers))
    changes = np.diff(codes[order]) != 0
    same = np.diff(numbers[order]) == 0
    return int(changes.sum()) == label.n_unique() - 1 and not (changes & same).any()


def equals_target(values: Mapping[str, pl.Series], targets: Mapping[str, pl.Series]) -> bool:
    """Return True if a column is the number to predict, in whatever unit, at every client."""
    found = False
    for client, column in values.items():
        x, y = as_numbers(column), as_numbers(targets[client])
        both = np.isfinite(x) & np.isfinite(y)
        if both.sum() < FEWEST or np.ptp(x[both]) == 0 or np.ptp(y[both]) == 0:
            continue
        if abs(np.corrcoef(x[both], y[both])[0, 1]) < STRAIGHT:
            return False
        found = True
    return found
