"""Small softmax problems: federations, descent and folds in numpy, replies as a round has them."""

from __future__ import annotations

import numpy as np
import polars as pl
import torch

import muster
from muster.base import rng
from muster.protocol import Appraisal, Replies, Roster

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


def final(fed, method, rounds=30, **more):
    return muster.simulate(
        fed,
        method,
        muster.models.Softmax(),
        rounds=rounds,
        local=muster.Local(steps=5, batch_size=8, lr=0.1),
        **more,
    )


def helper_weight(run):
    others = run.clients.filter(~pl.col("priority"))
    return others.group_by("round").agg(pl.col("weight").sum())["weight"].mean()


def replies(models, priority, claim, importance=None, share=None):
    """Replies of one vector each, as a round has them."""
    models = np.asarray(models, np.float64)
    n = len(models)
    priority = np.asarray(priority)
    roster = Roster(
        np.arange(n),
        priority,
        np.where(priority, 1.0, 0.0) if importance is None else np.asarray(importance),
        np.full(n, 1.0) if share is None else np.asarray(share),
    )
    return Replies(
        roster, {"w": torch.from_numpy(models)}, Appraisal.unknown(n), np.asarray(claim, np.float64)
    )
