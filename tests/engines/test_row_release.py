"""Gradients that protect rows: bounded row by row, noisy, one of each batch; on both engines."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import muster
from muster import MusterError
from muster.base import params
from muster.engines import Compute, choose, row_release
from muster.engines.row_release import refuse_module, sum_layers, sum_rows
from muster.federation import Federation
from muster.parts.solvers import SGD, ControlVariates, Ditto, MetaGradient, Moreau
from muster.privacy.row_noise import MARGIN, RowNoise
from muster.protocol import Offer
from muster.tasks.classification import Multiclass
from muster.tasks.regression import Survival

SIZES = [5, 9, 2]
LINEAR = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
DEEP = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 3))
SMOOTH = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.Tanh(), nn.Linear(6, 3, bias=False))
IMAGES = nn.Sequential(nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.Flatten(), nn.Linear(8, 3))


class Recurrent(nn.Module):
    """A module that torch.func does not map."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.LSTM(4, 3, batch_first=True), nn.Linear(3, 3)

    def forward(self, x):
        return self.head(self.body(x.flatten(1, 2))[0][:, -1])


def federation(seed=0):
    draw = np.random.default_rng(seed)
    rows = [(draw.normal(size=(n, 1, 4, 4)) * 3, np.arange(n) % 3) for n in SIZES]
    return Federation.from_arrays(train=rows, priority=[0])


def train(module, engine, local, clip=0.5, noise=1.0, solver=SGD(), seeded=True, fed=None):
    """The start and the models of all clients after a round."""
    fed = fed or federation()
    rows = RowNoise(clip, np.full(fed.n, noise), 5.0, np.ones(fed.n), seeded)
    compute = Compute(engine=engine, dtype="float64", processes=1)
    work = choose(compute, module, fed, local, Multiclass(), rows)
    try:
        start = params.get_params(module, torch.float64, work.device)
        offer = Offer(
            3,
            2,
            5,
            start,
            lr=0.1,
            trainable=params.trainable_names(module),
            server={"control": {n: torch.zeros_like(t) for n, t in start.items()}},
        )
        memory = {p: params.expand(t, fed.n) for p, t in solver.memory(start).items()}
        return start, work.train(solver, offer, np.arange(fed.n), memory)[0].models
    finally:
        work.close()


def bounded_sum(module, x, y, clip):
    """The sum of the rows' gradients, each shortened to the clip: one row at a time."""
    module = copy.deepcopy(module).double()
    total = [torch.zeros_like(p) for p in module.parameters()]
    for i in range(len(x)):
        loss = nn.functional.cross_entropy(module(x[i : i + 1].double()), y[i : i + 1])
        grads = torch.autograd.grad(loss, list(module.parameters()))
        norm = math.sqrt(sum(float(g.pow(2).sum()) for g in grads))
        total = [t + min(1.0, MARGIN * clip / norm) * g for t, g in zip(total, grads, strict=True)]
    return total


@pytest.mark.parametrize("module", [LINEAR, DEEP, SMOOTH, IMAGES, Recurrent()])
@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_a_step_is_the_mean_of_bounded_gradients_of_rows(module, engine):
    if engine == "stacked" and isinstance(module, Recurrent):
        pytest.skip("it has no stacked form")
    fed, local = federation(), muster.Local(steps=1, batch_size=None, lr=0.1)
    start, models = train(module, engine, local, noise=1e-7)
    for k, n in enumerate(SIZES):
        expected = bounded_sum(module, *fed.train.client(k), 0.5)
        for (name, w), g in zip(start.items(), expected, strict=True):
            torch.testing.assert_close(models[name][k], w - 0.1 * g / n, atol=1e-7, rtol=0)


