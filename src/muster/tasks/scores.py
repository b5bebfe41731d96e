"""Scores (metrics) of a model next to its loss, defined as in scikit-learn.

Accuracy and the mean absolute error are means over rows. AUC, F1 or R2 are not: each is computed
from all of a client's rows together, and is NaN where it is undefined (the AUC of a client that
holds one class). Clients are then pooled by the weighted mean of their own values, over those that
have one; a pooled AUC is the mean of the clients' AUCs, and not the AUC of all rows.

Every function takes one client's rows: targets, predictions, and row weights `w`, which need not
sum to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Float64, Int64

BINS = 15  # bins of the calibration error
PAIRS = 2**24  # pairs of rows processed together


@dataclass(frozen=True)
class Score:
    """A score's name, direction and range.

    Attributes:
        name: name in files and configurations
        title: name in text
        short: name in the head of a column
        higher: True if a higher score is better
        least: lower bound
        most: upper bound
        pooled: True if it is computed from all of a client's rows together, and over several
            clients is the mean of theirs
    """

    name: str
    title: str
    short: str = ""
    higher: bool = True
    least: float = 0.0
    most: float = 1.0
    pooled: bool = False

    @property
    def share(self) -> bool:
        """True if it lies between 0 and 1."""
        return self.least == 0.0 and self.most == 1.0

    @property
    def head(self) -> str:
        """Head of a column."""
        return self.short or self.title


INF = float("inf")
SCORES = {
    score.name: score
    for score in (
        Score("accuracy", "accuracy", "acc"),
        Score("balanced_accuracy", "balanced accuracy", "bal acc", pooled=True),
        Score("f1", "F1", pooled=True),
        Score("auc", "AUC", pooled=True),
        Score("average_precision", "average precision", "avg prec", pooled=True),
        Score("calibration_error", "calibration error", "cal err", False, pooled=True),
        Score("r2", "R2", least=-INF, pooled=True),
        Score("mae", "mean absolute error", "MAE", False, most=INF),
        Score("c_index", "C-index", pooled=True),
        Score("perplexity", "perplexity", "perpl", False, 1.0, INF, pooled=True),
    )
}


def get_score(name: str) -> Score:
    """Return a score by its name; for an unknown name, one that is better when higher."""
    return SCORES.get(name) or Score(name, name.replace("_", " "), least=-INF, most=INF)


def nan_mean(values: Iterable[float]) -> float:
    """Return the mean of the values that are not NaN."""
    there = [v for v in values if not np.isnan(v)]
    return float(np.mean(there)) if there else float("nan")


def balanced_accuracy(y: Int64, predicted: Int64, w: Float64) -> float:
    """Return the mean recall over the classes a client holds."""
    return nan_mean(
        float(w[(y == c) & (predicted == c)].sum() / w[y == c].sum()) for c in np.unique(y)
    )


def binary_f1(truth: NDArray[np.bool_], predicted: NDArray[np.bool_], w: Float64) -> float:
    """Return `2 tp / (2 tp + fp + fn)` of one class; 0 where it is neither held nor predicted."""
    hit = float(w[truth & predicted].sum())
    either = float(w[truth].sum() + w[predicted].sum())
    return 2 * hit / either if either > 0 else 0.0


def f1(y: Int64, predicted: Int64, w: Float64) -> float:
    """Return the mean F1 over the classes that a client holds or the model predicts (macro)."""
    return nan_mean(binary_f1(y == c, predicted == c, w) for c in np.union1d(y, predicted))


def auc(truth: NDArray[np.bool_], s: Float64, w: Float64) -> float:
    """Return the probability that a positive row ranks above a negative one; ties count half."""
    levels, at = np.unique(s, return_inverse=True)
    positive = np.bincount(at[truth], w[truth], len(levels))
    negative = np.bincount(at[~truth], w[~truth], len(levels))
    total = positive.sum() * negative.sum()
    below = np.cumsum(negative) - negative
    return float((positive * (below + negative / 2)).sum() / total) if total > 0 else float("nan")


def average_precision(truth: NDArray[np.bool_], s: Float64, w: Float64) -> float:
    """Return `sum_n (R_n - R_{n-1}) P_n` over thresholds from the highest down."""
    levels, at = np.unique(-s, return_inverse=True)
    hits = np.cumsum(np.bincount(at, w * truth, len(levels)))
    predicted = np.cumsum(np.bincount(at, w, len(levels)))
    if not hits[-1] > 0:
        return float("nan")
    precision = np.divide(hits, predicted, out=np.zeros_like(hits), where=predicted > 0)
    return float((np.diff(hits, prepend=0.0) / hits[-1] * precision).sum())


def one_against_rest(
    each: Callable[[NDArray[np.bool_], Float64, Float64], float], y: Int64, p: Float64, w: Float64
) -> float:
    """Return the mean of a binary score over the classes a client holds next to others."""
    return nan_mean(each(y == c, p[:, c], w) for c in np.unique(y) if not (y == c).all())


def calibration_error(right: NDArray[np.bool_], p: Float64, w: Float64) -> float:
    """Return `sum_b W_b |share right in b - mean p in b|` over bins of equal width of the
    probability p."""
    at = np.clip((p * BINS).astype(np.int64), 0, BINS - 1)
    gap = np.bincount(at, w * (right - p), BINS)
    return float(np.abs(gap).sum() / w.sum())


def r2(y: Float64, predicted: Float64, w: Float64) -> float:
    """Return `1 - sum (y - predicted)^2 / sum (y - mean y)^2`, averaged over several targets. For
    constant targets it is 1 where they are met and 0 elsewhere; for one row it is NaN."""
    if len(y) < 2:
        return float("nan")
    y, predicted = y.reshape(len(y), -1), predicted.reshape(len(y), -1)
    middle = w @ y / w.sum()
    left, all_of_it = w @ (y - predicted) ** 2, w @ (y - middle) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(all_of_it > 0, 1.0 - left / all_of_it, np.where(left > 0, 0.0, 1.0))
    return float(found.mean())


def c_index(time: Float64, event: NDArray[np.bool_], risk: Float64, w: Float64) -> float:
    """Return Harrell's C: among pairs in which it is known who had the event first, the share where
    that one has the higher risk; ties of risk count half.

    Whoever was last seen (censored) at the time of an event outlives it, as in Cox's risk set: such
    a pair counts, and two events at one time do not. lifelines and scikit-survival do the same; the
    latter treats risks within 1e-8 of each other as ties.
    """
    first = np.flatnonzero(event)
    hits = total = 0.0
    for at in np.array_split(first, max(1, len(first) * len(time) // PAIRS)):
        same = time[None, :] == time[at, None]
        outlives = (time[None, :] > time[at, None]) | (same & ~event[None, :])
        pair = outlives * w[at, None] * w[None, :]
        ahead = np.sign(risk[at, None] - risk[None, :])
        hits += float((pair * (ahead + 1) / 2).sum())
        total += float(pair.sum())
    return hits / total if total > 0 else float("nan")


def softmax(z: NDArray[Any]) -> Float64:
    """Return probabilities from outputs."""
    e = np.exp(z.astype(np.float64) - z.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def sigmoid(z: NDArray[Any]) -> Float64:
    """Return the probability from one output."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * z.astype(np.float64))))
