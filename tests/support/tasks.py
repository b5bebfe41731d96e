"""Small federations for every kind of task: ragged clients of their own taste, and a model each."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import muster

SIZES = (9, 14, 6, 11)
TOKENS, PLACES = 7, 5
T = muster.tasks


def network(outputs, width=4):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(width, 5), nn.Tanh(), nn.Linear(5, outputs)).double()


def reader():
    torch.manual_seed(1)
    return nn.Sequential(nn.Embedding(TOKENS, 4), nn.Tanh(), nn.Linear(4, TOKENS)).double()


def rows(kind, draw, n, k):
    """A client's rows of one kind."""
    x = draw.normal(size=(n, 4))
    s = x @ np.array([1.0, -1.0, 0.5, 0.0]) + 0.3 * k
    if kind in ("regression", "huber", "custom"):
        return x, s + 0.1 * draw.normal(size=n)
    if kind == "outputs":
        return x, np.stack([s, -s], 1) + 0.1 * draw.normal(size=(n, 2))
    if kind == "poisson":
        return x, draw.poisson(np.exp(0.3 * s)).astype(float)
    if kind == "binary":
        y = (s + draw.logistic(size=n) > 0).astype(int)
        y[:2] = 0, 1
        return x, y
    if kind == "multiclass":
        return x, np.digitize(s, [-1.0, 1.0])
    if kind == "multilabel":
        return x, (np.stack([s, -s, s + 1], 1) + draw.logistic(size=(n, 3)) > 0).astype(int)
    if kind == "survival":
        time = np.round(draw.exponential(np.exp(-0.5 * s)), 1) + 0.1
        return x, np.stack([time, draw.uniform(size=n) < 0.7], 1).astype(float)
    assert kind == "next_token"
    tokens = draw.integers(0, TOKENS, (n, PLACES + 1))
    y = tokens[:, 1:].copy()
    y[0, -2:] = -100  # padding
    return tokens[:, :-1], y


def of(kind):
    """A federation of one kind, with held-out rows; two of its clients are priority clients."""
    draw = np.random.default_rng(5)
    train = [rows(kind, draw, n, k) for k, n in enumerate(SIZES)]
    test = [rows(kind, draw, n + 2, k) for k, n in enumerate(SIZES)]
    classes = {"binary": 2, "multiclass": 3}.get(kind, 0)
    return muster.Federation.from_arrays(train, test, priority=[0, 1], classes=classes)


TASKS = {
    "regression": (T.regression(), 1),
    "outputs": (T.regression(), 2),
    "huber": (T.huber(0.5), 1),
    "poisson": (T.poisson(), 1),
    "binary": (T.binary(), 1),
    "multiclass": (T.multiclass(scores=("f1", "accuracy", "auc")), 3),
    "multilabel": (T.multilabel(), 3),
    "survival": (T.survival(), 1),
    "next_token": (T.next_token(), 0),
}


def model_of(kind):
    return reader() if kind == "next_token" else network(TASKS[kind][1])
