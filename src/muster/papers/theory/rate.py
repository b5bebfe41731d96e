"""Theorem 3.1 of the MaxFL paper: how fast the gradient of its objective vanishes.

With `eta_l = 1/(sqrt(T) tau)` and `eta_g = sqrt(tau m)`, m of M clients asked each round and tau
local steps (eq. 5):

    min_{t < T} E |grad Ftilde(w_t)|^2 <= O(sigma^2 / sqrt(m tau T)) + O(sigma^2 / (T tau))
                                        + O(sqrt(tau) / sqrt(T m)) + O((kappa^2 + beta^2) / T)

that is, `O(1/sqrt(T))` in the number of rounds. The objective is (eq. 3), its gradient (eq. 4):

    Ftilde(w)      = 1/M sum_k sigmoid(F_k(w) - rho_k)
    grad Ftilde(w) = 1/M sum_k q_k(w) grad F_k(w),    q_k = s (1 - s), s = sigmoid(F_k(w) - rho_k)

The learning rates depend on T, so every T is a separate run.

Section 3 takes eps of the server's learning rate from the curvature of the objective, printed as
`L_s/M sum_k q_k + L_c/4` for L_c-continuous and L_s-smooth F_k. Differentiating eq. 4,

    hess Ftilde = 1/M sum_k q_k hess F_k + 1/M sum_k s''(F_k - rho_k) grad F_k grad F_k'

and max |s''| = 1/(6 sqrt 3), so that the second term is at most `L_c^2 / (6 sqrt 3)`. The printed
one is enough while L_c <= 3 sqrt(3)/2 = 2.598; beyond, F(w) = L_c w breaks it.
"""

from __future__ import annotations

import math

import numpy as np

from ...base.arrays import Float64
from ...base.checks import check_whole
from ...parts.claim import appeal_weight
from .bounds import Form
from .convex import Problem
from .minima import sigmoid

STEEPEST = 1 / (6 * math.sqrt(3))  # max |s''| of the sigmoid s
MOST_SLOPE = 3 * math.sqrt(3) / 2  # L_c up to which L_c/4 is as large as L_c^2 max |s''|


def theorem_3_1_rates(T: int, tau: int, m: int) -> tuple[float, float]:
    """The learning rates of Theorem 3.1: `eta_l = 1 / (sqrt(T) tau)`, `eta_g = sqrt(tau m)`.

    T rounds, tau local steps, m clients per round.

    >>> theorem_3_1_rates(T=100, tau=4, m=9)
    (0.025, 6.0)
    """
    for name, value in (("T", T), ("tau", tau), ("m", m)):
        check_whole(name, value)
    return 1 / (math.sqrt(T) * tau), math.sqrt(tau * m)


def smoothness(L_s: float, L_c: float, q: Float64, form: Form) -> float:
    """Bound the curvature of the objective for L_c-continuous and L_s-smooth F_k and weights q_k:
    `L_s/M sum_k q_k + L_c/4` as printed (section 3), with `L_c^2 / (6 sqrt 3)` in
    place of `L_c/4` repaired."""
    return L_s * float(q.mean()) + (L_c / 4 if form == "printed" else L_c**2 * STEEPEST)


def largest_curvature(L_c: float) -> float:
    """Return the objective's largest curvature for one client with F(w) = L_c w and rho = 0,
    `|d^2/dw^2 sigmoid(L_c w)|`, by differences on a fine grid."""
    w, h = np.linspace(-4.0, 4.0, 8001) / L_c, 1e-3 / L_c
    up, here, down = (sigmoid(L_c * (w + step)) for step in (h, 0.0, -h))
    return float(np.abs(up - 2 * here + down).max()) / h**2


def server_epsilon(problem: Problem, m: int) -> float:
    """Return the paper's `eps = M L_c / (4 L_s)` (section 3, adaptive server learning rate) for the
    m clients whose q_k it is added to: their losses are sqrt(2) X-continuous and L_s-smooth. Rows
    of norm 1 with a 1 added have L_c = 2, where the printed form is enough."""
    return m * math.sqrt(2) * problem.longest / (4 * problem.smoothness)


def surrogate(problem: Problem, requirement: Float64, w: Float64) -> tuple[float, float]:
    """Return `Ftilde(w)` and `|grad Ftilde(w)|^2`."""
    gap = np.array([c.value(w) for c in problem.clients]) - requirement
    slopes = np.array([c.gradient(w) for c in problem.clients])
    gradient = np.tensordot(appeal_weight(gap), slopes, axes=1) / len(gap)
    return float(sigmoid(gap).mean()), float(np.sum(gradient**2))
