"""What a client makes of a model, by its own data alone."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import muster
from helpers import federation, nine_clients
from muster.run.evaluate import compute_useful_thresholds, label_entropy

MIX = muster.data.LabelMix(0.05)


@pytest.fixture(scope="module")
def skewed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", muster.MusterWarning)
        return muster.data.digits(clients=30, priority="all", partition=MIX)


def test_a_good_model_is_useful_to_clients_of_a_single_class(skewed):
    alone = skewed.find_single_class()
    assert len(alone) >= 10
    local = muster.Local(steps=20, batch_size=16, lr=0.1)
    run = muster.simulate(skewed, muster.methods.fedavg(), muster.models.Softmax(), 40, local)
    assert run.rounds["train_accuracy"][-1] > 0.9
    useful = run.final["useful"].to_numpy()[alone]
    # Its loss there is below guessing among the classes, and that is what such a client has.
    losses = run.final["train_loss"].to_numpy()[alone]
    assert useful.tolist() == (losses < np.log(10)).tolist()
    assert useful.mean() > 0.9
    assert run.rounds["fairness"][-1] == pytest.approx(run.final["useful"].mean())


def test_a_model_that_knows_nothing_is_useful_to_nobody(skewed):
    still = muster.Local(steps=1, lr=0.0)  # w = 0 predicts every class alike: its loss is log C
    run = muster.simulate(
        skewed, muster.methods.fedavg(), muster.models.Softmax(), 1, still, dtype="float64"
    )
    assert run.final["train_loss"].to_numpy() == pytest.approx(np.log(10))
    assert run.rounds["fairness"].to_list() == [0.0]


def test_fairness_without_requirements_is_against_the_best_constant_prediction():
    fed = nine_clients()
    run = muster.simulate(fed, muster.methods.fedavg(), muster.models.Softmax(), rounds=5)
    counts = fed.label_counts()
    f = counts / counts.sum(1, keepdims=True)
    entropy = [-sum(v * np.log(v) for v in row if v > 0) for row in f]
    useful = run.final["train_loss"].to_numpy() < np.array(entropy)
    assert run.rounds["fairness"][-1] == pytest.approx(useful.mean())
    assert run.final["useful"].to_list() == useful.tolist()


def test_the_bar_is_a_requirement_or_what_constant_predictions_reach():
    data = [(np.zeros((4, 1)), y) for y in ([0, 0, 1, 1], [2, 2, 2, 2], [0, 1, 2, 0])]
    fed = federation(data)
    everyone = np.arange(3)
    assert label_entropy(fed, everyone) == pytest.approx([np.log(2), 0, 1.5 * np.log(2)])
    assert compute_useful_thresholds(fed, everyone) == pytest.approx(
        [np.log(2), np.log(3), 1.5 * np.log(2)]
    )
    # Each from its own rows alone, as on a machine of its own.
    for k in everyone:
        own = federation([data[k]], classes=3)
        assert compute_useful_thresholds(own, np.array([0])) == compute_useful_thresholds(
            fed, np.array([k])
        )
    wants = federation(data, requirement=[0.5, 0.1, 0.2])
    assert compute_useful_thresholds(wants, everyone).tolist() == [0.5, 0.1, 0.2]
