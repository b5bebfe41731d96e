"""Every score against scikit-learn, with and without weights; the C-index against two loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from sklearn import metrics
from sklearn.calibration import calibration_curve

from muster.tasks import scores
from muster.tasks.classification import Binary, Multiclass, Multilabel, NextToken
from muster.tasks.regression import Regression
from muster.tasks.task import Scoring

N = 60
draw = np.random.default_rng(3)
Y = draw.integers(0, 4, N)
Z = np.round(draw.normal(size=(N, 4)), 1)  # with ties
W = draw.uniform(0.1, 2.0, N)
YES = draw.integers(0, 2, N)
ONE = np.round(draw.normal(size=(N, 1)) + YES[:, None], 1)
LABELS = draw.integers(0, 2, (N, 3))
MANY = np.round(draw.normal(size=(N, 3)) + LABELS, 1)
REAL, SAID = draw.normal(size=(N, 2)), draw.normal(size=(N, 2))


def chance(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def bins(truth, p):
    """The calibration error from scikit-learn's curve, where every bin has as many as it has."""
    true, said = calibration_curve(truth, p, n_bins=scores.BINS, strategy="uniform")
    counts = np.histogram(p, np.linspace(0, 1, scores.BINS + 1))[0]
    return float((counts[counts > 0] / len(p) * np.abs(true - said)).sum())


WEIGHTED = {
    "multiclass balanced_accuracy": (
        Multiclass, Z, Y,
        lambda w: metrics.balanced_accuracy_score(Y, Z.argmax(1), sample_weight=w)),
    "multiclass f1": (
        Multiclass, Z, Y,
        lambda w: metrics.f1_score(Y, Z.argmax(1), average="macro", sample_weight=w)),
    "multiclass auc": (
        Multiclass, Z, Y,
        lambda w: metrics.roc_auc_score(Y, chance(Z), multi_class="ovr", sample_weight=w)),
    "multiclass average_precision": (
        Multiclass, Z, Y,
        lambda w: metrics.average_precision_score(np.eye(4)[Y], chance(Z), sample_weight=w)),
    "binary balanced_accuracy": (
        Binary, ONE, YES,
        lambda w: metrics.balanced_accuracy_score(YES, ONE[:, 0] > 0, sample_weight=w)),
    "binary f1": (
        Binary, ONE, YES, lambda w: metrics.f1_score(YES, ONE[:, 0] > 0, sample_weight=w)),
    "binary auc": (
        Binary, ONE, YES, lambda w: metrics.roc_auc_score(YES, ONE[:, 0], sample_weight=w)),
    "binary average_precision": (
        Binary, ONE, YES,
        lambda w: metrics.average_precision_score(YES, ONE[:, 0], sample_weight=w)),
    "multilabel f1": (
        Multilabel, MANY, LABELS,
        lambda w: metrics.f1_score(LABELS, MANY > 0, average="macro", sample_weight=w)),
    "multilabel auc": (
        Multilabel, MANY, LABELS,
        lambda w: metrics.roc_auc_score(LABELS, MANY, sample_weight=w)),
    "multilabel average_precision": (
        Multilabel, MANY, LABELS,
        lambda w: metrics.average_precision_score(LABELS, MANY, sample_weight=w)),
    "regression r2": (
        Regression, SAID, REAL, lambda w: metrics.r2_score(REAL, SAID, sample_weight=w)),
}  # fmt: skip


@pytest.mark.parametrize("name", WEIGHTED)
def test_scores_of_all_rows_agree_with_scikit_learn(name):
    task, z, y, expected = WEIGHTED[name]
    of = task.set_scores[name.split()[1]]
    assert of(z, y, np.full(N, 1.0 / N)) == pytest.approx(expected(None), abs=1e-9)
    assert of(z, y, W / W.sum()) == pytest.approx(expected(W), abs=1e-9)


