"""Bad input: one clear line each, that names the field, what was given and what is allowed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import muster
import reference
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
        lambda: make([GOOD, (X, [0, 1, -1, 1])]),
        "train: label -1 of client 1, row 2 is out of range; allowed: 0 upwards",
    ),
    "label too large": (
        lambda: make([(X, [0, 1, 5, 1])], classes=5),
        "label 5 of client 0, row 2 is out of range; allowed: 0 to 4",
    ),
    "fractional label": (lambda: make([(X, [0, 0.5, 1, 1])]), r"train\[0\] y holds fractions"),
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


def go(method=None, model=None, **more):
    fed = federation(reference.problem(0)[0])
    return muster.simulate(
        fed, method or M.fedavg(), model or muster.models.Softmax(), **{"rounds": 1, **more}
    )


class Crooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x.sum() * self.w


BAD_RUNS = {
    "not a federation": (
        lambda: muster.simulate([1], M.fedavg(), muster.models.Softmax(), rounds=1),
        "fed: list; give a Federation",
    ),
    "local as a dict": (lambda: go(local={"steps": 1}), "local: dict; give a Local"),
    "participation as text": (lambda: go(participation="flexible"), "participation: str; give a"),
    "attack as text": (lambda: go(attack="sign_flip"), "attack: str; give a"),
    "beta": (lambda: M.fedadam(beta2=1.5), r"beta2: 1\.5; allowed: 0 up to"),
    "zero rounds": (lambda: go(rounds=0), "rounds: 0; allowed: whole numbers from 1"),
    "fractional rounds": (lambda: go(rounds=1.5), "rounds: 1.5; allowed: whole numbers from 1"),
    "negative seed": (lambda: go(seed=-1), "seed: -1; allowed: whole numbers from 0"),
    "dtype": (lambda: go(dtype="float23"), "unknown dtype 'float23'; did you mean 'float"),
    "engine": (lambda: go(engine="lop"), "unknown engine 'lop'; did you mean 'loop'"),
    "device": (lambda: go(device="gpu0"), "device: 'gpu0'; allowed: cpu, cuda"),
    "processes": (lambda: go(processes=0), "processes: 0; allowed: 1 and above"),
    "method": (lambda: go(method="fedavg"), "method: str; give one of muster.methods"),
    "model": (lambda: go(model="mlp"), "model: str; give an nn.Module"),
    "model of other width": (
        lambda: go(model=nn.Linear(9, 4)),
        r"model: it cannot take rows of shape \(5,\)",
    ),
    "model with too few outputs": (
        lambda: go(model=nn.Linear(5, 2)),
        r"output for one row has shape \(1, 2\); labels go from 0 to 3",
    ),
    "model with a strange output": (lambda: go(model=Crooked()), "output for one row has shape"),
    "model without parameters": (lambda: go(model=nn.ReLU()), "no trainable parameters"),
    "cnn on rows": (lambda: go(model=muster.models.CNN()), "it needs images"),
    "resume without a folder": (lambda: go(resume=True), "resume: needs checkpoint=FOLDER"),
    "steps and epochs": (
        lambda: muster.Local(steps=1, epochs=1),
        "steps=1, epochs=1; give exactly one of the two",
    ),
    "neither": (lambda: muster.Local(), "give exactly one of the two"),
    "steps": (lambda: muster.Local(steps=0), "local steps: 0; allowed: whole numbers from 1"),
    "batch": (lambda: muster.Local(steps=1, batch_size=0), "local batch_size: 0"),
    "lr": (lambda: muster.Local(steps=1, lr=-0.1), "local lr: -0.1"),
    "infinite lr": (lambda: muster.Local(steps=1, lr=float("inf")), "local lr: inf; allowed: fini"),
    "mu": (lambda: M.fedprox(mu=-1.0), r"mu: -1\.0; allowed: 0"),
    "pfedme beta": (lambda: M.pfedme(beta=-1.0), r"beta: -1\.0; allowed: above 0"),
    "q": (lambda: M.qffl(q=-1.0), r"q: -1\.0; allowed: 0"),
    "epsilon": (lambda: M.fedalign(epsilon=-1), "epsilon: -1.0 in round 1 of 100; allowed: 0"),
    "epsilon text": (lambda: M.fedalign(epsilon="big"), "epsilon: 'big'; give a number or a sch"),
    "criterion": (lambda: M.fedalign(criterion="f1"), "criterion: 'f1'; allowed: loss, accuracy"),
    "warmup": (lambda: M.fedalign(warmup=1.5), "warmup: 1.5; a fraction of rounds lies between"),
    "warmup negative": (lambda: M.fedalign(warmup=-1), "warmup: -1; a number of rounds cannot"),
    "prox": (lambda: M.fedalign(prox=-1.0), "prox: -1.0; allowed: 0.0"),
    "availability": (lambda: M.fedalign(availability=2.0), "availability: 2.0; allowed: 0.0 to"),
    "period": (lambda: M.fedalign(straggler_period=0), "straggler period: 0; allowed: 1"),
    "reference": (lambda: M.fedalign(reference="some"), "reference: 'some'; allowed: all, asked"),
}


@pytest.mark.parametrize("case", BAD_RUNS)
def test_bad_runs(case):
    build, message = BAD_RUNS[case]
    with pytest.raises(muster.MusterError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_a_model_that_holds_nan_is_refused_before_training():
    model = nn.Linear(5, 4)
    with torch.no_grad():
        model.weight[0, 0] = float("nan")
    with pytest.raises(muster.MusterError, match="parameter weight holds nan or inf"):
        go(model=model)


def test_read_only_and_memory_mapped_arrays_are_used_as_they_are(tmp_path):
    x = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    y = np.arange(20) % 3
    offsets = np.array([0, 8, 20])
    from muster.federation.ragged import Ragged, as_tensor

    data = Ragged(as_tensor(mapped, "x"), torch.from_numpy(y), offsets)
    fed = muster.Federation.from_ragged(data)
    run = muster.simulate(fed, M.fedavg(), muster.models.Softmax(), rounds=2)
    same = muster.simulate(
        federation([(x[:8], y[:8]), (x[8:], y[8:])]), M.fedavg(), muster.models.Softmax(), rounds=2
    )
    assert np.array_equal(run.weights["1.weight"], same.weights["1.weight"])
