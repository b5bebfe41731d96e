"""Without privacy a requirement, which never leaves its client, follows from claim and loss."""

from __future__ import annotations

import numpy as np

import muster


def solve_requirements(loss, claim):
    """rho_k from F_k and q_k of two rounds: `q = s (1 - s)` has two roots s, of which the same rho
    fits both rounds."""
    gap = np.log1p(np.sqrt(1 - 4 * claim)) - np.log1p(-np.sqrt(1 - 4 * claim))
    first, second = (np.stack([f - g, f + g]) for f, g in zip(loss, gap, strict=True))
    best = np.abs(first[:, None] - second).min(1).argmin(0)
    return first[best, np.arange(loss.shape[1])]


def test_requirements_follow_from_claims_and_losses():
    model = muster.models.Softmax()
    fed = muster.with_solo(muster.data.digits(clients=6), model, rounds=3)
    run = muster.simulate(fed, muster.methods.maxfl(), model, 2, dtype="float64")
    said = run.clients.sort("round", "client")
    loss, claim = (said[name].to_numpy().reshape(2, 6) for name in ("loss", "claim"))
    np.testing.assert_allclose(solve_requirements(loss, claim), fed.requirement, rtol=1e-9)
