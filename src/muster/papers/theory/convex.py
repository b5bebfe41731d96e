"""Regularised softmax regression: the problem on which Theorem 1's constants can all be computed.

Client k's objective is its mean cross-entropy plus the same quadratic for everybody, on all
parameters, the bias included (a row is `(x, 1)`, the parameters a matrix W, [class, feature]):

    F_k(W) = 1/D_k sum_i CE(W (x_i, 1), y_i) + lam/2 |W|^2,     F = sum_{k in P} p_k F_k

With `X = max |(x, 1)|` over all rows:

    mu       lam: the quadratic alone
    L        max_k lambda_max(X_k' X_k / D_k) / 2 + lam, as the Hessian of the cross-entropy in the
             scores, diag(s) - s s', has no eigenvalue above 1/2
    sigma^2  2 X^2 / b: a row's gradient (s - e_y)(x, 1)' has a norm of at most sqrt(2) X, and a
             batch of b rows, drawn again for every step, a variance of at most 1/b of a row's
    G^2      (sqrt(2) X + lam R)^2 with R = max(|W_0|, sqrt(2) X / lam): the step
             `W <- (1 - eta lam) W - eta g` never leaves the ball of radius R, and there
             |g + lam W| is no larger. From W_0 = 0, and from W*, this is 8 X^2
    Gamma    F* - sum_{k in P} p_k F_k*
    Gamma_k  F_k(W*) - F_k*

The quadratic is common to all clients, so it drops out of FedALIGN's `|F_k(w) - F(w)| < eps`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...base.arrays import Bool, Float64, Int64
from ...base.checks import check_above, check_at_least
from ...base.errors import MusterError
from ...base.lazy import torch
from ...federation import Federation
from ...federation.ragged_rows import features

SMALL = 1e-9  # gradient norm at which a minimum counts as found


@dataclass(frozen=True)
class SoftmaxObjective:
    """`sum_i weight_i CE(W x_i, y_i) + lam/2 |W|^2`; weights sum to 1, x ends in a column of 1."""

    x: Float64
    y: Int64
    weight: Float64
    classes: int
    lam: float

    def value(self, w: Float64) -> float:
        """The objective at W."""
        scores = _log_softmax(self.x @ w.T)
        own = scores[np.arange(len(self.y)), self.y]
        return float(-self.weight @ own + self.lam / 2 * np.sum(w * w))

    def gradient(self, w: Float64) -> Float64:
        """Its gradient, [class, feature]."""
        s = np.exp(_log_softmax(self.x @ w.T))
        s[np.arange(len(self.y)), self.y] -= 1.0
        return np.asarray((s * self.weight[:, None]).T @ self.x + self.lam * w, np.float64)

    def product(self, w: Float64, v: Float64) -> Float64:
        """The Hessian at W times v: `sum_i weight_i (diag(s) - s s') (v x_i) x_i' + lam v`."""
        s, along = np.exp(_log_softmax(self.x @ w.T)), self.x @ v.T
        inner = s * (along - (s * along).sum(axis=1, keepdims=True))
        return np.asarray((inner * self.weight[:, None]).T @ self.x + self.lam * v, np.float64)

    def minimum(self) -> tuple[Float64, float]:
        """Return the minimiser and the least value, to a gradient norm of 1e-9: Newton's method
        from 0, each step by conjugate gradients, shortened while it does not descend."""
        w = np.zeros((self.classes, self.x.shape[1]))
        for _ in range(200):
            g, here = self.gradient(w), self.value(w)
            size = float(np.linalg.norm(g))
            if size <= SMALL:
                return w, here
            step = self._newton(w, g, min(0.1, np.sqrt(size)) * size)
            slope, length = float(np.sum(g * step)), 1.0
            # Near the minimum a descent is smaller than what is lost in rounding the value.
            slack = 1e-14 * max(1.0, abs(here))
            while self.value(w + length * step) > here + 1e-4 * length * slope + slack:
                length /= 2
            w = w + length * step
        raise MusterError(
            f"theory: no minimum found to a gradient norm of {SMALL:g} (lam {self.lam:g}); scale "
            "the rows (muster.papers.theory.convex.scale_rows) or take a larger lam"
        )

    def _newton(self, w: Float64, g: Float64, enough: float) -> Float64:
        """A step s with `|H s + g| <= enough`, by conjugate gradients."""
        s, r = np.zeros_like(g), -g
        p, rr = r, float(np.sum(r * r))
        for _ in range(g.size):
            if np.sqrt(rr) <= enough:
                break
            hp = self.product(w, p)
            along = rr / float(np.sum(p * hp))
            s, r = s + along * p, r - along * hp
            before, rr = rr, float(np.sum(r * r))
            p = r + rr / before * p
        return s


def _log_softmax(scores: Float64) -> Float64:
    below = scores - scores.max(axis=1, keepdims=True)
    return np.asarray(below - np.log(np.exp(below).sum(axis=1, keepdims=True)), np.float64)


@dataclass(frozen=True)
class Problem:
    """Every client's objective and that of the priority clients together."""

    clients: tuple[SoftmaxObjective, ...]
    share: Float64
    priority: Bool

    @cached_property
    def whole(self) -> SoftmaxObjective:
        """`F = sum_{k in P} p_k F_k` as one objective over the priority clients' rows."""
        mine = [(c, p) for c, p in zip(self.clients, self.share, strict=True)]
        mine = [pair for pair, is_in in zip(mine, self.priority, strict=True) if is_in]
        return SoftmaxObjective(
            np.concatenate([c.x for c, _ in mine]),
            np.concatenate([c.y for c, _ in mine]),
            np.concatenate([p * c.weight for c, p in mine]),
            self.clients[0].classes,
            self.clients[0].lam,
        )

    @cached_property
    def optimum(self) -> tuple[Float64, float]:
        """`w*` and `F*`."""
        return self.whole.minimum()

    @cached_property
    def longest(self) -> float:
        """`X = max |(x, 1)|`."""
        return max(float(np.linalg.norm(c.x, axis=1).max()) for c in self.clients)

    @cached_property
    def smoothness(self) -> float:
        """`L = max_k lambda_max(X_k' X_k / D_k) / 2 + lam`: no F_k has more curvature anywhere."""
        moments = ((c.x * c.weight[:, None]).T @ c.x for c in self.clients)
        top = max(float(np.linalg.eigvalsh(moment)[-1]) for moment in moments)
        return top / 2 + self.clients[0].lam


