"""Our optimizers against torch.optim, client by client: each option, kept state, rates by step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

import muster
import reference
from helpers import federation, same_bits
from muster.engines.batches import plan_batches
from muster.schedules import Inverse, Linear

M, O = muster.methods, muster.optimizers  # noqa: E741
LR, ROUNDS = 0.05, 2
ENGINES = ("stacked", "loop")


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4)).double()


def by_torch(fed, local, make, clip=None, keep=False, rate=None):
    """FedAvg on everyone where torch.optim takes every client's steps. `rate(t, j)` is the learning
    rate of step j of round t."""
    model = network()
    start = [q.detach().clone() for q in model.parameters()]
    share = fed.train.sizes / fed.train.sizes.sum()
    states = {}
    for t in range(ROUNDS):
        replies = []
        for k in range(fed.n):
            own = network()
            own.load_state_dict(model.state_dict())
            optimizer = make(own.parameters())
            if keep and k in states:
                optimizer.load_state_dict(states[k])
            (p,) = plan_batches(fed.train, np.array([k]), local, 0, t)
            for s in range(int(p.steps[0])):
                rows = torch.from_numpy(p.rows[0, s, : p.count[0, s]].copy())
                optimizer.zero_grad()
                cross_entropy(own(fed.train.x[rows]), fed.train.y[rows]).backward()
                if clip is not None:
                    clip_grad_norm_(own.parameters(), clip)
                if rate is not None:
                    optimizer.param_groups[0]["lr"] = rate(t, s)
                optimizer.step()
            states[k] = optimizer.state_dict()
            replies.append([q.detach() for q in own.parameters()])
        with torch.no_grad():
            for i, q in enumerate(model.parameters()):
                q.copy_(sum(p * r[i] for p, r in zip(share, replies, strict=True)))
    end = [q.detach() for q in model.parameters()]
    moved = max(float((q - s).abs().max()) for q, s in zip(end, start, strict=True))
    assert moved > 1e-3, "it went somewhere"
    return [q.numpy() for q in end]


def apart(run, expected):
    return max(np.abs(a - b).max() for a, b in zip(run.weights.values(), expected, strict=True))


def ours(fed, local, engine, method=None, model=None):
    return muster.simulate(
        fed, method or M.fedavg(), model or network(), ROUNDS, local, dtype="float64",
        engine=engine, processes=1,
    )  # fmt: skip


CASES = {
    "momentum": (O.sgd(momentum=0.9), {"momentum": 0.9}),
    "nesterov": (O.sgd(0.8, nesterov=True), {"momentum": 0.8, "nesterov": True}),
    "dampening": (O.sgd(0.8, dampening=0.3), {"momentum": 0.8, "dampening": 0.3}),
    "decay": (O.sgd(weight_decay=0.1), {"weight_decay": 0.1}),
    "all of it": (
        O.sgd(0.9, True, 0.01, clip=0.5),
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
    "clip": (O.sgd(clip=0.5), {}),
    "adam": (O.adam(), {}),
    "adam, decay": (O.adam((0.8, 0.95), 1e-6, 0.1),
        {"betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}),
    "adam, amsgrad": (O.adam(betas=(0.9, 0.5), amsgrad=True),
        {"betas": (0.9, 0.5), "amsgrad": True}),
    "adamw": (O.adamw(), {}),
    "adamw, clip": (O.adamw(weight_decay=0.2, clip=0.1), {"weight_decay": 0.2}),
}  # fmt: skip
THEIRS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def theirs(name):
    ours, how = CASES[name]
    kind = {O.sgd: "sgd", O.adam: "adam", O.adamw: "adamw"}[type(ours)]
    return lambda p: THEIRS[kind](p, LR, **how)


@pytest.fixture(scope="module")
def fed():
    data, _ = reference.problem(0)
    return federation(data)


@pytest.mark.parametrize("name", CASES)
def test_every_option_means_what_it_means_in_torch_optim(name, fed):
    """Ragged clients, epochs: those with fewer steps drop off the stack."""
    optimizer = CASES[name][0]
    local = muster.Local(epochs=2, batch_size=4, lr=LR, optimizer=optimizer)
    expected = by_torch(fed, local, theirs(name), clip=optimizer.clip)
    for engine in ENGINES:
        assert apart(ours(fed, local, engine), expected) < 1e-9


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_state_that_is_kept_goes_on_from_the_client_s_last_round(kind, fed):
    how = {"sgd": {"momentum": 0.9, "dampening": 0.2}, "adam": {}}[kind]
    kept = muster.Local(epochs=1, batch_size=4, lr=LR, optimizer=getattr(O, kind)(**how, keep=True))
    fresh = muster.Local(epochs=1, batch_size=4, lr=LR, optimizer=getattr(O, kind)(**how))
    expected = by_torch(fed, kept, lambda p: THEIRS[kind](p, LR, **how), keep=True)
    for engine in ENGINES:
        assert apart(ours(fed, kept, engine), expected) < 1e-9
        assert apart(ours(fed, fresh, engine), expected) > 1e-4


def test_a_solver_that_descends_twice_keeps_both_states(fed):
    """Ditto's personal model has a velocity of its own: with no pull and one client, it is what
    that client would have by itself, momentum kept through all rounds."""
    local = muster.Local(steps=4, batch_size=None, lr=LR, optimizer=O.sgd(0.9, keep=True))
    runs = [ours(fed, local, engine, M.ditto(0.0)) for engine in ("stacked", "loop")]
    x, y = fed.train.client(2)
    alone = network()
    optimizer = torch.optim.SGD(alone.parameters(), LR, momentum=0.9)
    for _ in range(4 * ROUNDS):
        optimizer.zero_grad()
        cross_entropy(alone(x), y).backward()
        optimizer.step()
    for run in runs:
        assert apart_from(run.model(client=2), alone) < 1e-9


def apart_from(a, b):
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return max(float((p - q).detach().abs().max()) for p, q in pairs)


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_a_kept_state_survives_an_interruption(engine, fed, tmp_path):
    local = muster.Local(steps=3, batch_size=4, lr=LR, optimizer=O.adam(keep=True))
    whole = ours(fed, local, engine)

    def stop(row):
        if row["round"] == 1:
            raise KeyboardInterrupt

    how = {"dtype": "float64", "engine": engine, "processes": 1, "checkpoint": tmp_path}
    with pytest.raises(muster.Interrupted):
        muster.simulate(fed, M.fedavg(), network(), ROUNDS, local, on_round=stop, **how)
    again = muster.simulate(fed, M.fedavg(), network(), ROUNDS, local, resume=True, **how)
    assert same_bits(whole, again)


@pytest.mark.parametrize(
    "optimizer", [O.sgd(), O.sgd(0.9), O.adamw()], ids=["plain", "sgd", "adamw"]
)
def test_the_learning_rate_of_the_theory_counts_local_steps(optimizer, fed):
    """`2 / (mu (i + gamma))` with `i = t E + j`, here mu = 4 and gamma = 8."""
    schedule = Inverse(2 / (4 * 8), 1 / 8)
    local = muster.Local(steps=5, batch_size=4, lr=schedule, lr_counts="steps", optimizer=optimizer)
    make = torch.optim.AdamW if isinstance(optimizer, O.adamw) else torch.optim.SGD
    how = {} if isinstance(optimizer, O.adamw) else {"momentum": optimizer.momentum}
    expected = by_torch(
        fed, local, lambda p: make(p, 1.0, **how), rate=lambda t, j: 2 / (4 * (5 * t + j + 8))
    )
    for engine in ENGINES:
        assert apart(ours(fed, local, engine), expected) < 1e-9


def test_every_path_of_plain_sgd_takes_rates_by_step(fed):
    """Softmax regression (compiled when rates are even), fused layers and the loop, with a pull and
    a correction, agree."""
    local = muster.Local(steps=4, batch_size=4, lr=Linear(0.2, 0.01), lr_counts="steps")
    for method in (M.fedprox(0.5), M.scaffold(), M.ditto(0.3), M.perfedavg(0.1)):
        for make in (lambda: nn.Sequential(nn.Linear(5, 4)).double(), network):
            torch.manual_seed(3)
            model = make()
            stacked, loop = (ours(fed, local, e, method, model) for e in ("stacked", "loop"))
            assert apart(stacked, list(loop.weights.values())) < 1e-9


def test_rates_by_step_and_by_round_meet_where_they_must(fed):
    """A constant is a constant; one step a round counts the same either way."""
    for steps, lr in ((3, 0.1), (1, Linear(0.2, 0.01))):
        by_round, by_step = (
            muster.Local(steps=steps, batch_size=4, lr=lr, lr_counts=counts)
            for counts in ("rounds", "steps")
        )
        assert same_bits(ours(fed, by_round, "stacked"), ours(fed, by_step, "stacked"))
    local = muster.Local(steps=5, lr=Linear(1.0), lr_counts="steps")
    assert [local.rate_at(1, j, 2) for j in (0, 4, 9)] == pytest.approx([4 / 9, 0.0, 0.0])


def test_from_a_file():
    from muster.config.experiment import load

    table = {"data": "digits", "model": "softmax", "method": "fedavg", "local": {
        "steps": 2, "lr_counts": "steps", "lr": {"kind": "inverse", "start": 1, "rate": 0.5},
        "optimizer": {"kind": "adamw", "betas": [0.8, 0.9], "clip": 1},
    }}  # fmt: skip
    chosen = load(table).local
    assert chosen == muster.Local(
        steps=2, lr=Inverse(1.0, 0.5), lr_counts="steps",
        optimizer=O.adamw(betas=(0.8, 0.9), clip=1.0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: O.sgd(momentum=-1), "momentum: -1; allowed: 0 and above"),
        (lambda: O.sgd(nesterov=True), "nesterov: True; allowed: with momentum above 0"),
        (lambda: O.sgd(clip=0), "clip: 0; allowed: above 0"),
        (lambda: O.adam(betas=(0.9, 1.0)), "betas: .* allowed: two numbers from 0"),
        (lambda: O.adamw(weight_decay=-0.1), "weight_decay: -0.1; allowed: 0 and above"),
        (lambda: muster.Local(epochs=1, lr_counts="steps"), "lr_counts: 'steps' needs steps"),
        (lambda: muster.Local(steps=1, lr_counts="step"), "lr_counts: 'step'; allowed: rounds"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(make, says):
    with pytest.raises(muster.MusterError, match=says):
        make()
