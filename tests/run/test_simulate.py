"""Bad runs: one clear line each, that names the field, what was given and what is allowed."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import muster
import reference
from helpers import federation

M = muster.methods


def go(method=None, model=None, **more):
    fed = federation(reference.problem(0)[0])
    return muster.simulate(
        fed, method or M.fedavg(), model or muster.models.Softmax(), **{"rounds": 1, **more}
    )


class Crooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x.sum() * self.w


BAD_RUNS = {
    "not a federation": (
        lambda: muster.simulate([1], M.fedavg(), muster.models.Softmax(), rounds=1),
        "fed: list; give a Federation",
    ),
    "local as a dict": (lambda: go(local={"steps": 1}), "local: dict; give a Local"),
    "participation as text": (lambda: go(participation="flexible"), "participation: str; give a"),
    "attack as text": (lambda: go(attack="sign_flip"), "attack: str; give a"),
    "beta": (lambda: M.fedadam(beta2=1.5), r"beta2: 1\.5; allowed: 0 up to"),
    "zero rounds": (lambda: go(rounds=0), "rounds: 0; allowed: whole numbers from 1"),
    "fractional rounds": (lambda: go(rounds=1.5), "rounds: 1.5; allowed: whole numbers from 1"),
    "negative seed": (lambda: go(seed=-1), "seed: -1; allowed: whole numbers from 0"),
    "dtype": (lambda: go(dtype="float23"), "unknown dtype 'float23'; did you mean 'float"),
    "engine": (lambda: go(engine="lop"), "unknown engine 'lop'; did you mean 'loop'"),
    "device": (lambda: go(device="gpu0"), "unknown device 'gpu0'; .*known: cpu, cuda"),
    "processes": (lambda: go(processes=0), "processes: 0; allowed: whole numbers from 1"),
    "method": (lambda: go(method="fedavg"), "method: str; give one of muster.methods"),
    "model": (lambda: go(model="mlp"), "model: str; give an nn.Module"),
    "model of other width": (
        lambda: go(model=nn.Linear(9, 4)),
        r"model: it cannot take rows of shape \(5,\)",
    ),
    "model with too few outputs": (
        lambda: go(model=nn.Linear(5, 2)),
        r"output for two rows has shape \(2, 2\); labels go from 0 to 3",
    ),
    "model with a strange output": (lambda: go(model=Crooked()), "output for two rows has shape"),
    "model without parameters": (lambda: go(model=nn.ReLU()), "no trainable parameters"),
    "cnn on rows": (lambda: go(model=muster.models.CNN()), "it needs images"),
    "resume without a folder": (lambda: go(resume=True), "resume: needs checkpoint=FOLDER"),
    "steps and epochs": (
        lambda: muster.Local(steps=1, epochs=1),
        "steps=1, epochs=1; give exactly one of the two",
    ),
    "neither": (lambda: muster.Local(), "give exactly one of the two"),
    "steps": (lambda: muster.Local(steps=0), "local steps: 0; allowed: whole numbers from 1"),
    "batch": (lambda: muster.Local(steps=1, batch_size=0), "local batch_size: 0"),
    "lr": (lambda: muster.Local(steps=1, lr=-0.1), "local lr: -0.1"),
    "infinite lr": (lambda: muster.Local(steps=1, lr=float("inf")), "local lr: inf; allowed: fini"),
    "mu": (lambda: M.fedprox(mu=-1.0), r"mu: -1\.0; allowed: 0"),
    "pfedme beta": (lambda: M.pfedme(beta=-1.0), r"beta: -1\.0; allowed: above 0"),
    "q": (lambda: M.qffl(q=-1.0), r"q: -1\.0; allowed: 0"),
    "epsilon": (lambda: M.fedalign(epsilon=-1), "epsilon: -1.0; allowed: 0"),
    "epsilon text": (lambda: M.fedalign(epsilon="big"), "epsilon: 'big'; give a number or a sch"),
    "criterion": (
        lambda: M.fedalign(criterion="f1"),
        "criterion: 'f1'; allowed: loss, score, accuracy",
    ),
    "warmup": (
        lambda: M.fedalign(warmup=1.5),
        "warmup: 1.5; allowed: a whole",
    ),
    "warmup negative": (lambda: M.fedalign(warmup=-1), "warmup: -1; allowed: whole numbers from 0"),
    "prox": (lambda: M.fedalign(prox=-1.0), "prox: -1.0; allowed: 0 and above"),
    "availability": (lambda: M.fedalign(availability=2.0), "availability: 2.0; allowed: 0.0 to"),
    "period": (
        lambda: M.fedalign(straggler_period=0),
        "period: 0; allowed: whole numbers",
    ),
    "reference": (lambda: M.fedalign(reference="some"), "reference: 'some'; allowed: all, asked"),
}


@pytest.mark.parametrize("case", BAD_RUNS)
def test_bad_runs(case):
    build, message = BAD_RUNS[case]
    with pytest.raises(muster.MusterError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_a_model_that_holds_nan_is_refused_before_training():
    model = nn.Linear(5, 4)
    with torch.no_grad():
        model.weight[0, 0] = float("nan")
    with pytest.raises(muster.MusterError, match="parameter weight holds nan or inf"):
        go(model=model)


@pytest.mark.parametrize(
    "model",
    [
        lambda: nn.Sequential(nn.LazyLinear(4)),
        lambda: nn.Sequential(nn.Linear(5, 4), nn.LazyBatchNorm1d()),
    ],
)
def test_a_lazy_layer_is_refused_until_it_has_a_shape(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, that lazy modules are under development
        lazy = model()
    with pytest.raises(muster.MusterError, match="has no shape yet") as caught:
        go(model=lazy)
    assert "\n" not in str(caught.value)
    lazy(torch.randn(2, 5))
    assert go(model=lazy).rounds["loss"].is_finite().all()
