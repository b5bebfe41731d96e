"""Every solver with every optimizer, on every path through the engines, against numpy.

Each registered solver and optimizer must have a reference in `reference_local`: a new one fails
here until it is written.
"""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import load_file
from torch import nn

import muster
import reference
import reference_local
from helpers import federation, module_of, random_layers
from muster.base import durable
from muster.base.registry import kinds
from muster.engines import stacked_engine
from muster.engines.batches import plan_batches
from muster.methods import Method
from muster.parts import Average, Optimizer, Scaffold, Solver
from muster.schedules import Linear
from reference_methods import pack

WIDTHS = (5, 4)
SOLVERS = {
    "plain": ("sgd", {}),
    "fedprox": ("sgd", {"prox": 0.3}),
    "solo": ("solo", {}),
    "scaffold": ("control_variates", {}),
    "per-fedavg": ("meta_gradient", {"alpha": 0.1}),
    "per-fedavg, second order": ("meta_gradient", {"alpha": 0.1, "hessian_free": True}),
    "per-fedavg, printed": ("meta_gradient", {"alpha": 0.1, "hessian_free": True, "delta": 0.01}),
    "pfedme": ("moreau", {"lam": 3.0, "inner": 2, "personal_lr": 0.1}),
    "ditto": ("ditto", {"lam": 0.5}),
}
OPTIMIZERS = {
    "plain": ("sgd", {}),
    "momentum": ("sgd", {"momentum": 0.9}),
    "decay, clipped": ("sgd", {"weight_decay": 0.1, "clip": 0.4}),
    "nesterov, all kept": (
        "sgd", {"momentum": 0.8, "nesterov": True, "weight_decay": 0.05, "clip": 0.5, "keep": True}
    ),
    "dampened, kept": ("sgd", {"momentum": 0.8, "dampening": 0.3, "keep": True}),
    "adam, kept": ("adam", {"weight_decay": 0.1, "keep": True}),
    "amsgrad, clipped": ("adam", {"betas": (0.9, 0.5), "amsgrad": True, "clip": 0.3}),
    "adamw, kept": ("adamw", {"weight_decay": 0.2, "clip": 0.4, "keep": True}),
}  # fmt: skip
LOCALS = {
    # One round of full batches, which are of as many rows as a client has.
    "full": (1, {"steps": 3, "batch_size": None, "lr": 0.1}),
    # Clients differ in how many steps they take; the rate changes with the round.
    "epochs": (3, {"epochs": 2, "batch_size": 4, "lr": Linear(0.15, 0.05)}),
    # The rate changes with every step.
    "by step": (2, {"steps": 4, "batch_size": 4, "lr": Linear(0.2, 0.02), "lr_counts": "steps"}),
}


class Wrapped(nn.Module):
    """Softmax regression as a module that has no stacked form of its own."""

    def __init__(self, linear):
        super().__init__()
        self.only = linear

    def forward(self, x):
        return self.only(x)


def paths(layers):
    """The module and engine of every way through the engines: products and a compiled loop written
    by hand, autograd over a stack, and one client after another."""
    linear = module_of(layers)[0]
    return {
        "fused": (nn.Sequential(linear), "stacked", float("inf")),
        "compiled": (nn.Sequential(linear), "stacked", 0.0),
        "mapped": (Wrapped(linear), "stacked", 0.0),
        "loop": (Wrapped(linear), "loop", 0.0),
    }


def learning_rate(how, t, j, rounds):
    """By hand: a line over rounds, or over all steps."""
    lr = how["lr"]
    if not isinstance(lr, Linear):
        return lr
    by_step = how.get("lr_counts") == "steps"
    i, n = (t * how["steps"] + j, rounds * how["steps"]) if by_step else (t, rounds)
    return lr.start + (lr.end - lr.start) * i / (n - 1)


