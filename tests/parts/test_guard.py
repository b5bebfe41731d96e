"""The guard: what is malformed or impossible is refused, and the reason is recorded."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import muster
from helpers import nine_clients, offer, roster_of
from muster.local import Local
from muster.parts.guard import guard
from muster.protocol import Appraisal, Replies

M = muster.methods


@pytest.fixture
def fed():
    return nine_clients()


def test_the_guard_refuses_what_is_broken_and_says_why():
    n = 5
    models = {"w": torch.zeros(n, 2)}
    models["w"][1, 0] = float("nan")
    models["w"][2, 1] = float("inf")
    loss = np.array([1.0, 1.0, 1.0, np.nan, -1.0])
    replies = Replies(
        roster_of([False] * n), models, Appraisal(loss, np.full(n, 0.5)), np.full(n, np.nan)
    )
    verdict = guard(offer(), replies, appraised=True)
    assert verdict.yes.tolist() == [True, False, False, False, False]
    assert verdict.reason[1] == "malformed: not finite"
    assert verdict.reason[3] == "impossible loss"
    wrong = Replies(
        roster_of([False]), {"w": torch.zeros(1, 3)}, Appraisal.unknown(1), np.full(1, np.nan)
    )
    assert guard(offer(), wrong, False).reason[0] == "malformed: names or shapes"


def test_a_diverging_client_never_moves_the_model(fed):
    """With an absurd learning rate every reply overflows: refused, recorded, model unchanged."""
    model = muster.models.MLP((4,)).build(fed, 0)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1e18)
    run = muster.simulate(fed, M.fedavg(), model, 2, Local(steps=5, lr=1e30), evaluate_every=0)
    assert run.rounds["skipped"].all()
    assert run.rounds["refused"].to_list() == [9, 9]
    assert set(run.clients["reason"]) == {"malformed: not finite"}
    assert all(np.isfinite(w).all() for w in run.weights.values())
