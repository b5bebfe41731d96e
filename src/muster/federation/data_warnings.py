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
from .inputs import plausible_range
from .row_hashes import get_hashes
from .spellings import find_own_spellings

LARGE = 10.0  # a feature's size from which ordinary learning rates diverge
LOOK_AT = 1000  # rows, evenly spread, that sizes are measured on
TOGETHER = 50  # rows of them in memory at once, as float64
MANY = 20  # classes from which labels may really be numbers
MATTERS = 0.01  # share of test rows from which copies of training rows change what a score says
CHANCE = 0.05  # expected copies of a row up to which copies are no accident
SOME = 0.05  # share of a column's values up to which they may be mistakes that decide its scale
GAP = 3.0  # times as far from the median as all others
SHRUNK = 3.0  # times by which the others' deviation is smaller than it should be
HAVE = 5  # training rows of a class from which its absence among test rows is worth a warning


def find_data_warnings(fed: Federation, values: bool = True) -> list[str]:
    """Return the warnings about a federation's data, one sentence each; without `values`, none that
    quotes a client's own."""
    found = [_large_features(fed), _copied_rows(fed)]
    found += find_dominant_values(fed) if values else []
    if fed.classes:
        counts = fed.label_counts().sum(0)
        found += [_numeric_labels(fed, counts), _missing_test_classes(fed, counts)]
        found += find_own_classes(fed)
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


def find_dominant_values(fed: Federation) -> list[str]:
    """Return a warning for each scaled column whose scale a few training values decide.

    The few are up to `SOME` of a column's values, at least `GAP` times as far from its median as
    any other value. They decide its scale if the others' deviation is below 1 / `SHRUNK` after
    scaling, where it should be about 1, and if they are outside the plausible range of the others
    (`plausible_range`, by which `predict` flags new rows). The gap passes over skewed measurements
    and rare events.
    """
    moments = fed.encoder or fed.scaler
    if moments is None or not len(np.ravel(moments.std)):
        return []
    x = fed.train.x.flatten(1)
    names, mean, std = _scaled_columns(fed, x.shape[1])
    rows = fed.train.base(np.arange(int(fed.train.offsets[-1])))
    few = max(1, int(SOME * len(rows)))
    least = np.sqrt((1 - SHRUNK**-2) * len(rows) / few) / 2  # far values are beyond it, at least
    sizes = x.abs().amax(0).numpy()
    found = []
    for j in np.flatnonzero(sizes > least).tolist():
        if j not in names:
            continue
        values = x[:, j].double().numpy()[rows]
        far = _far_rows(values, few)
        if not len(far):
            continue
        k = int(np.searchsorted(fed.train.offsets, far[0], side="right")) - 1
        column, others = names[j], len(far) - 1
        raw = values[far[0]] * std[j] + mean[j]
        found.append(
            f"column {column} has a value so far from all others that it decides the scale: "
            f"{raw:.6g} at client {fed.population.get_name(k)}"
            + (f" (and {plural(others, 'value')} more)" if others else "")
            + "; what tells the others apart hardly counts; mend the file, or have such rows named "
            "by [range] in the manifest"
        )
    return found


def _scaled_columns(fed: Federation, width: int) -> tuple[dict[int, str], Float64, Float64]:
    """Return the names of the features that are scaled numbers, by their positions, and each
    feature's mean and deviation."""
    if fed.encoder is None:
        assert fed.scaler is not None
        known = fed.columns or ()
        names = {j: f"'{known[j]}'" if known else f"number {j}" for j in range(width)}
        return names, np.ravel(fed.scaler.mean), np.ravel(fed.scaler.std)
    mean, std, at = np.zeros(width), np.ones(width), {}
    for name, m, s in zip(fed.encoder.columns, fed.encoder.mean, fed.encoder.std, strict=True):
        if name not in fed.encoder.levels:
            j = fed.encoder.names.index(name)
            at[j], mean[j], std[j] = f"'{name}'", m, s
    return at, mean, std


def _far_rows(values: Float64, few: int) -> Int64:
    """Return the rows of values that decide the scale, see `find_dominant_values`; the farthest
    first."""
    off = np.abs(values - np.median(values))
    top = np.argsort(-off, kind="stable")[: few + 1]
    gaps = np.flatnonzero((off[top[:-1]] > GAP * off[top[1:]]) & (off[top[1:]] > 0))
    if not len(gaps):
        return top[:0]
    far = top[: int(gaps[-1]) + 1]
    rest = np.delete(values, far)
    low, high = plausible_range(float(rest.mean()), float(rest.std()))
    dominates = 0 < rest.std() < 1 / SHRUNK
    return far if dominates and ((values[far] < low) | (values[far] > high)).all() else far[:0]


def find_own_classes(fed: Federation) -> list[str]:
    """Return a warning for each class of tables that may be some clients' own spelling of another
    one (`find_own_spellings`); a class that is replaced with itself is meant."""
    if fed.labels is None or not isinstance(fed.label_column, str) or fed.n < 2:
        return []
    there = fed.label_counts() > 0
    labels = np.array(fed.labels)
    own = {fed.population.get_name(k): {*labels[there[k]].tolist()} for k in range(fed.n)}
    meant = {*fed.recode.get(fed.label_column, {}).values()}
    found = []
    for value, other in find_own_spellings(own).items():
        if value in meant:
            continue
        have = ", ".join(who for who, classes in own.items() if value in classes)
        found.append(
            f"class '{value}' is at {have} alone, without '{other}', which it may be: if so, "
            f"rename it by [recode.{fed.label_column}] in the manifest, and if not, replace it "
            "there with itself"
        )
    return found


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