@pytest.mark.parametrize("batches", ["shuffled", "poisson"])
@pytest.mark.parametrize("solver", [SGD(prox=0.3), ControlVariates()])
def test_both_engines_draw_the_same_noise_and_rows(batches, solver):
    local = muster.Local(steps=4, batch_size=3, lr=0.1, batches=batches)
    both = [train(SMOOTH, engine, local, solver=solver)[1] for engine in ("stacked", "loop")]
    for name, t in both[0].items():
        torch.testing.assert_close(t, both[1][name], atol=1e-12, rtol=0)


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_a_sum_is_divided_by_a_public_number_of_rows(engine):
    """Poisson's batches differ in size; the noise of a step does not."""
    fed = Federation.from_arrays(
        train=[(np.zeros((40, 16)), np.arange(40) % 3)] * 400, priority=[0]
    )
    module = nn.Linear(16, 3, bias=False)  # rows of zeros have no gradient: noise is all there is
    local = muster.Local(steps=1, batch_size=8, lr=0.1, batches="poisson")
    start, models = train(module, engine, local, clip=2.0, noise=1.5, fed=fed, seeded=False)
    moved = (start["weight"] - models["weight"]).flatten().numpy() / 0.1
    deviation = 1.5 * 2.0 / 8
    assert moved.std() == pytest.approx(deviation, rel=5 / math.sqrt(2 * moved.size))
    assert abs(moved.mean()) < 5 * deviation / math.sqrt(moved.size)


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_noise_of_the_operating_system_never_repeats(engine):
    local = muster.Local(steps=2, batch_size=None, lr=0.1)
    runs = [train(LINEAR, engine, local, seeded=False)[1]["1.weight"] for _ in range(2)]
    assert not torch.equal(*runs)
    again = [train(LINEAR, engine, local)[1]["1.weight"] for _ in range(2)]
    assert torch.equal(*again)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000),
    st.floats(0.01, 10.0),
    st.sampled_from([1e-3, 1.0, 1e3, 1e20, math.inf, math.nan]),
    st.sampled_from(["layers", "rows"]),
)
def test_whatever_one_row_is_the_sum_changes_by_no_more_than_the_clip(seed, clip, size, how):
    """Any row instead of one without a gradient, in float32: also one beyond all numbers."""
    draw = torch.Generator().manual_seed(seed)
    stack = {
        n: torch.randn(2, *p.shape, generator=draw) for n, p in DEEP.named_parameters(recurse=True)
    }
    x = torch.randn(2, 7, 16, generator=draw) * 10
    y = torch.randint(0, 3, (2, 7), generator=draw)
    other = x.clone()
    other[0, 3] = torch.randn(16, generator=draw) * size
    sums = []
    for rows, counts in ((other, [1.0] * 7), (x, [1.0] * 3 + [0.0] + [1.0] * 3)):
        weight = torch.tensor([counts, [1.0] * 7])
        if how == "layers":
            labels = nn.functional.one_hot(y, 3).transpose(1, 2).float()
            sums.append(sum_layers(stack, ["1.", "3."], rows.transpose(1, 2), labels, weight, clip))
            continue

        def loss(w, a, b):
            h = torch.relu(torch.bmm(a, w["1.weight"].transpose(1, 2)) + w["1.bias"].unsqueeze(1))
            z = torch.bmm(h, w["3.weight"].transpose(1, 2)) + w["3.bias"].unsqueeze(1)
            return nn.functional.cross_entropy(z.flatten(0, 1), b.flatten(), reduction="none")

        sums.append(sum_rows(loss, stack, rows, y, weight, clip))
    away = [(sums[0][n] - sums[1][n]).double() for n in stack]
    assert math.sqrt(sum(float(t[0].pow(2).sum()) for t in away)) <= clip
    assert all(bool((t[1] == 0).all()) for t in away), "another client's sum stays"


@pytest.mark.parametrize("how", ["layers", "rows"])
def test_a_row_in_a_large_batch_changes_the_sum_by_no_more_than_the_clip(how, monkeypatch):
    """Sums as long as 300,000 clips: a float32 of that size is coarser than what rows are shortened
    by."""
    monkeypatch.setattr(row_release, "ROOM", 2**14)
    rows, clip, draw = 300_000, 0.1, torch.Generator().manual_seed(0)
    stack = {"weight": torch.zeros(1, 2, 3), "bias": torch.zeros(1, 2)}
    x = 1.0 + 0.05 * torch.randn(1, rows, 3, generator=draw)
    y = torch.zeros(1, rows, dtype=torch.long)

    def loss(w, a, b):
        z = torch.bmm(a, w["weight"].transpose(1, 2)) + w["bias"].unsqueeze(1)
        return nn.functional.cross_entropy(z.flatten(0, 1), b.flatten(), reduction="none")

    def add_up(counts):
        if how == "rows":
            return sum_rows(loss, stack, x, y, counts, clip)
        labels = nn.functional.one_hot(y, 2).transpose(1, 2).float()
        return sum_layers(stack, [""], x.transpose(1, 2), labels, counts, clip)

    every = add_up(torch.ones(1, rows))
    for k in range(0, rows, 60_000):
        counts = torch.ones(1, rows)
        counts[0, k] = 0.0
        without = add_up(counts)
        away = [(every[n].double() - without[n].double()).pow(2).sum() for n in stack]
        assert math.sqrt(sum(map(float, away))) <= clip


@pytest.mark.parametrize("engine", ["stacked", "loop"])
@pytest.mark.parametrize("solver", [Ditto(), Moreau(), MetaGradient()])
def test_a_second_gradient_of_a_batch_is_refused(engine, solver):
    local = muster.Local(steps=2, batch_size=3)
    with pytest.raises(MusterError, match="more than one gradient of a batch"):
        train(LINEAR, engine, local, solver=solver)


@pytest.mark.parametrize(
    ("module", "task", "why"),
    [
        (nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16), nn.Linear(16, 3)), Multiclass(), "across"),
        (nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 3)), Multiclass(), "draws"),
        (LINEAR, Survival(), "ties a client's rows together"),
    ],
)
def test_models_whose_rows_are_not_apart_are_refused(module, task, why):
    with pytest.raises(MusterError, match=why):
        refuse_module(module, federation(), task)


def test_a_module_that_looks_across_rows_without_statistics_is_refused():
    class Centred(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(16, 3)

        def forward(self, x):
            return self.head(x.flatten(1) - x.flatten(1).mean(0))

    with pytest.raises(MusterError, match="across the rows"):
        refuse_module(Centred(), federation(), Multiclass())
