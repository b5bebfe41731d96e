"""What cannot protect rows is refused before a run, with the reason and what to use instead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import muster
from muster import Job, Local, MusterError
from muster.federation import Federation
from muster.federation.inputs import Scaler
from muster.parts.claim import Nothing
from muster.parts.participation import Flexible
from muster.parts.threats.attacks import ScaleUpdate
from muster.privacy import Gaussian

ROWS = Gaussian(clip=1.0, noise=2.0, unit="rows")
METHODS = muster.methods


def job(method=None, **options):
    return Job(method or METHODS.fedavg(), torch.nn.Linear(4, 2), privacy=ROWS, **options)


ALLOWED = ("fedavg", "fedprox", "fedalign", "fedavg_priority", "scaffold", "qffl", "afl")


@pytest.mark.parametrize("name", ALLOWED)
def test_methods_that_need_gradients_and_losses_are_allowed(name):
    job(getattr(METHODS, name)())


@pytest.mark.parametrize(
    ("method", "why"),
    [
        (METHODS.maxfl(), "claim Appeal cannot be private"),
        (METHODS.assist(), "measure gains on the rest"),
        (METHODS.ditto(), "solver Ditto cannot be private: one gradient of each batch"),
        (METHODS.perfedavg(), "solver MetaGradient"),
        (METHODS.pfedme(), "solver Moreau"),
        (METHODS.local(), "solver Solo"),
        (METHODS.fedalign(trust=True), "trust cannot be private"),
        (METHODS.fedalign(epsilon="auto"), "chosen by clients' rows"),
        (METHODS.fedalign(criterion="score"), "release losses, and no score"),
        (replace(METHODS.mwfed(), claim=Nothing()), "effort ByWeight"),
    ],
)
def test_methods_that_need_more_are_refused(method, why):
    with pytest.raises(MusterError, match=why):
        job(method)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"participation": Flexible()}, "clients leave by exact losses"),
        ({"attack": ScaleUpdate(0.1)}, "measure attacks without privacy"),
        ({"tuned_steps": 3}, "these steps are in no account"),
        ({"local": Local(steps=1, batches="independent")}, 'use batches = "poisson"'),
    ],
)
def test_settings_that_let_rows_out_are_refused(options, why):
    with pytest.raises(MusterError, match=why):
        job(**options)


@pytest.mark.parametrize(
    "options",
    [{"joins": 3}, {"cap": 9}, {"denominator": 2.0}, {"secure": True}, {"protect": "others"}],
)
def test_settings_of_whole_clients_are_refused(options):
    privacy = Gaussian(clip=1.0, noise=2.0, unit="rows", **options)
    with pytest.raises(MusterError, match=r"whole clients|the rows of everyone"):
        Job(METHODS.fedavg(), torch.nn.Linear(4, 2), privacy=privacy)


def test_losses_may_not_take_all_of_epsilon():
    privacy = Gaussian(clip=1.0, noise=2.0, unit="rows", loss_share=1.0)
    with pytest.raises(MusterError, match="give less than 1"):
        Job(METHODS.fedavg(), torch.nn.Linear(4, 2), privacy=privacy)


def test_rows_that_two_clients_share_are_refused():
    fed = muster.data.digits(clients=4)
    job_of_digits = Job(METHODS.fedavg(), muster.models.Softmax(), privacy=ROWS)
    job_of_digits.check(fed)
    twice = replace(fed.train, rows=np.concatenate([[1], np.arange(1, int(fed.train.offsets[-1]))]))
    with pytest.raises(MusterError, match="rows several clients share"):
        job_of_digits.check(replace(fed, train=twice))


def test_scales_of_clients_rows_are_refused(tmp_path):
    draw = np.random.default_rng(0)
    rows = [(draw.normal(size=(9, 4)), np.arange(9) % 2)] * 2
    fed = Federation.from_arrays(train=rows, priority=[0])
    job().check(fed)
    with pytest.raises(MusterError, match="statistics of clients' rows"):
        job().check(replace(fed, scaler=Scaler(np.zeros(4), np.ones(4))))
