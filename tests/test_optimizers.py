"""Optimizers apart from solvers: momentum of the test's own under every solver, on both engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import muster
import reference
import reference_methods as ref
from helpers import federation, module_of, random_layers, same_bits
from muster.base.registry import kinds
from muster.engines.batches import plan_batches
from muster.parts import GradientDescent, Optimizer

M = muster.methods
LR, BETA = 0.1, 0.8


@dataclass(frozen=True)
class HeavyBall:
    """`v <- beta v + g; w <- w - lr v`, which torch.optim calls SGD with momentum."""

    beta: float = BETA
    plain: ClassVar[bool] = False

    def start(self, w):
        return {"velocity": {n: torch.zeros_like(t) for n, t in w.items()}}

    def step(self, w, g, state, lr):
        for n, t in w.items():
            state["velocity"][n].mul_(self.beta).add_(g[n])
            t.sub_(state["velocity"][n], alpha=lr)


@dataclass(frozen=True)
class Adam:
    """Adam, whose correction needs each client's own count of steps."""

    plain: ClassVar[bool] = False

    def start(self, w):
        zeros = {n: torch.zeros_like(t) for n, t in w.items()}
        steps = {n: t.new_zeros(len(t), *(1,) * (t.dim() - 1)) for n, t in w.items()}
        return {"first": zeros, "second": {n: t.clone() for n, t in zeros.items()}, "steps": steps}

    def step(self, w, g, state, lr):
        for n, t in w.items():
            first, second, steps = (state[part][n] for part in ("first", "second", "steps"))
            steps.add_(1)
            first.mul_(0.9).add_(g[n], alpha=0.1)
            second.mul_(0.999).add_(g[n] ** 2, alpha=0.001)
            root = (second / (1 - 0.999**steps)).sqrt_().add_(1e-8)
            t.sub_(lr * first / (1 - 0.9**steps) / root)


def network(kind):
    torch.manual_seed(0)
    hidden = nn.Tanh() if kind == "autograd" else nn.ReLU()
    return nn.Sequential(nn.Linear(5, 6), hidden, nn.Linear(6, 4)).double()


def by_torch(module, fed, local, t, k, make, pull=0.0, anchor=None, correction=None):
    """One client's round with torch.optim, on the batches the run draws for it: its model, and the
    mean of the gradients of its loss on the way."""
    own = network("fused")
    own[1] = module[1]
    own.load_state_dict(module.state_dict())
    optimizer = make(own.parameters())
    (p,) = plan_batches(fed.train, np.array([k]), local, 0, t)
    seen = []
    for s in range(int(p.steps[0])):
        rows = torch.from_numpy(p.rows[0, s, : p.count[0, s]].copy())
        optimizer.zero_grad()
        cross_entropy(own(fed.train.x[rows]), fed.train.y[rows]).backward()
        seen.append([q.grad.clone() for q in own.parameters()])
        for i, q in enumerate(own.parameters()):
            with torch.no_grad():
                if pull:
                    q.grad += pull * (q - anchor[i])
                if correction is not None:
                    q.grad += correction[i]
        optimizer.step()
    mean = [torch.stack(some).mean(0) for some in zip(*seen, strict=True)]
    return [q.detach().clone() for q in own.parameters()], mean


def loaded(module, values):
    with torch.no_grad():
        for q, value in zip(module.parameters(), values, strict=True):
            q.copy_(value)
    return module


def federated(solver, kind, fed, local, rounds, make):
    """FedAvg, FedProx, SCAFFOLD and Ditto by hand; each client's own model in the last case."""
    module = network(kind)
    w = [q.detach().clone() for q in module.parameters()]
    c = [torch.zeros_like(t) for t in w]
    controls = [[torch.zeros_like(t) for t in w] for _ in range(fed.n)]
    own = [[t.clone() for t in w] for _ in range(fed.n)]
    share = fed.train.sizes / fed.train.sizes.sum()
    for t in range(rounds):
        replies, changes = [], []
        for k in range(fed.n):
            at = {"fedprox": {"pull": 0.5, "anchor": w}}.get(solver, {})
            if solver == "scaffold":
                at = {"correction": [a - b for a, b in zip(c, controls[k], strict=True)]}
            reply, new = by_torch(loaded(module, w), fed, local, t, k, make, **at)
            replies.append(reply)
            if solver == "scaffold":
                changes.append([a - b for a, b in zip(new, controls[k], strict=True)])
                controls[k] = new
            if solver == "ditto":
                own[k], _ = by_torch(
                    loaded(module, own[k]), fed, local, t, k, make, pull=0.5, anchor=w
                )
        weights = np.full(fed.n, 1 / fed.n) if solver == "scaffold" else share
        w = [sum(p * r[i] for p, r in zip(weights, replies, strict=True)) for i in range(len(w))]
        if solver == "scaffold":
            c = [a + sum(d[i] for d in changes) / fed.n for i, a in enumerate(c)]
    return w, own


def apart(run, expected):
    pairs = zip(run.weights.values(), expected, strict=True)
    return max(np.abs(a - b.numpy()).max() for a, b in pairs)


METHODS = {
    "fedavg": M.fedavg(), "fedprox": M.fedprox(0.5), "scaffold": M.scaffold(), "ditto": M.ditto(0.5)
}  # fmt: skip


