"""Small softmax problems, their descent in numpy, and replies as a round has them."""

from __future__ import annotations

import numpy as np
import polars as pl
import torch

import muster
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


def descend(x, y, steps=STEPS, start=None):
    """Full-batch gradient descent of softmax regression from zero, or another model, in numpy."""
    start = np.zeros(CLASSES * (x.shape[1] + 1)) if start is None else start
    w, b = start[:-CLASSES].reshape(CLASSES, -1), start[-CLASSES:]
    for _ in range(steps):
        z = x @ w.T + b
        p = np.exp(z - z.max(1, keepdims=True))
        p = p / p.sum(1, keepdims=True) - np.eye(CLASSES)[y]
        w, b = w - LR * p.T @ x / len(x), b - LR * p.mean(0)
    return np.concatenate([w.ravel(), b])


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
