"""Decisions on held-out rows: everything that is decided goes by them, and nothing is trained on
them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import muster
import reference
from helpers import admitted, federation, gap, layers_of, module_of, random_layers, same_bits
from muster.local import Local

M = muster.methods
LOCAL = Local(steps=2, batch_size=None, lr=0.3)
RHO, RHO_TEST = np.linspace(0.6, 1.4, 7), np.linspace(1.5, 0.8, 7)


@pytest.fixture(scope="module")
def problem():
    data, priority = reference.problem(3)
    held, _ = reference.problem(4)
    return data, held, priority


def go(problem, method, rounds=6, layers=None, rho=None, **more):
    data, held, priority = problem
    fed = federation(data, priority, test=held, requirement=rho)
    if rho is not None:
        fed = replace(fed, requirement_test=RHO_TEST)
    how = {"decide_on": "held_out", "dtype": "float64", **more}
    layers = layers or random_layers((5, 4))
    return muster.simulate(fed, method, module_of(layers), rounds, LOCAL, **how)


@pytest.mark.parametrize("criterion", ["loss", "accuracy"])
@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_fedalign_on_held_out_rows_agrees_with_numpy(problem, engine, criterion):
    data, held, priority = problem
    sizes = np.array([len(y) for _, y in data])
    p = sizes / sizes[priority].sum()
    measure = reference.loss if criterion == "loss" else reference.accuracy
    layers = random_layers((5, 4))
    run = go(problem, M.fedalign(0.3, criterion, warmup=0), engine=engine, layers=layers)
    by_training = 0
    for t in range(6):
        own = np.array([measure(layers, *pair) for pair in held])
        f = p[priority] @ own[priority]
        if criterion == "loss":
            assert run.rounds["reference_loss"][t] == pytest.approx(f, abs=1e-12)
        inside = np.abs(own - f) < 0.3
        let_in = [k for k in range(7) if k in priority or inside[k]]
        assert admitted(run)[t] == let_in
        trained = np.array([measure(layers, *pair) for pair in data])
        there = np.abs(trained - p[priority] @ trained[priority]) < 0.3
        by_training += let_in != [k for k in range(7) if k in priority or there[k]]
        models = [reference.local_sgd(layers, [data[k]] * 2, 0.3) for k in let_in]
        layers = reference.average(models, p[let_in])
    assert gap(layers_of(run), layers) < 1e-9
    assert by_training, "training rows would have decided otherwise"


@pytest.mark.parametrize("tune", [0, 2])
@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_claims_and_leaving_use_the_own_models_loss_on_held_out_rows(problem, engine, tune):
    data, held, _ = problem
    layers = random_layers((5, 4))
    method = M.maxfl(1.0, 0.1, tune_steps=tune)
    free = muster.Flexible(from_round=1)
    run = go(problem, method, 5, layers, RHO, engine=engine, participation=free)
    asked = [run.clients.filter(run.clients["round"] == t + 1).sort("client") for t in range(5)]
    for t in range(5):
        losses = np.array([reference.loss(layers, *pair) for pair in held])
        pool = [k for k in range(7) if t == 0 or losses[k] < RHO_TEST[k]]
        assert asked[t]["client"].to_list() == pool
        judged = [reference.local_sgd(layers, [data[k]] * tune, 0.3) for k in pool]
        gaps = [
            reference.loss(m, *held[k]) - RHO_TEST[k] for k, m in zip(pool, judged, strict=True)
        ]
        s = 1 / (1 + np.exp(-np.array(gaps)))
        q = s * (1 - s)
        assert np.allclose(asked[t]["claim"], q, atol=1e-12)
        if not pool:
            continue
        models = [reference.local_sgd(layers, [data[k]] * 2, 0.3) for k in pool]
        mean = reference.average(models, q)
        scale = q.sum() / (q.sum() + 0.1)
        layers = [
            tuple(a + scale * (b - a) for a, b in zip(w, v, strict=True))
            for w, v in zip(layers, mean, strict=True)
        ]
    assert gap(layers_of(run), layers) < 1e-9
    assert set(run.moves["move"]) >= {"left"}
    assert run.final["requirement"].to_list() == RHO.tolist()


def test_polls_use_held_out_rows(problem):
    _, held, _ = problem
    layers = random_layers((5, 4))
    run = go(problem, M.power_of_choice(d=7, m=3), 1, layers)
    losses = np.array([reference.loss(layers, *pair) for pair in held])
    assert sorted(run.clients["client"]) == sorted(np.argsort(-losses)[:3])


@pytest.mark.parametrize("method", [M.fedalign(0.3, warmup=0), M.qffl()], ids=lambda m: m.name)
def test_what_was_measured_for_the_ledger_is_what_clients_decide_by(problem, method):
    """A view of the model stands in for the clients' appraisals only on the rows they decide by."""
    often, once = go(problem, method), go(problem, method, evaluate_every=0)
    assert all(np.array_equal(often.weights[n], w) for n, w in once.weights.items())
    assert often.clients.equals(once.clients)
    on_train = go(problem, method, decide_on="train")
    assert not often.clients["loss"].equals(on_train.clients["loss"])
    default = muster.simulate(
        federation(problem[0], problem[2], test=problem[1]), method,
        module_of(random_layers((5, 4))), 6, LOCAL, dtype="float64",
    )  # fmt: skip
    assert same_bits(on_train, default)


def test_data_without_held_out_rows_cannot_decide_on_them(problem):
    fed = federation(problem[0], problem[2])
    with pytest.raises(muster.MusterError, match="decide_on: 'held_out', and this data has no"):
        muster.simulate(fed, M.fedavg(), muster.models.Softmax(), 1, decide_on="held_out")
    with pytest.raises(muster.MusterError, match="decide_on: 'test'; allowed: train, held_out"):
        muster.simulate(fed, M.fedavg(), muster.models.Softmax(), 1, decide_on="test")
