"""The baselines written by hand in numpy, one client at a time, full batch, from their papers.

Nothing here imports muster. A model is a flat vector here; `pack` and `unpack` translate.
"""

from __future__ import annotations

import numpy as np

import reference


def pack(layers):
    return np.concatenate([a.ravel() for pair in layers for a in pair])


def unpack(flat, like):
    out, i = [], 0
    for pair in like:
        parts = []
        for a in pair:
            parts.append(flat[i : i + a.size].reshape(a.shape))
            i += a.size
        out.append(tuple(parts))
    return out


class Problem:
    """Losses and gradients of each client at a flat model."""

    def __init__(self, data, layers):
        self.data, self.like, self.start = data, layers, pack(layers)
        self.n = len(data)

    def loss(self, k, w):
        return reference.loss(unpack(w, self.like), *self.data[k])

    def grad(self, k, w):
        return pack(reference.gradient(unpack(w, self.like), *self.data[k]))

    def curve(self, k, w, v):
        """The Hessian at w times v, by a complex step: exact, and with no second derivative."""
        return self.grad(k, w + 1e-30j * v).imag / 1e-30

    def sgd(self, k, w, steps, lr, correction=0.0, pull=0.0, anchor=None):
        v = w.copy()
        for _ in range(steps):
            g = self.grad(k, v) + correction
            if pull:
                g = g + pull * (v - anchor)
            v = v - lr * g
        return v


def maxfl(p, asked, rho, rounds, steps, lr, server_lr, eps, tune=0):
    w = p.start
    for t in range(rounds):
        q, delta = [], []
        for k in asked(t):
            judged = p.sgd(k, w, tune, lr)
            s = 1 / (1 + np.exp(-(p.loss(k, judged) - rho[k])))
            q.append(s * (1 - s))
            delta.append(p.sgd(k, w, steps, lr) - w)
        total = sum(a * d for a, d in zip(q, delta, strict=True))
        w = w + server_lr / (sum(q) + eps) * total
    return w


def scaffold(p, asked, rounds, steps, lr, server_lr):
    w, c = p.start, np.zeros_like(p.start)
    own = [np.zeros_like(w) for _ in range(p.n)]
    for t in range(rounds):
        chosen = asked(t)
        dw, dc = [], []
        for k in chosen:
            y = p.sgd(k, w, steps, lr, correction=c - own[k])
            new = own[k] - c + (w - y) / (steps * lr)
            dw.append(y - w)
            dc.append(new - own[k])
            own[k] = new
        w = w + server_lr * np.mean(dw, axis=0)
        c = c + len(chosen) / p.n * np.mean(dc, axis=0)
    return w


def perfedavg(p, asked, rounds, steps, lr, alpha, hessian_free=False, delta=None):
    w = p.start
    for t in range(rounds):
        replies = []
        for k in asked(t):
            v = w.copy()
            for _ in range(steps):
                g = p.grad(k, v - alpha * p.grad(k, v))
                if hessian_free and delta is None:
                    g = g - alpha * p.curve(k, v, g)
                elif hessian_free:
                    hv = (p.grad(k, v + delta * g) - p.grad(k, v - delta * g)) / (2 * delta)
                    g = g - alpha * hv
                v = v - lr * g
            replies.append(v)
        w = np.mean(replies, axis=0)
    return w


def pfedme(p, asked, rounds, steps, lr, lam, inner, personal_lr, beta):
    w = p.start
    own = [w.copy() for _ in range(p.n)]
    for t in range(rounds):
        replies = []
        for k in asked(t):
            v = w.copy()
            for _ in range(steps):
                theta = v.copy()
                for _ in range(inner):
                    theta = theta - personal_lr * (p.grad(k, theta) + lam * (theta - v))
                v = v - lr * lam * (v - theta)
            own[k] = theta
            replies.append(v)
        w = (1 - beta) * w + beta * np.mean(replies, axis=0)
    return w, own


def qffl(p, asked, rounds, steps, lr, q):
    w = p.start
    for t in range(rounds):
        top, bottom = 0.0, 0.0
        for k in asked(t):
            f = p.loss(k, w)
            g = (w - p.sgd(k, w, steps, lr)) / lr
            top = top + f**q * g
            bottom += q * f ** (q - 1) * (g @ g) + f**q / lr
        w = w - top / bottom
    return w


def afl(p, asked, rounds, steps, lr, rate):
    w, lam = p.start, np.full(p.n, 1 / p.n)
    for t in range(rounds):
        chosen = asked(t)
        losses = {k: p.loss(k, w) for k in chosen}
        replies = {k: p.sgd(k, w, steps, lr) for k in chosen}
        total = sum(lam[k] for k in chosen)
        w = sum(lam[k] * replies[k] for k in chosen) / total
        raised = lam.copy()
        for k in chosen:
            raised[k] += rate * losses[k]
        lam = simplex(raised)
    return w, lam


def simplex(v):
    """Projection by bisection on the shift: nothing in common with the sorting method."""
    low, high = v.min() - 2, v.max()
    for _ in range(200):
        middle = (low + high) / 2
        if np.maximum(v - middle, 0).sum() > 1:
            low = middle
        else:
            high = middle
    return np.maximum(v - high, 0)


def mwfed(p, asked, rho, rounds, steps, lr, factor):
    w, weight = p.start, np.ones(p.n)
    for t in range(rounds):
        chosen = asked(t)
        unmet = [p.loss(k, w) >= rho[k] for k in chosen]
        share = [weight[k] / sum(weight[i] for i in chosen) for k in chosen]
        work = [max(1, int(np.rint(s * steps * len(chosen)))) for s in share]
        w = np.mean([p.sgd(k, w, n, lr) for k, n in zip(chosen, work, strict=True)], axis=0)
        for k, bad in zip(chosen, unmet, strict=True):
            weight[k] *= factor if bad else 1.0
        weight /= weight.max()
    return w


def ditto(p, asked, rounds, steps, lr, lam):
    w = p.start
    sizes = [len(y) for _, y in p.data]
    own = [w.copy() for _ in range(p.n)]
    for t in range(rounds):
        chosen = asked(t)
        replies = [p.sgd(k, w, steps, lr) for k in chosen]
        for k in chosen:
            own[k] = p.sgd(k, own[k], steps, lr, pull=lam, anchor=w)
        total = sum(sizes[k] for k in chosen)
        w = sum(sizes[k] / total * r for k, r in zip(chosen, replies, strict=True))
    return w, own


def server(p, rounds, steps, lr, rule):
    """FedAvg on everyone with a server optimizer: rule(state, delta) -> (state, move)."""
    w, state = p.start, None
    sizes = np.array([len(y) for _, y in p.data], float)
    for _ in range(rounds):
        replies = np.stack([p.sgd(k, w, steps, lr) for k in range(p.n)])
        delta = sizes @ replies / sizes.sum() - w
        state, move = rule(state, delta)
        w = w + move
    return w
