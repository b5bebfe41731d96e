"""The kind of a column: numbers, categories, dates, ids, free text, or nothing to learn from.

Values are text, null where they are missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import numpy as np

from ...base.arrays import Float64
from ...base.lazy import pl
from .codings import FEW_CODES, MANY, find_mixture, is_id

Kind = Literal[
    "number",
    "category",
    "date",
    "id",
    "text",
    "constant",
    "client",
    "empty",
    "unclear",
    "marked",
    "mixed",
    "leak",
]

DATE = r"^(\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{2,4})([T ]\d{1,2}:\d{2}.*)?$"
UNIT = r"%|‰|°[cf]|[kmµu]?g|[cm]?m|[md]?l|[mµu]?mol|mmhg|bpm|years?|yrs?|jahre?|days?|tage?|[€$£]"
MARKED = (  # a number with marks for thousands, in English or in German, or with a unit
    r"(?i)^[+-]?(\d{1,3}(,\d{3})+(\.\d+)?|\d{1,3}(\.\d{3})+,\d+"
    rf"|\d+([.,]\d+)?\s*({UNIT})(/({UNIT}))?)$"
)
ID_NAME = re.compile(
    r"(^|[_\W])(id|ids|nr|no|mrn|uuid|pid|key|index|student|subject)($|[_\W])|patient|kennung|nummer",
    re.IGNORECASE,
)
SOME = 0.2  # different values for each row from which a number called an id is one
MOSTLY, HALF = 0.9, 0.5  # shares of values from which a column is of their kind, or is mixed
WORDS = 3  # words of a value, on average, from which a column is free text
FEWEST = 5  # values of a client from which its range is compared with the others'


def as_numbers(column: pl.Series) -> Float64:
    """Return a column as numbers, NaN for what is none."""
    return column.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()


def values_by_client(values: Mapping[str, pl.Series]) -> dict[str, set[str]]:
    """Return the different values of each client."""
    return {client: set(column.drop_nulls().unique()) for client, column in values.items()}


def find_kind(name: str, every: pl.Series, values: Mapping[str, pl.Series]) -> Kind:
    """Return the kind of a column, from all its values."""
    n, levels = len(every), every.n_unique()
    if n == 0:
        return "empty"
    numbers = as_numbers(every)
    if every.str.contains(DATE).sum() >= MOSTLY * n:
        return "date"
    marked = every.str.contains(MARKED).to_numpy()
    if levels > FEW_CODES and marked.any() and (marked | np.isfinite(numbers)).mean() >= MOSTLY:
        return "number" if np.isfinite(numbers).mean() >= MOSTLY else "marked"
    own = values_by_client(values)
    long = sum(len(column.drop_nulls()) >= FEWEST for column in values.values())
    if long > 1 and is_same_within(own) and levels == sum(map(bool, own.values())):
        return "client"
    if find_mixture(own) is not None:
        return "category"
    if np.isfinite(numbers).mean() >= MOSTLY:
        return (
            "id" if is_numbering(name, numbers, values) else "constant" if levels == 1 else "number"
        )
    found = np.isfinite(numbers)
    if found.mean() >= HALF and len(np.unique(numbers[found])) > FEW_CODES:
        return "mixed"
    if every.str.split(" ").list.len().sum() >= WORDS * n and 2 * levels > n:
        return "text"
    if is_id(levels, n) or (ID_NAME.search(name) and levels > min(MANY, n / 2)):
        return "id"
    return "constant" if levels == 1 else "category"


def is_same_within(own: Mapping[str, set[str]]) -> bool:
    """Return True if no client has two different values."""
    return all(len(values) <= 1 for values in own.values())


def is_numbering(name: str, numbers: Float64, values: Mapping[str, pl.Series]) -> bool:
    """Return True if a column's whole numbers tell rows apart, by their name or by their being
    consecutive, over all clients or at each."""
    if (numbers[np.isfinite(numbers)] % 1 != 0).any() or len(numbers) < 2 * FEWEST:
        return False
    every = np.unique(numbers)
    own = [np.unique(as_numbers(column.drop_nulls())) for column in values.values()]
    if ID_NAME.search(name) and sum(map(len, own)) > max(MANY, SOME * len(numbers)):
        return True
    if len(every) == len(numbers) == every[-1] - every[0] + 1:
        return True
    for column, different in zip(values.values(), own, strict=True):
        rows = len(column.drop_nulls())
        if rows and len(different) < MOSTLY * rows:
            return False
        if rows and not (len(different) > FEWEST and (np.diff(different) == 1).all()):
            return False
    return True
