"""A canary among the clients: what is released tells less of it than the account says. The same
attack finds out too little noise, and a denominator that counts who replied."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import muster
from canary import attack
from muster.federation import Federation
from muster.privacy import Gaussian, epsilon
from muster.privacy.fixed_point import decode
from muster.protocol import Offer
from muster.run.private_round import release
from private_sums import sum_round

TRIALS, RELEASES, DELTA, CLIP = 12_000, 4, 1e-5, 0.5
CLIENTS, JOINED = 10, 2
MODULE = nn.Linear(4, 2, bias=False)
nn.init.zeros_(MODULE.weight)


def play(noise):
    """The job, an offer, and the sums of a round with and without the canary: of ten clients it and
    one more contribute."""
    draw = np.random.default_rng(0)
    rows = [(draw.normal(size=(6, 4)) * (k < JOINED), np.arange(6) % 2) for k in range(CLIENTS)]
    rows[0] = (np.tile([100.0, 0, 0, 0], (6, 1)), np.zeros(6, int))
    rows[0][1][:2] = 1  # so that it has two classes; most of its gradient is of one
    fed = Federation.from_arrays(train=rows, priority=[0, 1])
    privacy = Gaussian(clip=CLIP, noise=noise, delta=DELTA)
    method = muster.methods.fedavg_priority()
    local = muster.Local(steps=1, batch_size=None, lr=0.5)
    job = muster.Job(method, MODULE, local, RELEASES, privacy=privacy)
    sums = [sum_round(job, fed, without=k)[0] for k in (None, 0)]
    offer = Offer(0, 0, RELEASES, {"weight": MODULE.weight.detach()}, population=CLIENTS)
    return job, offer, sums


def project(job, offer, sums, mechanism):
    """What each trial sees of the canary, in units of the clip: its releases, along the canary."""
    scale = job.scale(offer)
    present, absent = (decode(total, CLIP, scale) for total in sums)
    canary = present - absent
    assert np.linalg.norm(canary) > 0.99 * CLIP, "it takes all it may"
    assert np.linalg.norm(canary) <= CLIP
    direction = canary / np.linalg.norm(canary) / CLIP
    return [
        (mechanism(total, (TRIALS * RELEASES, 1)) @ direction).reshape(TRIALS, -1).sum(1)
        for total in sums
    ]


def releases_of(job, offer):
    return lambda total, times: release(job, offer, np.tile(total, times), False).updates


def test_what_is_released_of_a_client_stays_below_its_account():
    job, offer, sums = play(noise=2.0)
    seen = project(job, offer, sums, releases_of(job, offer))
    assert 0.5 < attack(*seen, DELTA) < epsilon(2.0, RELEASES, DELTA)


def test_too_little_noise_is_found_out():
    job, offer, sums = play(noise=1.0)
    seen = project(job, offer, sums, releases_of(job, offer))
    assert attack(*seen, DELTA) > epsilon(4.0, RELEASES, DELTA), "what a noise of 4 would cost"


def test_a_denominator_of_those_who_joined_is_found_out():
    """The mean of those who replied, with the noise of a mean of all that were asked."""
    job, offer, sums = play(noise=4.0)
    draw, deviation = np.random.default_rng(), 4.0 * CLIP / CLIENTS
    joined = {id(sums[0]): JOINED, id(sums[1]): JOINED - 1}

    def average(total, times):
        mean = np.tile(decode(total, CLIP, job.scale(offer)) / joined[id(total)], times)
        return mean + draw.normal(0, deviation, mean.shape)

    seen = project(job, offer, sums, average)
    best = max(attack(*seen, DELTA), attack(-seen[0], -seen[1], DELTA))
    assert best > epsilon(4.0, RELEASES, DELTA)


def test_the_attack_sees_nothing_where_nothing_is():
    draw = np.random.default_rng(1)
    assert attack(draw.normal(size=4000), draw.normal(size=4000), DELTA) < 0.2
    assert torch.equal(MODULE.weight, torch.zeros_like(MODULE.weight))