ROWS = {
    "multiclass accuracy": (Multiclass, Z, Y, metrics.accuracy_score(Y, Z.argmax(1))),
    "binary accuracy": (Binary, ONE, YES, metrics.accuracy_score(YES, ONE[:, 0] > 0)),
    "multilabel accuracy": (
        Multilabel, MANY, LABELS, 1 - metrics.hamming_loss(LABELS, MANY > 0)),
    "regression mae": (Regression, SAID, REAL, metrics.mean_absolute_error(REAL, SAID)),
    "next_token accuracy": (
        NextToken, Z.reshape(20, 3, 4), Y.reshape(20, 3), metrics.accuracy_score(Y, Z.argmax(1))),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_scores_of_rows_agree_with_scikit_learn(name):
    task, z, y, expected = ROWS[name]
    of = task.row_scores[name.split()[1]]
    found = of(torch.from_numpy(z), torch.from_numpy(y)).double().mean()
    assert float(found) == pytest.approx(expected, abs=1e-9)


def test_calibration_error_is_that_of_scikit_learn_s_curve():
    even = np.full(N, 1.0 / N)
    p = 1 / (1 + np.exp(-ONE[:, 0]))
    assert Binary.set_scores["calibration_error"](ONE, YES, even) == pytest.approx(
        bins(YES, p), abs=1e-9
    )
    p = chance(Z)
    right = p.argmax(1) == Y
    assert Multiclass.set_scores["calibration_error"](Z, Y, even) == pytest.approx(
        bins(right, p.max(1)), abs=1e-9
    )


def test_perplexity_is_the_exponential_of_scikit_learn_s_log_loss():
    of = NextToken.row_scores["perplexity"]
    mean = of(torch.from_numpy(Z.reshape(20, 3, 4)), torch.from_numpy(Y.reshape(20, 3))).mean()
    scoring = Scoring(NextToken())
    assert scoring.from_mean(0, np.array([float(mean)]))[0] == pytest.approx(
        np.exp(metrics.log_loss(Y, chance(Z))), abs=1e-9
    )


def c_index_by_pairs(time, event, risk, w):
    """As lifelines counts: pairs of two times compare if the first is an event's, pairs of one time
    if just one of the two is; that one is the first then."""
    hits = total = 0.0
    for i, j in itertools.permutations(range(len(time)), 2):
        first = time[i] < time[j] or (time[i] == time[j] and not event[j])
        if event[i] and first:
            total += w[i] * w[j]
            hits += w[i] * w[j] * ((risk[i] > risk[j]) + 0.5 * (risk[i] == risk[j]))
    return hits / total if total else np.nan


@pytest.mark.parametrize("pairs", [scores.PAIRS, 100])
def test_c_index_agrees_with_two_loops(pairs, monkeypatch):
    monkeypatch.setattr(scores, "PAIRS", pairs)
    for seed in range(60):
        some = np.random.default_rng(seed)
        n, digits = int(some.integers(2, 25)), int(some.integers(0, 3))
        time = np.round(some.exponential(size=n), digits)  # with many ties, few, or none
        event, risk = some.random(n) < some.random(), np.round(some.normal(size=n), digits)
        w = some.uniform(0.1, 2.0, n)
        expected = c_index_by_pairs(time, event, risk, w)
        assert scores.c_index(time, event, risk, w) == pytest.approx(
            expected, abs=1e-9, nan_ok=True
        )


def test_who_was_last_seen_at_the_time_of_an_event_outlives_it():
    one, even = np.ones(2), np.ones(2)
    risk = np.array([1.0, 0.0])
    assert scores.c_index(one, np.array([True, False]), risk, even) == 1.0
    assert scores.c_index(one, np.array([False, True]), risk, even) == 0.0
    assert np.isnan(scores.c_index(one, np.array([True, True]), risk, even))


def test_what_rows_do_not_say_is_nan_and_what_does_not_vary_is_as_in_scikit_learn():
    ones, even = np.ones(5, bool), np.full(5, 0.2)
    z = draw.normal(size=5)
    assert np.isnan(scores.auc(ones, z, even))
    assert np.isnan(scores.average_precision(~ones, z, even))
    assert np.isnan(scores.c_index(np.arange(5.0), ~ones, z, even))
    assert np.isnan(scores.r2(np.ones(1), np.ones(1), np.ones(1)))
    assert scores.binary_f1(~ones, ~ones, even) == 0.0
    for said in (np.full(5, 2.0), z):
        found = scores.r2(np.full(5, 2.0), said, even)
        assert found == metrics.r2_score(np.full(5, 2.0), said)
