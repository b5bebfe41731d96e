"""Warnings about a federation's data that would spoil a run or mislead its reader.

None of these is an error, and training runs without a message: features a thousand times too large,
a number to predict taken for a thousand classes, test rows that are training rows too, a class that
no test row has. They are printed when the user's own data is read, and again under the table of
every run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import rng
from ..base.arrays import Float64, Int64
from ..base.errors import plural
from ..base.lazy import torch
from .federation import Federation
from .row_hashes import get_hashes

LARGE = 10.0  # a feature's size from which ordinary learning rates diverge
LOOK_AT = 1000  # rows, evenly spread, that sizes are measured on
TOGETHER = 50  # rows of them in memory at once, as float64
MANY = 20  # classes from which labels may really be numbers
MATTERS = 0.01  # share of test rows from which copies of training rows change what a score says
CHANCE = 0.05  # expected copies of a row up to which copies are no accident
HAVE = 5  # training rows of a class from which its absence among test rows is worth a warning


def find_data_warnings(fed: Federation) -> list[str]:
    """Return the warnings about a federation's data, one sentence each."""
    found = [_large_features(fed), _copied_rows(fed)]
    if fed.classes:
        counts = fed.label_counts().sum(0)
        found += [_numeric_labels(fed, counts), _missing_test_classes(fed, counts)]
    return [sentence for sentence in found if sentence]


def feature_sizes(fed: Federation) -> Float64:
    """Return the root mean square of each feature over training rows; empty for pixels and
    tokens."""
    x = fed.train.x
    if not x.is_floating_point():
        return np.empty(0)
    total = int(fed.train.offsets[-1])
    at = np.unique(np.linspace(0, total - 1, min(total, LOOK_AT)).astype(np.int64))
    rows = torch.from_numpy(fed.train.base(at))
    squares = torch.zeros(x[:1].flatten(1).shape[1], dtype=torch.float64)
    for start in range(0, len(rows), TOGETHER):
        squares += x[rows[start : start + TOGETHER]].flatten(1).double().pow_(2).sum(0)
    return np.sqrt(squares.numpy() / len(rows))


def _large_features(fed: Federation) -> str:
    size = feature_sizes(fed)
    if not len(size) or size.max() < LARGE:
        return ""
    most = int(size.argmax())
    name = f"'{fed.columns[most]}'" if fed.columns is not None else f"number {most}"
    return (
        f"features need scaling: feature {name} is around {size[most]:.3g}, the middle one around "
        f"{np.median(size):.2g}, and training works for sizes around 1; standardise them (a file "
        'of your own: scale = "pooled")'
    )


def _copied_rows(fed: Federation) -> str:
    """Return a warning about test rows of the user's files that are copies of training rows."""
    if fed.test is None or fed.names is None or not fed.train.x.is_floating_point():
        return ""
    splits = (fed.train, fed.test)
    train, test = (get_hashes(d)[d.base(np.arange(d.offsets[-1]))] for d in splits)
    copied = np.isin(test, train)
    _, different = np.unique(get_hashes(fed.train), return_index=True)
    if copied.mean() < MATTERS or may_be_accidental(fed.train.x.flatten(1).numpy(), different):
        return ""
    owners = [np.repeat(np.arange(fed.n), d.sizes) for d in splits]
    same = np.isin(rng.fold(test, owners[1]), rng.fold(train, owners[0]))
    away = int((copied & ~same).sum())
    other = f" ({away} of them of other clients')" if away else ""
    within = ', or those within a client with duplicates = "drop"' if same.any() else ""
    return (
        f"{copied.sum()} of {plural(len(test), 'test row')} are copies of training rows{other}: "
        f"test scores look better than they are; remove copies from the files{within}"
    )


def may_be_accidental(x: NDArray[Any], rows: Int64) -> bool:
    """Return True if different rows have so few values that equal ones are to be expected: more
    than `CHANCE` for each row, if columns were independent, n prod_j sum_v p_jv^2."""
    expected = float(len(rows))
    for column in x.T:
        _, counts = np.unique(column[rows], return_counts=True)
        expected *= float(((counts / len(rows)) ** 2).sum())
        if expected < CHANCE:
            return False
    return True


def _numeric_labels(fed: Federation, counts: Int64) -> str:
    """Return a warning if labels are whole numbers with gaps that hardly ever repeat."""
    if fed.labels is not None and any(not label.isdecimal() for label in fed.labels):
        return ""
    distinct, rows = int((counts > 0).sum()), int(counts.sum())
    gaps = fed.classes - distinct
    if distinct <= MANY or rows >= 10 * distinct or gaps < 0.1 * fed.classes:
        return ""
    return (
        f"labels look like numbers to predict, not classes: {distinct} different ones between 0 "
        f'and {fed.classes - 1} in {rows} rows; take a task for numbers (task = "regression"), or '
        "cut them into a few classes (above or below the median, say)"
    )


def _missing_test_classes(fed: Federation, counts: Int64) -> str:
    if fed.test is None:
        return ""
    tested = fed.test.label_shares(fed.classes).sum(0)
    lacking = np.flatnonzero((counts >= HAVE) & (tested == 0))
    if not len(lacking):
        return ""
    names = [str(c) if fed.labels is None else fed.labels[c] for c in lacking[:3]]
    more = ", ..." if len(lacking) > len(names) else ""
    return (
        f"no test row has class {', '.join(map(repr, names))}{more}: test accuracy says nothing "
        "about it; hold out more rows (test_fraction)"
    )
