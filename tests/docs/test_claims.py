"""What the papers claim and muster measured, as tests that can fail."""

from __future__ import annotations

import numpy as np
import pytest

import muster
from muster.report.intervals import Interval

M = muster.methods
LOCAL = muster.Local(steps=5, batch_size=10, lr=0.1)


def losses(method, seeds, noise="low"):
    """Priority training loss after rounds 50 and 200 for each seed."""
    rows = []
    for seed in seeds:
        fed = muster.data.synth(noise=noise, seed=seed)
        run = muster.simulate(
            fed, method, muster.models.Softmax(), 200, LOCAL, seed=seed, evaluate_every=50
        )
        rows.append([run.rounds["loss"][49], run.rounds["loss"][199]])
    return np.array(rows)


def check_fedalign_helps(seeds):
    align = losses(M.fedalign(0.2), seeds)
    none = losses(M.fedavg_priority(), seeds)
    everyone = losses(M.fedavg(), seeds)
    gap = Interval.of(align[:, 0] - none[:, 0])
    assert gap.mean + gap.half < 0, f"round 50, FedALIGN - FedAvg on priority: {gap}"
    assert align[:, 1].mean() < none[:, 1].mean()
    assert everyone[:, 1].mean() > none[:, 1].mean()
    return align, none, everyone


@pytest.mark.slow
def test_on_synth_at_low_noise_fedalign_helps_and_everyone_hurts():
    """Five seeds, E = 5 steps, batch 10, lr 0.1, eps 0.2."""
    align, none, everyone = check_fedalign_helps(range(5))
    assert (align[:, 0] < none[:, 0]).all(), "in every seed"
    assert (everyone[:, 1] > align[:, 1]).all(), "in every seed"


@pytest.mark.slow
def test_the_same_over_twenty_seeds():
    check_fedalign_helps(range(20))