def by_hand(fed, layers, local, how, rounds, solver, optimizer):
    """What `reference_local` makes of the batches that the engines are given."""
    x, y = fed.train.x.numpy(), fed.train.y.numpy()
    settings = {n: v for n, v in optimizer[1].items() if n != "keep"}
    draws = kinds(Solver)[solver[0]](**solver[1]).draws

    def rows(t, k):
        (p,) = plan_batches(fed.train, np.array([k]), local, 0, t, draws=draws)
        at = [p.rows[0, s, : p.count[0, s]] for s in range(int(p.steps[0]))]
        return [reference_local.Batch(x[some], y[some], fed.classes) for some in at]

    batches = [[rows(t, k) for k in range(fed.n)] for t in range(rounds)]
    rates = [[learning_rate(how, t, j, rounds) for j in range(99)] for t in range(rounds)]
    return reference_local.rounds(
        pack(layers), fed.train.sizes, batches, rates, solver, (optimizer[0], settings),
        optimizer[1].get("keep", False),
    )  # fmt: skip


def flat(state, prefix, lead=0):
    """W then b of a part of a checkpoint."""
    found = [t for ending in ("weight", "bias") for n, t in state.items()
             if n.startswith(prefix) and n.endswith(ending)]  # fmt: skip
    return np.concatenate([t.reshape(*t.shape[:lead], -1) for t in found], axis=-1)


def ended(folder, **how):
    """The state in which a run ends."""
    muster.simulate(
        **how, dtype="float64", processes=1, evaluate_every=0, checkpoint=folder,
        checkpoint_every=how["rounds"],
    )  # fmt: skip
    return load_file(folder / f"round-{how['rounds']:08d}" / "s.safetensors")


@pytest.fixture(scope="module")
def fed():
    """Clients of few rows, some of which take more steps than others."""
    data, _ = reference.problem(0, clients=4)
    return federation([(x[:n], y[:n]) for (x, y), n in zip(data, (3, 12, 5, 8), strict=True)])


@pytest.mark.parametrize("role", [Solver, Optimizer])
def test_every_one_of_ours_has_a_reference(role):
    ours = {name for name, kind in kinds(role).items() if kind.__module__.startswith("muster.")}
    cases = SOLVERS if role is Solver else OPTIMIZERS
    assert ours == {kind for kind, _ in cases.values()}
    assert ours == set(getattr(reference_local, f"{role.__name__.upper()}S"))


def pairs():
    """Every solver with every optimizer; with the plain one and another in the usual run."""
    for i, solver in enumerate(SOLVERS):
        for j, optimizer in enumerate(OPTIMIZERS):
            usual = j == 0 or j == 1 + i % (len(OPTIMIZERS) - 1)
            yield pytest.param(solver, optimizer, marks=[] if usual else pytest.mark.slow)


@pytest.mark.parametrize(("solver", "optimizer"), list(pairs()))
def test_every_solver_goes_with_every_optimizer(solver, optimizer, fed, tmp_path, monkeypatch):
    monkeypatch.setattr(durable, "sync", lambda path: None)
    (solver_kind, o), (optimizer_kind, settings) = SOLVERS[solver], OPTIMIZERS[optimizer]
    layers = random_layers(WIDTHS)
    trains = kinds(Solver)[solver_kind](**o)
    method = Method("pair", solver=trains, step=Scaffold() if trains.needs else Average())
    for work, (rounds, how) in LOCALS.items():
        local = muster.Local(**how, optimizer=kinds(Optimizer)[optimizer_kind](**settings))
        w, own, control = by_hand(
            fed, layers, local, how, rounds, SOLVERS[solver], OPTIMIZERS[optimizer]
        )
        assert np.abs(w - pack(layers)).max() > 1e-3, "it went somewhere"
        for path, (module, engine, compile_from) in paths(layers).items():
            if (path == "compiled" and optimizer != "plain") or (path == "mapped" and rounds < 3):
                continue
            monkeypatch.setattr(stacked_engine, "COMPILE_FROM", compile_from)
            state = ended(
                tmp_path / f"{work} {path}",
                fed=fed, method=method, model=module, rounds=rounds, local=local, engine=engine,
            )  # fmt: skip
            gaps = {"model": flat(state, "model/") - w}
            for part in own[0]:
                expected = np.array([memory[part] for memory in own])
                gaps[part] = flat(state, f"clients/{part}/", 1) - expected
            if solver == "scaffold":
                gaps["server's control"] = flat(state, "server/control/") - control
            for what, gap in gaps.items():
                assert np.abs(gap).max() < 1e-10, (work, path, what)
