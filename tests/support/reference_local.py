"""A client's local work by hand in numpy, from the papers and torch's documentation: softmax
regression on given batches, every solver and every optimizer.

Nothing here imports muster. A model is a flat vector, W then b. Solvers are given `descent`, which
takes a start and a direction through all batches of a round.
"""

from __future__ import annotations

import numpy as np

import reference
from reference_methods import pack, unpack


class Batch:
    """Gradient and curvature of the mean cross-entropy on some rows."""

    def __init__(self, x, y, classes):
        self.x, self.y = x, y
        self.like = [(np.zeros((classes, x.shape[1])), np.zeros(classes))]

    def grad(self, w):
        return pack(reference.gradient(unpack(w, self.like), self.x, self.y))

    def curve(self, w, v):
        """The Hessian at w times v: softmax's derivative is `p (dz - p dz)`."""
        (weight, bias), (dweight, dbias) = (*unpack(w, self.like), *unpack(v, self.like))
        p = reference.softmax(self.x @ weight.T + bias)
        dz = self.x @ dweight.T + dbias
        dp = p * (dz - (p * dz).sum(1, keepdims=True)) / len(self.x)
        return pack([(dp.T @ self.x, dp.sum(0))])


# --- optimizers: (settings, state, w, direction, lr) -> w, the state changed in place -------------


def clipped(g, most):
    return g if most is None else g * min(1.0, most / (np.linalg.norm(g) + 1e-6))


def sgd(o, state, w, g, lr):
    d = clipped(g, o.get("clip")) + o.get("weight_decay", 0.0) * w
    momentum = o.get("momentum", 0.0)
    if momentum:
        first = "v" not in state
        damped = d if first else (1 - o.get("dampening", 0.0)) * d
        state["v"] = damped if first else momentum * state["v"] + damped
        d = d + momentum * state["v"] if o.get("nesterov") else state["v"]
    return w - lr * d


def adam(o, state, w, g, lr):
    g = clipped(g, o.get("clip")) + o.get("weight_decay", 0.0) * w
    (b1, b2), eps = o.get("betas", (0.9, 0.999)), o.get("eps", 1e-8)
    t = state["t"] = state.get("t", 0) + 1
    m = state["m"] = b1 * state.get("m", 0.0) + (1 - b1) * g
    s = state["s"] = b2 * state.get("s", 0.0) + (1 - b2) * g * g
    if o.get("amsgrad"):
        s = state["most"] = np.maximum(state.get("most", 0.0), s)
    return w - lr * (m / (1 - b1**t)) / (np.sqrt(s / (1 - b2**t)) + eps)


def adamw(o, state, w, g, lr):
    kept = w * (1 - lr * o.get("weight_decay", 0.01))
    return adam({**o, "weight_decay": 0.0}, state, kept, g, lr)


OPTIMIZERS = {"sgd": sgd, "adam": adam, "adamw": adamw}


# --- solvers: (settings, descent, w, own memory, server's memory) -> reply, new memory ------------


def plain(o, descent, w, own, server):
    return descent(w, lambda v, b: b[0].grad(v) + o.get("prox", 0.0) * (v - w)), own


def solo(o, descent, w, own, server):
    v = descent(own.get("own", w), lambda v, b: b[0].grad(v))
    return v, {"own": v}


def control_variates(o, descent, w, own, server):
    """c_k' is the mean of the raw gradients on the way, whatever the optimizer made of them."""
    c, mine, seen = server, own.get("control", np.zeros_like(w)), []

    def direction(v, b):
        seen.append(b[0].grad(v))
        return seen[-1] - mine + c

    reply = descent(w, direction)
    return reply, {"control": np.mean(seen, axis=0)}


def meta_gradient(o, descent, w, own, server):
    alpha, delta = o["alpha"], o.get("delta")

    def direction(v, b):
        g = b[1].grad(v - alpha * b[0].grad(v))
        if not o.get("hessian_free"):
            return g
        hv = b[2].curve(v, g)
        if delta is not None:
            hv = (b[2].grad(v + delta * g) - b[2].grad(v - delta * g)) / (2 * delta)
        return g - alpha * hv

    return descent(w, direction), own


def moreau(o, descent, w, own, server):
    found = []

    def direction(v, b):
        theta = v
        for _ in range(o["inner"]):
            theta = theta - o["personal_lr"] * (b[0].grad(theta) + o["lam"] * (theta - v))
        found.append(theta)
        return o["lam"] * (v - theta)

    return descent(w, direction), {"own": found[-1]}


def ditto(o, descent, w, own, server):
    reply = descent(w, lambda v, b: b[0].grad(v))
    mine = descent(own.get("own", w), lambda v, b: b[0].grad(v) + o["lam"] * (v - w))
    return reply, {"own": mine}


SOLVERS = {
    "sgd": plain,
    "solo": solo,
    "control_variates": control_variates,
    "meta_gradient": meta_gradient,
    "moreau": moreau,
    "ditto": ditto,
}
DRAWS = {"meta_gradient": lambda o: 3 if o.get("hessian_free") else 2}  # batches a step uses


def rounds(start, share, batches, rates, solver, optimizer, keep):
    """Round after round of everyone: the model, every client's memory, and the mean control.

    batches[t][k]  the batches of client k in round t;  rates[t][j]  the rate of step j of round t
    solver, optimizer  each a name and its settings
    """
    (kind, o), (rule, settings) = solver, optimizer
    draws = DRAWS.get(kind, lambda o: 1)(o)
    w, c, own, kept = start, np.zeros_like(start), [{} for _ in share], {}
    for t, round in enumerate(batches):
        replies, before = [], own
        own = []
        for k, rows in enumerate(round):
            count = iter(range(9))

            def descent(v, direction, k=k, rows=rows, count=count, t=t):
                at = (k, next(count))  # a state for each descent of each client
                state = kept.setdefault(at, {}) if keep else {}
                for j in range(len(rows) // draws):
                    g = direction(v, rows[j * draws : (j + 1) * draws])
                    v = OPTIMIZERS[rule](settings, state, v, g, rates[t][j])
                return v

            reply, memory = SOLVERS[kind](o, descent, w, before[k], c)
            replies.append(reply)
            own.append(memory)
        w = np.average(replies, axis=0, weights=share)
        if kind == "control_variates":
            c = np.mean([m["control"] for m in own], axis=0)  # from 0, everyone in every round
    return w, own, c
