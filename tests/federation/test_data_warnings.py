"""Data that trains without a word and comes to nothing: it is said."""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes

import muster
from muster.federation.data_warnings import find_data_warnings

SOFTMAX = muster.models.Softmax()


def table(tmp_path, x, y, names=None, clients=5):
    columns = {
        name: x[:, i] for i, name in enumerate(names or [f"f{i}" for i in range(x.shape[1])])
    }
    frame = pl.DataFrame({**columns, "label": y, "client": np.arange(len(y)) % clients})
    frame.write_csv(tmp_path / "table.csv")
    return tmp_path / "table.csv"


def test_features_that_need_scaling(tmp_path):
    data = load_breast_cancer()
    path = table(
        tmp_path, data.data, data.target, [n.replace(" ", "_") for n in data.feature_names]
    )
    with pytest.warns(muster.MusterWarning, match="features need scaling: feature 'worst_area'"):
        fed = muster.Federation.from_folder(path)
    run = muster.simulate(fed, muster.methods.fedavg(), SOFTMAX, 3)
    assert any("features need scaling" in sentence for sentence in run.concerns)
    size = np.sqrt((fed.train.x[fed.train.rows].double().numpy() ** 2).mean(0)).max()
    assert f"is around {size:.3g}" in run.concerns[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaled = muster.Federation.from_folder(path, scale="pooled")
    assert muster.simulate(scaled, muster.methods.fedavg(), SOFTMAX, 5).concerns == []


def test_a_number_to_predict(tmp_path):
    data = load_diabetes()
    path = table(tmp_path, data.data, data.target.astype(int))
    with pytest.warns(muster.MusterWarning, match="labels look like numbers to predict") as said:
        fed = muster.Federation.from_folder(path)
    y = fed.train.y[fed.train.rows].numpy()
    expected = f"{len(set(y))} different ones between 0 and 346 in {len(y)} rows"
    assert any(expected in str(w.message) for w in said)


def test_a_class_that_no_test_row_has():
    rows = np.zeros((20, 2), np.float32)
    y = np.array([0] * 12 + [1] * 8)
    fed = muster.Federation.from_arrays([(rows, y)] * 2, test=[(rows[:4], y[:4])] * 2)
    assert find_data_warnings(fed) == [
        "no test row has class '1': test accuracy says nothing about it; hold out more rows "
        "(test_fraction)"
    ]


def test_a_rare_class_is_held_out_too(tmp_path):
    """2 % positives: every client that has two of them has one among its test rows."""
    draw = np.random.default_rng(0)
    y = (np.arange(1000) % 50 == 0).astype(int)
    path = table(tmp_path, draw.normal(size=(1000, 3)), draw.permutation(y))
    fed = muster.Federation.from_folder(path)
    positives = fed.label_counts()[:, 1]
    assert (positives >= 1).all()
    for k in range(fed.n):
        assert int((fed.test.client(k)[1] == 1).sum()) >= 1
    run = muster.simulate(fed, muster.methods.fedavg(), SOFTMAX, 1, muster.Local(steps=1, lr=1e-9))
    assert any("worse than a constant prediction" in sentence for sentence in run.concerns)


@pytest.mark.parametrize("fed", [muster.data.digits(), muster.data.synth(1, 1)], ids=repr)
def test_sound_data_raises_no_doubt(fed):
    assert find_data_warnings(fed) == []
