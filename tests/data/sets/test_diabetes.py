"""Diabetes, from its rows to a prediction: a regression that a federation learns."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression

import muster
from muster.cli.main import main

WORK = muster.Local(steps=10, batch_size=32, lr=0.05)


def test_groups_of_one_age_hold_every_patient_once():
    fed = muster.data.diabetes(clients=5)
    assert fed.classes == 0
    assert int(fed.train.sizes.sum() + fed.test.sizes.sum()) == 442
    ages = [fed.train.client(k)[0][:, 0] for k in range(5)]
    assert all(float(a.max()) <= float(b.min()) for a, b in zip(ages, ages[1:], strict=False))
    y = np.concatenate([d.client(k)[1].numpy() for d in (fed.train, fed.test) for k in range(5)])
    assert sorted(y) == sorted(load_diabetes(return_X_y=True)[1])


def test_a_federation_comes_near_the_least_squares_of_all_rows():
    fed = muster.data.diabetes(priority="all")
    run = muster.simulate(
        fed, muster.methods.fedavg(), muster.models.Linear(), 60, WORK,
        task=muster.tasks.regression(), evaluate_every=0,
    )  # fmt: skip
    x, y = (
        np.concatenate([fed.train.client(k)[i].numpy() for k in range(fed.n)]) for i in range(2)
    )
    best = LinearRegression().fit(x, y)
    least = np.mean((best.predict(x) - y) ** 2)
    assert run.rounds["loss"][-1] < 1.1 * least
    assert run.rounds["loss"][-1] < 0.7 * run.facts["constant_loss"]
    assert run.final["useful"].any()
    table, scores = run.predict_and_score(
        load_diabetes(as_frame=True).frame.rename(columns={"target": "progression"})
    )
    assert scores["R2"] > 0.45, "new rows are written as scikit-learn's"
    assert len(table) == 442


def test_from_a_file_to_a_prediction(tmp_path, capsys, monkeypatch):
    """One CSV per client, labels with fractions; the run predicts new rows and says how well."""
    monkeypatch.chdir(tmp_path)
    x, y = load_diabetes(return_X_y=True)
    for k, name in enumerate(("north", "south", "east")):
        lines = ["bmi,bp,s5,progression"]
        lines += [f"{a:.5f},{b:.5f},{c:.5f},{t / 10}" for (a, b, c), t in
                  zip(30 * x[k::3][:, [2, 3, 8]], y[k::3], strict=True)]  # fmt: skip
        (tmp_path / "hospitals").mkdir(exist_ok=True)
        (tmp_path / "hospitals" / f"{name}.csv").write_text("\n".join(lines))
    assert main([
        "run", "--data", "hospitals", "--data.label", "progression", "--model", "linear", "--task",
        "regression", "--method", "fedavg", "--rounds", "20", "--name", "sugar", "--local.lr",
        "0.05",
    ]) == 0  # fmt: skip
    run = muster.load("runs/sugar")
    assert run.rounds["test_r2"][-1] > 0.3
    capsys.readouterr()
    assert main(["predict", "runs/sugar", "hospitals/north.csv"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("row,label,prediction\n1,15.1,")
    assert "R2 0." in said.err
    told = run.predict(tmp_path / "hospitals" / "north.csv")
    expected = run.model()(_rows(tmp_path)).detach().numpy()[:, 0]
    assert np.allclose(told["prediction"], expected)
    assert main(["data", "show", "hospitals", "--label", "progression", "--targets",
                 "numbers"]) == 0  # fmt: skip
    assert "a number to predict" in capsys.readouterr().out


def _rows(folder):
    import torch

    table = np.loadtxt(folder / "hospitals" / "north.csv", delimiter=",", skiprows=1)
    return torch.from_numpy(table[:, :3]).float()


@pytest.mark.parametrize("attack", [muster.attacks.LabelFlip(0.5), muster.attacks.Backdoor(0.5)])
def test_attacks_on_classes_say_that_there_are_none(attack):
    with pytest.raises(muster.MusterError, match="it changes classes, and these targets are a num"):
        muster.simulate(
            muster.data.diabetes(), muster.methods.fedavg(), muster.models.Linear(), 1,
            attack=attack, task=muster.tasks.regression(),
        )  # fmt: skip