def problem(fed: Federation, lam: float) -> Problem:
    """Build the regularised problem on a federation's training rows. (At lam = 0 there may be no
    minimum, and no `constants`.)"""
    check_at_least("lam", lam)
    clients = []
    for k in range(fed.n):
        x, y = fed.train.client(k)
        rows = features(x, torch.float64).flatten(1).numpy()
        counts = fed.train.row_weights(fed.train.positions(np.array([k])))
        weight = np.full(len(rows), 1.0 / len(rows)) if counts is None else counts
        padded = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
        clients.append(SoftmaxObjective(padded, y.numpy(), weight, fed.classes, lam))
    return Problem(tuple(clients), fed.share, fed.priority)


def scale_rows(fed: Federation, norm: float = 1.0) -> Federation:
    """Divide all rows of a federation by one number, so that the longest has this norm.

    On raw SYNTH rows L is about 50 (few clients of few rows) to 200 (ten priority clients and ten
    others), and the bound is vacuous for any T that can be run.
    """
    check_above("norm", norm)
    by = float(features(fed.train.x, torch.float64).flatten(1).norm(dim=1).max()) / norm

    def smaller(part: Any) -> Any:
        return None if part is None else replace(part, x=features(part.x, torch.float64) / by)

    return replace(fed, train=smaller(fed.train), test=smaller(fed.test), name=f"{fed.name} scaled")


scaled = scale_rows  # the earlier name


@dataclass(frozen=True)
class Constants:
    """The constants of Theorem 1 for a problem, under the paper's names (see this module).

    Attributes:
        start2: |w_0 - w*|^2
        start: F(w_0) - F*, the error before the first step
    """

    mu: float
    L: float
    X: float
    G2: float
    sigma2: float
    w_star: Float64
    F_star: float
    F_k_star: Float64
    Gamma: float
    Gamma_k: Float64
    start2: float
    start: float


def constants(problem: Problem, batch_size: int | None, start: Float64 | None = None) -> Constants:
    """Compute all constants of Theorem 1 for local SGD from `start`, by default W = 0, with batches
    that are drawn again for every step (`Local(batches="independent")`); `batch_size=None` is the
    full batch."""
    lam = problem.clients[0].lam
    check_above("lam", lam)
    w_star, F_star = problem.optimum
    least = np.array([c.minimum()[1] for c in problem.clients])
    there = np.array([c.value(w_star) for c in problem.clients])
    mine = problem.priority
    begin = np.zeros_like(w_star) if start is None else start
    slope = np.sqrt(2) * problem.longest
    radius = max(float(np.linalg.norm(begin)), slope / lam)
    largest = max(len(c.y) for c in problem.clients)
    return Constants(
        mu=lam,
        L=problem.smoothness,
        X=problem.longest,
        G2=(slope + lam * radius) ** 2,
        sigma2=0.0 if batch_size is None or batch_size >= largest else slope**2 / batch_size,
        w_star=w_star,
        F_star=F_star,
        F_k_star=least,
        Gamma=F_star - float(problem.share[mine] @ least[mine]),
        Gamma_k=there - least,
        start2=float(np.sum((begin - w_star) ** 2)),
        start=problem.whole.value(begin) - F_star,
    )
