"""Measures of a model, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import muster
import reference
from helpers import federation, layers_of, module_of, nine_clients, random_layers
from muster.local import Local

M = muster.methods


@pytest.fixture
def fed():
    return nine_clients()


def test_measures_against_numpy():
    data, priority = reference.problem(7)
    test, _ = reference.problem(8)
    rho = np.linspace(0.2, 1.4, 7)
    fed = federation(data, priority, test=test, requirement=rho)
    layers = random_layers((5, 4))
    local = Local(steps=2, batch_size=None, lr=0.1)
    run = muster.simulate(fed, M.fedalign(0.5), module_of(layers), 5, local, dtype="float64")
    w = layers_of(run)
    p = np.array([len(y) for _, y in data], float)
    p[[k for k in range(7) if k not in priority]] = 0
    p /= p.sum()
    row = run.rounds.row(-1, named=True)
    losses = np.array([reference.loss(w, *pair) for pair in data])
    assert row["loss"] == pytest.approx(p @ losses, abs=1e-12)
    for column, pairs, f in (
        ("train_accuracy", data, reference.accuracy),
        ("test_accuracy", test, reference.accuracy),
        ("test_loss", test, reference.loss),
    ):
        assert row[column] == pytest.approx(p @ [f(w, *pair) for pair in pairs], abs=1e-12)
    assert row["gm_appeal"] == np.mean(losses < rho)
    assert row["fairness"] == row["gm_appeal"]
    assert np.allclose(run.final["train_loss"], losses, atol=1e-12)
    accuracies = [reference.accuracy(w, *pair) for pair in test]
    assert np.allclose(run.final["test_accuracy"], accuracies)


def test_fairness_without_requirements_is_against_the_best_constant_prediction(fed):
    run = muster.simulate(fed, M.fedavg(), muster.models.Softmax(), rounds=5)
    counts = fed.label_counts()
    f = counts / counts.sum(1, keepdims=True)
    entropy = [-sum(v * np.log(v) for v in row if v > 0) for row in f]
    useful = run.final["train_loss"].to_numpy() < np.array(entropy)
    assert run.rounds["fairness"][-1] == pytest.approx(useful.mean())
    assert run.final["useful"].to_list() == useful.tolist()
