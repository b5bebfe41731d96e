"""Per-FedAvg's second-order term: the exact product with the Hessian, and the printed one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import muster
import reference
from helpers import federation
from muster.base import params
from muster.engines import Compute, choose
from muster.engines.engine import Assignment
from muster.parts.solvers import ControlVariates, MetaGradient, Solver, Work
from muster.protocol import Offer

MODELS = {
    "relu": lambda: nn.Sequential(nn.Linear(5, 30), nn.ReLU(), nn.Linear(30, 20), nn.ReLU(),
                                  nn.Linear(20, 4)),
    "layer norm and tanh": lambda: nn.Sequential(nn.Linear(5, 9), nn.LayerNorm(9), nn.Tanh(),
                                                 nn.Linear(9, 4)),
    "softmax": lambda: nn.Sequential(nn.Linear(5, 4)),
}  # fmt: skip


class Asks(Solver):
    """A solver that takes one step along nothing, and notes `H(w) v` for random v on the way."""

    def __init__(self, delta=None):
        self.meta = MetaGradient(0.1, True, delta)

    def __call__(self, cohort, offer, memory):
        draw = torch.Generator().manual_seed(1)
        vs, found = {}, {}

        def update(w, grads):
            for n, t in w.items():
                one = torch.randn(t.shape[1:], generator=draw, dtype=t.dtype)
                vs[n] = one.expand_as(t).contiguous()
            found.update(self.meta.product(grads[0], w, vs))
            return {n: torch.zeros_like(t) for n, t in w.items()}

        models = cohort.iterate(params.expand(offer.model, len(cohort.steps)), update)
        return Work(models, {"product": found, "v": vs})


def products(engine, model, delta=None):
    """What an engine says `H v` is for each client, and what torch.func says."""
    torch.manual_seed(0)
    module = MODELS[model]().double()
    fed = federation(reference.problem(0)[0])
    local = muster.Local(steps=1, batch_size=None)
    work = choose(Compute(engine, dtype="float64", processes=1), module, fed, local)
    start = params.get_params(module, torch.float64, torch.device("cpu"))
    offer = Offer(0, 0, 1, start, lr=0.1, trainable=params.trainable_names(module))
    done, _ = work.train(Asks(delta), offer, np.arange(fed.n), {})
    names = list(start)
    pairs = []
    for k in range(fed.n):
        x, y = fed.train.client(k)

        def loss(*values, x=x, y=y):
            state = dict(zip(names, values, strict=True))
            return cross_entropy(torch.func.functional_call(module, state, (x,)), y)

        v = tuple(done.memory["v"][n][k] for n in names)
        exact = torch.autograd.functional.hvp(loss, tuple(start.values()), v)[1]
        found = [done.memory["product"][n][k] for n in names]
        pairs.append((torch.cat([t.ravel() for t in found]), torch.cat([t.ravel() for t in exact])))
    return pairs


@pytest.mark.parametrize("engine", ["stacked", "loop"])
@pytest.mark.parametrize("model", MODELS)
def test_the_product_with_the_hessian_is_exact(model, engine):
    for found, exact in products(engine, model):
        assert float(exact.norm()) > 0.01
        assert float((found - exact).norm() / exact.norm()) < 1e-9


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_the_printed_difference_is_far_off_where_there_are_kinks(engine):
    """Between w - delta v and w + delta v a ReLU changes sides, and the gradient jumps: on a
    smooth model the same delta is right to four digits."""
    kinked, smooth = (
        [float((a - b).norm() / b.norm()) for a, b in products(engine, model, delta=1e-3)]
        for model in ("relu", "softmax")
    )
    assert min(kinked) > 0.1
    assert max(smooth) < 1e-4


@pytest.mark.parametrize("optimizer", [muster.optimizers.sgd(), muster.optimizers.adam()])
@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_control_variates_change_where_a_gradient_was_seen(engine, optimizer):
    """Not those of a client that takes no step, nor BatchNorm's statistics; at a learning rate of 0
    they are the gradient at w."""
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(5) if engine == "loop" else nn.LayerNorm(5)
    module = nn.Sequential(norm, nn.Linear(5, 4)).double()
    fed = federation(reference.problem(0)[0])
    local = muster.Local(steps=2, batch_size=None, lr=0.1, optimizer=optimizer)
    work = choose(Compute(engine, dtype="float64", processes=1), module, fed, local)
    start = params.get_params(module, torch.float64, torch.device("cpu"))
    server = {"control": {n: torch.ones_like(t) for n, t in start.items()}}
    own = {"control": {n: torch.full_like(t, 2.0) for n, t in params.expand(start, 3).items()}}
    for lr in (0.1, 0.0):
        offer = Offer(
            0, 0, 1, start, lr=lr, trainable=params.trainable_names(module), server=server
        )
        steps = Assignment(np.array([2, 0, 1]))
        done, _ = work.train(ControlVariates(), offer, np.arange(3), own, steps)
        for n, change in done.extra["change"].items():
            assert torch.equal(change[1], torch.zeros_like(change[1]))
            assert bool(change[0].any()) == bool(change[2].any()) == (n in offer.trainable)
            assert torch.equal(done.memory["control"][n], own["control"][n] + change)
    x, y = fed.train.client(0)
    cross_entropy(module.train()(x), y).backward()
    for n, p in module.named_parameters():
        assert float((done.memory["control"][n][0] - p.grad).abs().max()) < 1e-12


def test_a_linear_loss_has_no_curvature():
    from muster.engines.descent import hessian_product

    w = torch.ones(3, requires_grad=True)
    (product,) = hessian_product((w * 2).sum(), [w], [torch.ones(3)])
    assert torch.equal(product, torch.zeros(3))


def test_bad_numbers():
    for build, message in (
        (lambda: MetaGradient(delta=0.0), "delta: 0.0; allowed: above 0"),
        (lambda: MetaGradient(alpha=-1), "alpha: -1; allowed: 0 and above"),
        (lambda: muster.methods.perfedavg(delta=-1e-3), "delta: -0.001; allowed: above 0"),
        (lambda: muster.methods.pfedme(inner=0), "inner: 0; allowed: whole numbers from 1"),
    ):
        with pytest.raises(muster.MusterError, match=message):
            build()
