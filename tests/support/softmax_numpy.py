"""Softmax regression in numpy: small federations, full-batch descent, and the folds of clients."""

from __future__ import annotations

import numpy as np

import muster
from muster.base import rng

LR, STEPS, CLASSES = 0.3, 3, 3


def clients_of(seed=0, sizes=(12, 9, 40, 40), priority=(0, 1), shift=None):
    """Small softmax problems; client k's rows have their means moved by shift[k]."""
    draw = np.random.default_rng(seed)
    centres = draw.normal(size=(CLASSES, 4)) * 2
    train = []
    for k, n in enumerate(sizes):
        y = np.arange(n) % CLASSES
        x = centres[y] + draw.normal(size=(n, 4)) + (0 if shift is None else shift[k])
        train.append((x, y))
    return muster.Federation.from_arrays(train=train, priority=list(priority))


def scores(model, x):
    """Outputs of a model, one vector of weights and biases."""
    size = CLASSES * x.shape[1]
    return x @ model[:size].reshape(CLASSES, -1).T + model[size:]


def probabilities(model, x):
    z = scores(model, x)
    p = np.exp(z - z.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def loss(model, x, y):
    return -np.log(probabilities(model, x)[np.arange(len(y)), y]).mean()


def descend(x, y, steps=STEPS, start=None):
    """Full-batch gradient descent of softmax regression, from zero or from a model."""
    model = np.zeros(CLASSES * (x.shape[1] + 1)) if start is None else start
    for _ in range(steps):
        p = probabilities(model, x) - np.eye(CLASSES)[y]
        model = model - LR * np.concatenate([(p.T @ x / len(x)).ravel(), p.mean(0)])
    return model


def folds_of(fed, k, purpose="folds", count=2, seed=0):
    """The folds of a client's rows in the first round."""
    key = rng.keys(seed, purpose, 0, np.array([k]))
    lists = fed.train.lists(np.array([k])).split_folds(count, key)
    return [lists.rows[lists.offsets[f] : lists.offsets[f + 1]] for f in range(count)]


def as_vector(weights):
    """A run's weights in the order of `descend`."""
    flat = sorted((t for t in weights.values()), key=lambda t: -t.ndim)
    return np.concatenate([t.ravel() for t in flat])