@pytest.mark.slow  # tests/parts/test_pairs.py has them all against numpy, test_torch_optim.py SGD's
@pytest.mark.parametrize("engine", ["stacked", "loop"])
@pytest.mark.parametrize("kind", ["fused", "autograd"])
@pytest.mark.parametrize("solver", METHODS)
def test_momentum_under_every_solver_agrees_with_torch_optim(solver, kind, engine):
    """Ragged clients: those with fewer steps drop off the stack, and keep their velocity."""
    data, _ = reference.problem(0)
    fed = federation(data)
    local = muster.Local(epochs=2, batch_size=4, lr=LR, optimizer=HeavyBall())
    assert len(set(np.ceil(fed.train.sizes / 4))) > 3, "clients differ in steps"
    run = muster.simulate(
        fed, METHODS[solver], network(kind), 3, local, dtype="float64", engine=engine, processes=2
    )
    expected, own = federated(
        solver, kind, fed, local, 3, lambda p: torch.optim.SGD(p, LR, momentum=BETA)
    )
    assert apart(run, expected) < 1e-9
    if solver == "ditto":
        losses = []
        for k in range(fed.n):
            x, y = fed.train.client(k)
            with torch.no_grad():
                losses.append(float(cross_entropy(loaded(network(kind), own[k])(x), y)))
        assert run.rounds["own_loss"][-1] == pytest.approx(fed.objective @ losses, abs=1e-9)


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_what_an_optimizer_remembers_may_be_a_number_for_each_client(engine):
    data, _ = reference.problem(0)
    fed = federation(data)
    local = muster.Local(epochs=2, batch_size=4, lr=0.01, optimizer=Adam())
    run = muster.simulate(
        fed, M.fedprox(0.5), network("fused"), 2, local, dtype="float64", engine=engine, processes=1
    )
    expected, _ = federated("fedprox", "fused", fed, local, 2, lambda p: torch.optim.Adam(p, 0.01))
    assert apart(run, expected) < 1e-9


def momentum_by_hand(p, rounds, steps, toward):
    """Full-batch heavy ball along a direction of the solver's own, in numpy, everyone alike."""
    w = p.start
    for _ in range(rounds):
        replies = []
        for k in range(p.n):
            v, velocity = w.copy(), np.zeros_like(w)
            for _ in range(steps):
                velocity = BETA * velocity + toward(k, v)
                v = v - LR * velocity
            replies.append(v)
        w = np.mean(replies, axis=0)
    return w


@pytest.mark.parametrize("engine", ["stacked", "loop"])
@pytest.mark.parametrize("name", ["perfedavg", "perfedavg hessian-free", "pfedme"])
def test_solvers_with_a_direction_of_their_own_go_with_any_optimizer(name, engine):
    data, _ = reference.problem(0)
    layers = random_layers((5, 6, 4))
    p = ref.Problem(data, layers)

    def meta(k, v):
        g = p.grad(k, v - 0.1 * p.grad(k, v))
        return g if name == "perfedavg" else g - 0.1 * p.curve(k, v, g)

    def moreau(k, v):
        theta = v
        for _ in range(3):
            theta = theta - 0.05 * (p.grad(k, theta) + 2.0 * (theta - v))
        return 2.0 * (v - theta)

    method = M.pfedme(2.0, 3, 0.05) if name == "pfedme" else M.perfedavg(0.1, name != "perfedavg")
    local = muster.Local(steps=4, batch_size=None, lr=LR, optimizer=HeavyBall())
    run = muster.simulate(
        federation(data), method, module_of(layers), 3, local, dtype="float64", engine=engine,
        processes=1,
    )  # fmt: skip
    expected = momentum_by_hand(p, 3, 4, moreau if name == "pfedme" else meta)
    found = np.concatenate([a.ravel() for a in run.weights.values()])
    assert np.abs(found - expected).max() < 1e-9


def test_plain_sgd_is_the_default_by_every_name():
    data, _ = reference.problem(0)
    fed = federation(data)
    default = muster.Local(steps=3, batch_size=4)
    named = muster.Local(steps=3, batch_size=4, optimizer=muster.optimizers.sgd())
    assert default == named
    assert repr(default) == repr(named)
    assert kinds(Optimizer)["sgd"] is GradientDescent
    a, b = (
        muster.simulate(fed, M.fedprox(), muster.models.MLP((3,)), 2, local)
        for local in (default, named)
    )
    assert same_bits(a, b)


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_no_momentum_is_plain_sgd(engine):
    """The general way, which any optimizer takes, against the fused and affine ones."""
    data, _ = reference.problem(0)
    fed = federation(data)
    for method in METHODS.values():
        runs = [
            muster.simulate(
                fed, method, network("fused"), 3, dtype="float64", engine=engine, processes=1,
                local=muster.Local(epochs=2, batch_size=4, lr=LR, optimizer=optimizer),
            )
            for optimizer in (GradientDescent(), HeavyBall(0.0))
        ]  # fmt: skip
        for name in runs[0].weights:
            assert np.abs(runs[0].weights[name] - runs[1].weights[name]).max() < 1e-9


def test_in_a_file_by_its_name():
    from muster.config.experiment import load

    table = {"data": "digits", "model": "softmax", "method": "fedavg",
             "local": {"steps": 2, "optimizer": {"kind": "sgd"}}}  # fmt: skip
    chosen = load(table)
    assert chosen.local.optimizer == GradientDescent()
    assert chosen.resolve()["local"]["optimizer"] == {
        "kind": "sgd", "momentum": 0.0, "nesterov": False, "weight_decay": 0.0, "dampening": 0.0,
        "keep": False,
    }  # fmt: skip
    with pytest.raises(muster.MusterError, match=r"optimizer.kind: 'sgdd' is unknown"):
        load({**table, "local": {"steps": 2, "optimizer": {"kind": "sgdd"}}})
    with pytest.raises(muster.MusterError, match="local optimizer: float; give one of"):
        muster.Local(steps=1, optimizer=0.9)
