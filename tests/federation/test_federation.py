"""Federations from arrays: bad ones are one clear line each, good ones are used as they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import muster
from helpers import federation

M = muster.methods
X = np.eye(4)
GOOD = (X, [0, 1, 0, 1])


def make(train, **more):
    return muster.Federation.from_arrays(train=train, **more)


def nan_at(row, column, value=np.nan):
    x = X.copy()
    x[row, column] = value
    return x


BAD_FEDERATIONS = {
    "empty client": (
        lambda: make([GOOD, (np.empty((0, 4)), [])]),
        "train: client 1 is empty; every client needs a row",
    ),
    "no clients": (lambda: make([]), "train is empty"),
    "nan": (
        lambda: make([GOOD, (nan_at(2, 3), [0, 1, 0, 1])]),
        "train: client 1, row 2, column 3 is nan; features must be finite",
    ),
    "inf": (
        lambda: make([(nan_at(0, 1, -np.inf), [0, 1, 0, 1])]),
        "client 0, row 0, column 1 is -inf",
    ),
    "negative label": (
        lambda: make([GOOD, (X, [0, 1, -1, 1])], classes=2),
        "train: label -1 of client 1, row 2 is out of range; allowed: 0 to 1",
    ),
    "label too large": (
        lambda: make([(X, [0, 1, 5, 1])], classes=5),
        "label 5 of client 0, row 2 is out of range; allowed: 0 to 4",
    ),
    "targets of different shapes": (
        lambda: make([(X, np.ones((4, 2))), (X, np.ones((4, 3)))]),
        r"train\[1\]: targets have shape \(3,\), those of client 0 \(2,\)",
    ),
    "another shape of test targets": (
        lambda: make([(X, np.ones((4, 2)))], test=[(X, np.ones((4, 3)))]),
        r"test targets have shape \(3,\), train targets \(2,\)",
    ),
    "nan label": (lambda: make([(X, [0, np.nan, 1, 1])]), r"train\[0\] y holds nan"),
    "x and y of different length": (
        lambda: make([GOOD, (X, [0, 1])]),
        r"train\[1\]: x has shape \(4, 4\) and y \(2,\); give one label for each row of x",
    ),
    "different features": (
        lambda: make([GOOD, (np.ones((2, 3)), [0, 1])]),
        r"train\[1\]: rows have shape \(3,\), those of client 0 \(4,\)",
    ),
    "not a pair": (lambda: make([X]), r"train\[0\] must be a pair \(x, y\)"),
    "text": (lambda: make([(np.array([["a"]]), [0])]), "give numbers"),
    "one class in all": (lambda: make([(X, [0] * 4)]), "nothing to learn from one class"),
    "one-dimensional x": (lambda: make([([1.0, 2.0], [0, 1])]), "give rows of features"),
    "ragged x": (lambda: make([([[1.0], [2.0, 3.0]], [0, 1])]), "is ragged; give numbers"),
    "requirement text": (lambda: make([GOOD], requirement=["a"]), "requirement: give one number"),
    "no priority client": (lambda: make([GOOD], priority=[]), "no priority client"),
    "no priority client in a mask": (lambda: make([GOOD], priority=[False]), "no priority client"),
    "priority out of range": (
        lambda: make([GOOD] * 3, priority=[0, 3]),
        "priority: no client 3; allowed: 0 to 2",
    ),
    "priority a number": (
        lambda: make([GOOD] * 3, priority=20),
        r"priority: 20; give client indices: \[20\] for that client, range\(20\) for the first",
    ),
    "priority not indices": (lambda: make([GOOD], priority=[0.5]), "priority: give client indices"),
    "test of other length": (
        lambda: make([GOOD] * 3, test=[GOOD]),
        "test has 1 clients and train 3",
    ),
    "test of other shape": (
        lambda: make([GOOD], test=[(np.ones((2, 3)), [0, 1])]),
        r"test rows have shape \(3,\), train rows \(4,\)",
    ),
    "nan in test": (lambda: make([GOOD], test=[(nan_at(1, 0), [0, 1, 0, 1])]), "test: client 0"),
    "requirement of other length": (
        lambda: make([GOOD] * 2, requirement=[1.0]),
        "requirement: give one number for each of 2 clients",
    ),
    "requirement nan": (
        lambda: make([GOOD], requirement=[np.nan]),
        "requirement: nan for client 0; a requirement must be finite",
    ),
    "importance": (
        lambda: make([GOOD] * 2, priority=[0], importance=1.5),
        r"importance: 1.5 for client 1; allowed: 0 \(plain PFL\) to 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_FEDERATIONS)
def test_bad_federations(case):
    build, message = BAD_FEDERATIONS[case]
    with pytest.raises(muster.MusterError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_a_one_class_client_is_allowed_but_pointed_out():
    with pytest.warns(muster.MusterWarning, match="1 of 2 clients hold a single class .*client 1"):
        fed = make([GOOD, (X, [1, 1, 1, 1])])
    assert fed.n == 2


def test_read_only_and_memory_mapped_arrays_are_used_as_they_are(tmp_path):
    x = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    y = np.arange(20) % 3
    offsets = np.array([0, 8, 20])
    from muster.federation.ragged_rows import RaggedRows, as_tensor

    data = RaggedRows(as_tensor(mapped, "x"), torch.from_numpy(y), offsets)
    fed = muster.Federation.from_rows(data)
    run = muster.simulate(fed, M.fedavg(), muster.models.Softmax(), rounds=2)
    same = muster.simulate(
        federation([(x[:8], y[:8]), (x[8:], y[8:])]), M.fedavg(), muster.models.Softmax(), rounds=2
    )
    assert np.array_equal(run.weights["1.weight"], same.weights["1.weight"])


def test_whole_numbers_below_0_are_numbers_to_predict():
    fed = make([(X, [-5, 3, 0, 2])] * 2)
    assert fed.classes == 0
    run = muster.simulate(
        fed, muster.methods.fedavg(), muster.models.Linear(), 1, task=muster.tasks.regression()
    )
    assert run.facts["constant_loss"] == pytest.approx(np.var([-5, 3, 0, 2]))
    with pytest.raises(muster.MusterError, match="say classes=0"):
        make([(X, [0, 0, 0, 0])] * 2)
    assert make([(X, [0, 0, 0, 0])] * 2, classes=0).classes == 0


@pytest.mark.parametrize("labels", [("high", "low"), ("10", "20")])
def test_names_of_classes_are_no_numbers_to_predict(labels):
    fed = replace(make([GOOD] * 2), labels=labels)
    with pytest.raises(muster.MusterError, match="read the data with targets = 'numbers'"):
        fed.as_numbers()
    assert replace(fed, labels=("0", "1")).as_numbers().classes == 0
