"""Doubts about data: what will spoil a run, or make its numbers say less than they seem to.

None of it is an error, and all of it trains without a word: features a thousand times too large,
a number to be predicted taken for a thousand classes, a class that no test row has. Said when data
of one's own is read, and again under the table of every run.
"""

from __future__ import annotations

import numpy as np

from ..base.arrays import Float64, Int64
from .federation import Federation

LARGE = 10.0  # a feature's size from which ordinary learning rates diverge
LOOK_AT = 1000  # rows, evenly spread, from which sizes are taken
MANY = 20  # classes from which labels may be numbers in truth
HAVE = 5  # training rows of a class from which its absence among test rows is worth a word


def find_data_warnings(fed: Federation) -> list[str]:
    """What is to be said of a federation's data, in a sentence each."""
    if fed.classes == 0:
        return [sentence for sentence in (_sizes(fed),) if sentence]
    counts = fed.label_counts().sum(0)
    found = (_sizes(fed), _numbers(fed, counts), _untested(fed, counts))
    return [sentence for sentence in found if sentence]


def feature_sizes(fed: Federation) -> Float64:
    """Root mean square of each feature over training rows; pixels and tokens have none."""
    x = fed.train.x
    if not x.is_floating_point():
        return np.empty(0)
    total = int(fed.train.offsets[-1])
    at = np.unique(np.linspace(0, total - 1, min(total, LOOK_AT)).astype(np.int64))
    rows = x[fed.train.base(at)].flatten(1).double().numpy()
    return np.asarray(np.sqrt(np.mean(rows**2, axis=0)), np.float64)


def _sizes(fed: Federation) -> str:
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


def _numbers(fed: Federation, counts: Int64) -> str:
    """Labels that are whole numbers, have gaps between them, and hardly ever repeat."""
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


def _untested(fed: Federation, counts: Int64) -> str:
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
        "of it; hold out more rows (test_fraction)"
    )
