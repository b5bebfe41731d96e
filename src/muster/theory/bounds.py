"""Theorem 1 of the FedALIGN paper: what each round's admissions do to its bound."""

from __future__ import annotations

import numpy as np

from ..arrays import Float64


def bound_terms(
    extra: Float64,
    bias: Float64 | None,
    steps: int,
    gamma: float,
    smoothness: float,
    convexity: float,
    first: int = 1,
) -> tuple[float, float]:
    """`theta_T` and `rho_T` of Theorem 1 (eq. 7, 8) from what each round admitted.

    extra   S_t = sum over admitted non-priority clients of p_k, one entry a round
    bias    sum over the same of p_k Gamma_k, where the Gamma_k are known (else rho_T is NaN)
    steps   E, local steps a round: i counts local steps, tau(i) is the round they belong to
    first   1 as printed; 0 repairs the printed sums, which drop the first step's terms

        theta_T = 1/(T + gamma - 2) sum_i 1/(1 + S_tau(i))
        rho_T   = 2L/(mu (T + gamma - 2)) sum_i sum_k p_k I_k Gamma_k / (1 + S_tau(i))
    """
    per_step = np.repeat(extra, steps)[first:]
    scale = 1.0 / (len(extra) * steps + gamma - 2.0)
    theta = scale * float(np.sum(1.0 / (1.0 + per_step)))
    if bias is None:
        return theta, float("nan")
    drift = np.repeat(bias, steps)[first:] / (1.0 + per_step)
    return theta, 2.0 * smoothness / convexity * scale * float(np.sum(drift))
