"""Warnings about a federation's data that would spoil a run or mislead its reader.

None of these is an error, and training runs without a message: features a thousand times too large,
a number to predict taken for a thousand classes, a class that no test row has. They are printed
when the user's own data is read, and again under the table of every run.
"""

from __future__ import annotations

import numpy as np

from ..base.arrays import Float64, Int64
from .federation import Federation

LARGE = 10.0  # a feature's size from which ordinary learning rates diverge
LOOK_AT = 1000  # rows, evenly spread, that sizes are measured on
MANY = 20  # classes from which labels may really be numbers
HAVE = 5  # training rows of a class from which its absence among test rows is worth a warning


def find_data_warnings(fed: Federation) -> list[str]:
    """Return the warnings about a federation's data, one sentence each."""
    if fed.classes == 0:
        return [sentence for sentence in (_large_features(fed),) if sentence]
    counts = fed.label_counts().sum(0)
    found = (_large_features(fed), _numeric_labels(fed, counts), _missing_test_classes(fed, counts))
    return [sentence for sentence in found if sentence]


def feature_sizes(fed: Federation) -> Float64:
    """Return the root mean square of each feature over training rows; empty for pixels and
    tokens."""
    x = fed.train.x
    if not x.is_floating_point():
        return np.empty(0)
    total = int(fed.train.offsets[-1])
    at = np.unique(np.linspace(0, total - 1, min(total, LOOK_AT)).astype(np.int64))
    rows = x[fed.train.base(at)].flatten(1).double().numpy()
    return np.asarray(np.sqrt(np.mean(rows**2, axis=0)), np.float64)


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
