"""Data that trains without a word and comes to nothing: it is said."""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes

import muster
from muster.federation.data_warnings import find_data_warnings, find_dominant_values

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


def outlying(tmp_path, *ages, rows=60, name="h", **settings):
    """Two clients; the first rows of the second have these ages."""
    draw = np.random.default_rng(0)
    folder = tmp_path / name
    folder.mkdir()
    for client in ("north", "south"):
        age, dose = draw.normal(50, 10, rows).round(1), draw.lognormal(0, 1, rows).round(3)
        age[: len(ages)] = ages if client == "south" else age[: len(ages)]
        frame = pl.DataFrame({"age": age, "dose": dose, "rare": np.arange(rows) % 50 == 3})
        frame = frame.with_columns(pl.col("rare").cast(int), label=pl.Series(age > 50).cast(int))
        frame.write_csv(folder / f"{client}.csv")
    return muster.Federation.from_folder(folder, test_fraction=0, **settings)


def test_a_value_that_decides_the_scale(tmp_path):
    """Whoever is scaled by it hardly differs from the others any more."""
    fed = outlying(tmp_path, 99999, scale="pooled")
    (sentence,) = find_data_warnings(fed)
    assert sentence.startswith("column 'age' has a value so far from all others")
    assert "99999 at client south;" in sentence
    assert "[range] in the manifest" in sentence
    assert sentence in muster.simulate(fed, muster.methods.fedavg(), SOFTMAX, 1).warnings
    assert find_data_warnings(fed, values=False) == []
    several = outlying(tmp_path, 9999, 9998, name="s", categories=["rare"], scale="pooled")
    assert "9999 at client south (and 1 value more)" in find_data_warnings(several)[0]
    arrays = outlying(tmp_path, 52, name="a", scale="pooled")
    assert find_data_warnings(arrays) == []
    # By a scale that others decide, everyone but the client itself is as before.
    (tmp_path / "h" / "manifest.toml").write_text("[clients.north]\npriority = true\n")
    with pytest.warns(muster.MusterWarning, match="features need scaling"):
        apart = muster.Federation.from_folder(tmp_path / "h", scale="priority")
    assert find_dominant_values(apart) == []


def test_a_class_that_one_client_spells_its_own_way(tmp_path):
    draw = np.random.default_rng(0)
    for client, name in (("a", "benign"), ("b", "benign"), ("c", "bening")):
        frame = pl.DataFrame({"x": draw.normal(size=40), "label": [name, "malignant"] * 20})
        frame.write_csv(tmp_path / f"{client}.csv")
    fed = muster.Federation.from_folder(tmp_path, classes=["benign", "bening", "malignant"])
    run = muster.simulate(fed, muster.methods.fedavg(), SOFTMAX, 1)
    (sentence,) = (w for w in run.warnings if "class 'bening'" in w)
    assert "is at c alone, without 'benign', which it may be" in sentence
    assert "[recode.label] in the manifest" in sentence
