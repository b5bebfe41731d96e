"""FedALIGN, FedAvg and FedProx against a hand-written numpy version, admitted sets included."""

from __future__ import annotations

import numpy as np
import pytest

import muster
import reference
from helpers import admitted, federation, gap, layers_of, module_of, random_layers
from muster.engines.batches import plan_batches

M = muster.methods
ENGINES = ("stacked", "loop")
SHAPES = {"softmax": (5, 4), "mlp": (5, 6, 4)}
LOCAL = muster.Local(steps=3, batch_size=None, lr=0.2)


def run(data, priority, layers, method, rounds=12, engine="stacked", local=LOCAL, **more):
    fed = federation(data, priority, **more)
    return muster.simulate(
        fed, method, module_of(layers), rounds, local, dtype="float64", engine=engine, processes=1
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("criterion", ["loss", "accuracy"])
def test_fedalign_agrees_with_numpy(seed, shape, criterion):
    data, priority = reference.problem(seed)
    layers = random_layers(SHAPES[shape], seed)
    eps = 0.25
    expected, history = reference.fedalign(
        data, priority, layers, 12, 3, 0.2, eps, criterion, warmup=2
    )
    for engine in ENGINES:
        ours = run(data, priority, layers, M.fedalign(eps, criterion, warmup=2), engine=engine)
        assert gap(layers_of(ours), expected) < 1e-9
        assert admitted(ours) == [let_in for _, let_in in history]
        assert admitted(ours, "joined") == [trained for trained, _ in history]
    # The problem is a real test only if some are let in and some are not.
    sizes = {len(let_in) for _, let_in in history}
    assert min(sizes) >= 3
    assert seed or max(sizes) > 3


def test_the_random_problems_exercise_all_three_outcomes():
    silent = refused = others = 0
    for seed in range(6):
        data, priority = reference.problem(seed)
        layers = random_layers(SHAPES["softmax"], seed)
        _, history = reference.fedalign(data, priority, layers, 12, 3, 0.2, 0.25, warmup=2)
        for trained, let_in in history[2:]:
            silent += len(data) - len(trained)
            refused += len(trained) - len(let_in)
            others += len(let_in) - len(priority)
    assert silent > 20
    assert refused > 5
    assert others > 20


@pytest.mark.parametrize("mu", [0.0, 0.7])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("engine", ENGINES)
def test_fedavg_and_fedprox_agree_with_numpy(mu, shape, engine):
    data, priority = reference.problem(3)
    layers = random_layers(SHAPES[shape], 3)
    everyone = range(len(data))
    for clients, method in (
        (everyone, M.fedprox(mu) if mu else M.fedavg()),
        (priority, M.fedprox(mu, priority_only=True) if mu else M.fedavg_priority()),
    ):
        expected = reference.fedavg(data, clients, layers, 8, 3, 0.2, mu)
        ours = run(data, priority, layers, method, rounds=8, engine=engine)
        assert gap(layers_of(ours), expected) < 1e-9


@pytest.mark.parametrize("engine", ENGINES)
def test_fedalign_on_fedprox_agrees_with_numpy(engine):
    data, priority = reference.problem(1)
    layers = random_layers(SHAPES["mlp"], 1)
    expected, history = reference.fedalign(data, priority, layers, 10, 3, 0.2, 0.3, mu=1.0)
    ours = run(data, priority, layers, M.fedalign(0.3, warmup=0, prox=1.0), 10, engine)
    assert gap(layers_of(ours), expected) < 1e-9
    assert admitted(ours) == [let_in for _, let_in in history]


@pytest.mark.parametrize("mu", [0.0, 0.5])
@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_fedavg_on_all_may_warm_up_on_the_priority_clients(engine, mu):
    """Fig. 1's caption: only priority clients at first, then everyone."""
    data, priority = reference.problem(1)
    layers = random_layers((5, 4))
    everyone = range(len(data))
    first = reference.fedavg(data, priority, layers, 3, 3, 0.2, mu)
    expected = reference.fedavg(data, everyone, first, 5, 3, 0.2, mu)
    method = M.fedprox(mu, warmup=3) if mu else M.fedavg(warmup=3)
    ours = run(data, priority, layers, method, 8, engine)
    assert gap(layers_of(ours), expected) < 1e-9
    assert ours.rounds["asked"].to_list() == [3] * 3 + [7] * 5
    assert M.fedavg().warmup == M.fedprox().warmup == 0
    assert M.fedprox(priority_only=True, warmup=3).warmup == 1.0


@pytest.mark.parametrize("local", [{"steps": 4, "batch_size": 3}, {"epochs": 2, "batch_size": 4}])
@pytest.mark.parametrize("engine", ENGINES)
def test_minibatches_agree_with_numpy_on_the_same_rows(local, engine):
    data, priority = reference.problem(2)
    layers = random_layers(SHAPES["softmax"], 2)
    work = muster.Local(**local, lr=0.2)
    fed = federation(data, priority)
    x, y = fed.train.x.numpy(), fed.train.y.numpy()

    def batches(t, k):
        (p,) = plan_batches(fed.train, np.array([k]), work, seed=0, round=t)
        spans = [p.rows[0, s, : p.count[0, s]] for s in range(int(p.steps[0]))]
        return [(x[rows], y[rows]) for rows in spans]

    expected, history = reference.fedalign(
        data, priority, layers, 8, None, 0.2, 0.3, batches=batches
    )
    ours = run(data, priority, layers, M.fedalign(0.3, warmup=0), 8, engine, work)
    assert gap(layers_of(ours), expected) < 1e-9
    assert admitted(ours) == [let_in for _, let_in in history]


def test_epsilon_zero_is_fedavg_on_priority_even_where_all_losses_tie():
    data, priority = reference.problem(0)
    zero = [(np.zeros((4, 5)), np.zeros(4))]
    align = run(data, priority, zero, M.fedalign(0.0, warmup=0))
    plain = run(data, priority, zero, M.fedavg_priority())
    assert all(np.array_equal(align.weights[n], plain.weights[n]) for n in align.weights)
    assert align.rounds["admitted_nonpriority"].sum() == 0


@pytest.mark.parametrize("eps", [1e9, float("inf")])
def test_large_epsilon_is_fedavg_on_all(eps):
    data, priority = reference.problem(0)
    layers = random_layers(SHAPES["mlp"])
    align = run(data, priority, layers, M.fedalign(eps, warmup=0))
    plain = run(data, priority, layers, M.fedavg())
    assert all(np.array_equal(align.weights[n], plain.weights[n]) for n in align.weights)


def test_generalized_pfl_spans_priority_only_to_plain_fl():
    data, priority = reference.problem(4)
    layers = random_layers(SHAPES["softmax"], 4)
    everyone = range(len(data))
    # a = 1: everyone is in the objective, so any epsilon gives FedAvg on all.
    full = run(data, priority, layers, M.fedalign(0.0, warmup=0), importance=1.0)
    assert gap(layers_of(full), reference.fedavg(data, everyone, layers, 12, 3, 0.2)) < 1e-9
    # In between, with nobody aligned: weights D_k a_k.
    a = [1.0 if k in priority else 0.3 for k in everyone]
    part = run(data, priority, layers, M.fedalign(0.0, warmup=0), importance=0.3)
    expected = layers
    for _ in range(12):
        models = [reference.local_sgd(expected, [data[k]] * 3, 0.2) for k in everyone]
        expected = reference.average(models, [len(data[k][1]) * a[k] for k in everyone])
    assert gap(layers_of(part), expected) < 1e-9
    objective = sum(
        len(y) * a[k] * reference.loss(expected, x, y) for k, (x, y) in enumerate(data)
    ) / sum(len(y) * a[k] for k, (_, y) in enumerate(data))
    assert part.rounds["loss"][-1] == pytest.approx(objective, abs=1e-9)


def test_an_aligned_client_of_some_importance_counts_in_full():
    data, priority = reference.problem(4)
    layers = random_layers(SHAPES["softmax"], 4)
    wide = run(data, priority, layers, M.fedalign(1e9, warmup=0), importance=0.3)
    expected = reference.fedavg(data, range(len(data)), layers, 12, 3, 0.2)
    assert gap(layers_of(wide), expected) < 1e-9


def test_local_models_agree_with_numpy():
    data, priority = reference.problem(5)
    layers = random_layers(SHAPES["mlp"], 5)
    for engine in ENGINES:
        ours = run(data, priority, layers, M.local(), rounds=4, engine=engine)
        own = [reference.local_sgd(layers, [pair] * 12, 0.2) for pair in data]
        expected = [reference.loss(m, *pair) for m, pair in zip(own, data, strict=True)]
        assert np.allclose(ours.final["train_loss"].to_numpy(), expected, atol=1e-9)
        assert ours.rounds["bytes_up"].sum() == 0
