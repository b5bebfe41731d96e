"""A canary among a client's rows: what a server can tell stays below the client's account, and the
same attack finds out a client that draws less noise, or other rows, than its account says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import muster
from canary import attack
from muster.base import params
from muster.engines import Compute, choose
from muster.federation import Federation
from muster.parts.solvers import SGD
from muster.privacy import Gaussian
from muster.privacy.row_noise import RowNoise
from muster.protocol import Offer
from muster.run.row_account import RowAccount
from muster.tasks.classification import Multiclass

TRIALS, ROWS, WIDTH, CLIP, LR = 3000, 4, 4, 2.0, 0.1
MODULE = nn.Linear(WIDTH, 2, bias=False)  # a row of zeros has no gradient: it is as if left out
nn.init.zeros_(MODULE.weight)


def clients_with_and_without():
    """Clients that are the same but for one row: the canary, or one that adds nothing."""
    canary = np.zeros((ROWS, WIDTH))
    canary[0] = 100.0
    rows = [(x, np.arange(ROWS) % 2) for x in [canary] * TRIALS + [np.zeros_like(canary)] * TRIALS]
    return Federation.from_arrays(train=rows, priority=[0])


def play(local, noise, rounds):
    """The projections `[round, client]` of all clients' updates on the canary's gradient, in units
    of the clip: each client is a trial, and the server offers the same model again and again."""
    fed = clients_with_and_without()
    rows = RowNoise(CLIP, np.full(fed.n, noise), 5.0, np.ones(fed.n))
    work = choose(Compute(), MODULE, fed, local, Multiclass(), rows)
    start = params.get_params(MODULE, torch.float32, work.device)
    x, y = fed.train.client(0)
    loss = nn.functional.cross_entropy(MODULE(x[:1].float()), y[:1])
    (gradient,) = torch.autograd.grad(loss, [MODULE.weight])
    direction = (gradient / gradient.norm()).flatten().double()
    expected = ROWS if local.batch_size is None else min(local.batch_size, ROWS)
    seen = []
    for t in range(rounds):
        offer = Offer(0, t, rounds, start, lr=LR, trainable=("weight",))
        models = work.train(SGD(), offer, np.arange(fed.n), {})[0].models["weight"]
        moved = (start["weight"] - models).flatten(1).double() @ direction
        seen.append(moved.numpy() / LR * expected / CLIP)
    work.close()
    return np.array(seen)


def claim(local, noise, rounds, delta=1e-5):
    """The epsilon in the client's own account."""
    privacy = Gaussian(clip=CLIP, noise=noise, delta=delta, unit="rows")
    job = muster.Job(muster.methods.fedavg(), MODULE, local, rounds, privacy=privacy)
    return float(RowAccount.open(job, np.array([ROWS])).measure(rounds)[0])


FULL = muster.Local(steps=1, batch_size=None, lr=LR)
SAMPLED = muster.Local(steps=1, batch_size=1, lr=LR, batches="poisson")


def find(local, noise, rounds, rate=1.0, believed=None):
    """The empirical epsilon of the best attack there is: the likelihood ratio of all rounds."""
    z = believed or noise
    y = play(local, noise, rounds)
    score = np.log1p(rate * np.expm1((2 * y - 1) / (2 * z**2))).sum(0)
    return attack(score[:TRIALS], score[TRIALS:], 1e-5)


@pytest.mark.parametrize(
    ("local", "noise", "rounds", "rate"), [(FULL, 2.0, 4, 1.0), (SAMPLED, 0.8, 4, 0.25)]
)
def test_what_shows_of_a_canary_stays_below_the_account(local, noise, rounds, rate):
    found = find(local, noise, rounds, rate)
    account = claim(local, noise, rounds)
    assert 0.2 < found < account, "the attack sees something, and not more than was promised"


def test_too_little_noise_is_found_out():
    assert find(FULL, 1.0, 4, believed=4.0) > claim(FULL, 4.0, 4)


def test_amplification_that_is_claimed_and_not_there_is_found_out():
    """All rows in every step, accounted for as if each was drawn with a chance of a quarter."""
    assert find(FULL, 3.0, 36) > claim(SAMPLED, 3.0, 36)
