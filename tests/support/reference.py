"""Federated learning written by hand in numpy, one client at a time, from the papers alone.

Nothing here imports muster. Full batch, float64; the tests hold muster against it.
"""

from __future__ import annotations

import numpy as np


def problem(seed, clients=7, features=5, classes=4, priority=(0, 1, 2)):
    """A random federation [(x, y), ...]: clients differ in size, in distribution, and in how hard
    their labels are, so that some are aligned with the first ones, some too hard, some too easy."""
    draw = np.random.default_rng(seed)
    truth = draw.normal(size=(features, classes))
    data = []
    for k in range(clients):
        n = int(draw.integers(5, 30))
        x = draw.normal(0.5 * draw.normal(size=features), 1.0, (n, features))
        if k % 3 == 1:
            x *= 2.5  # far from the boundaries: easy
        own = truth + (0.3 if k % 3 < 2 else 1.5) * draw.normal(size=truth.shape)
        y = np.argmax(x @ own, axis=1)
        y[:2] = [0, classes - 1]  # at least two classes each
        data.append((x, y))
    return data, list(priority)


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def forward(layers, x):
    """Activations of every layer of an MLP [(W, b), ...] (one pair: softmax regression)."""
    hs = [x]
    for i, (w, b) in enumerate(layers):
        z = hs[-1] @ w.T + b
        hs.append(np.maximum(z, 0) if i + 1 < len(layers) else z)
    return hs


def loss(layers, x, y):
    z = forward(layers, x)[-1]
    top = z.max(axis=1)
    return float(
        np.mean(top + np.log(np.exp(z - top[:, None]).sum(axis=1)) - z[np.arange(len(y)), y])
    )


def accuracy(layers, x, y):
    return float(np.mean(forward(layers, x)[-1].argmax(axis=1) == y))


def gradient(layers, x, y):
    hs = forward(layers, x)
    g = softmax(hs[-1])
    g[np.arange(len(y)), y] -= 1
    g /= len(y)
    grads = []
    for i in reversed(range(len(layers))):
        grads.append((g.T @ hs[i], g.sum(axis=0)))
        if i:
            g = (g @ layers[i][0]) * (hs[i] > 0)
    return grads[::-1]


def local_sgd(layers, batches, lr, mu=0.0):
    """SGD over a list of (x, y) batches, with FedProx's pull towards the start."""
    own = [(w.copy(), b.copy()) for w, b in layers]
    for x, y in batches:
        grads = gradient(own, x, y)
        own = [
            (w - lr * (gw + mu * (w - w0)), b - lr * (gb + mu * (b - b0)))
            for (w, b), (gw, gb), (w0, b0) in zip(own, grads, layers, strict=True)
        ]
    return own


def average(models, weights):
    total = sum(weights)
    return [
        tuple(
            sum(a * m[i][j] for a, m in zip(weights, models, strict=True)) / total for j in range(2)
        )
        for i in range(len(models[0]))
    ]


def fedalign(
    data, priority, layers, rounds, steps, lr, eps, criterion="loss", warmup=0, mu=0.0, batches=None
):
    """Algorithm 1, line by line. Returns the model, and who trained and was let in each round."""
    sizes = [len(y) for _, y in data]
    total = sum(sizes[k] for k in priority)
    p = [d / total for d in sizes]
    history = []
    for t in range(rounds):
        e = eps(t) if callable(eps) else eps
        measure = loss if criterion == "loss" else accuracy
        own = [measure(layers, x, y) for x, y in data]
        f = sum(p[k] * own[k] for k in priority)
        trained, admitted = list(priority), list(priority)
        for k in range(len(data)):
            if k in priority or t < warmup:
                continue
            joins = own[k] < f + e if criterion == "loss" else own[k] > f - e
            lets_in = own[k] > f - e if criterion == "loss" else own[k] < f + e
            if joins:
                trained.append(k)
                if lets_in:
                    admitted.append(k)
        trained, admitted = sorted(trained), sorted(admitted)
        models = []
        for k in admitted:
            work = [data[k]] * steps if batches is None else batches(t, k)
            models.append(local_sgd(layers, work, lr, mu))
        layers = average(models, [p[k] for k in admitted])
        history.append((trained, admitted))
    return layers, history


def fedavg(data, clients, layers, rounds, steps, lr, mu=0.0):
    """FedAvg (FedProx for mu > 0) on some clients, weighted by their data."""
    for _ in range(rounds):
        models = [local_sgd(layers, [data[k]] * steps, lr, mu) for k in clients]
        layers = average(models, [len(data[k][1]) for k in clients])
    return layers
