"""Theorem 3.1 of the MaxFL paper: how fast the gradient of its objective vanishes.

With `eta_l = 1/(sqrt(T) tau)` and `eta_g = sqrt(tau m)`, m of M clients asked each round and tau
local steps (eq. 5):

    min_{t < T} E |grad Ftilde(w_t)|^2 <= O(sigma^2 / sqrt(m tau T)) + O(sigma^2 / (T tau))
                                        + O(sqrt(tau) / sqrt(T m)) + O((kappa^2 + beta^2) / T)

that is, `O(1/sqrt(T))` in the number of rounds. The objective is (eq. 3), its gradient (eq. 4):

    Ftilde(w)      = 1/M sum_k sigmoid(F_k(w) - rho_k)
    grad Ftilde(w) = 1/M sum_k q_k(w) grad F_k(w),    q_k = s (1 - s), s = sigmoid(F_k(w) - rho_k)

The learning rates name T, so every T is a run of its own.
"""

from __future__ import annotations

import math

import numpy as np

from ..arrays import Float64
from ..checks import whole
from ..parts.claim import appeal_weight
from .convex import Problem
from .minima import sigmoid


def theorem_3_1_rates(T: int, tau: int, m: int) -> tuple[float, float]:
    """The learning rates of Theorem 3.1: `eta_l = 1 / (sqrt(T) tau)`, `eta_g = sqrt(tau m)`.

    T rounds, tau local steps, m clients per round.

    >>> theorem_3_1_rates(T=100, tau=4, m=9)
    (0.025, 6.0)
    """
    for name, value in (("T", T), ("tau", tau), ("m", m)):
        whole(name, value)
    return 1 / (math.sqrt(T) * tau), math.sqrt(tau * m)


def server_epsilon(of: Problem, m: int) -> float:
    """The paper's `eps = M L_c / (4 L_s)` (section 3, adaptive server learning rate), of the m
    clients whose q_k it is added to: their losses are sqrt(2) X-continuous and L_s-smooth."""
    return m * math.sqrt(2) * of.longest / (4 * of.smoothness)


def surrogate(of: Problem, requirement: Float64, w: Float64) -> tuple[float, float]:
    """`Ftilde(w)` and `|grad Ftilde(w)|^2`."""
    gap = np.array([c.value(w) for c in of.clients]) - requirement
    slopes = np.array([c.gradient(w) for c in of.clients])
    gradient = np.tensordot(appeal_weight(gap), slopes, axes=1) / len(gap)
    return float(sigmoid(gap).mean()), float(np.sum(gradient**2))
