"""Several columns of labels: survival times with their events, numbers, yes-or-no labels."""

from __future__ import annotations

import io

import numpy as np
import polars as pl
import pytest

import muster
from muster.cli.main import main
from muster.federation import Inputs


@pytest.fixture
def trial(tmp_path, monkeypatch):
    """Two sites' patients: the older, the sooner."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    n = 60
    age, dose = draw.normal(size=n), draw.normal(size=n)
    time = np.round(draw.exponential(np.exp(-1.5 * age)), 3)
    table = pl.DataFrame({
        "days": time, "age": age, "died": (draw.uniform(size=n) < 0.7).astype(int), "dose": dose,
        "site": ["north", "south"] * (n // 2),
    })  # fmt: skip
    table.write_csv("trial.csv")
    return table


FLAGS = ["--data", "trial.csv", "--data.client", "site", "--data.label", '["days", "died"]']
WORK = ["--model", "linear", "--method", "fedavg", "--rounds", "20", "--local.batch_size", "30"]


def test_survival_from_a_table_to_log_risks(trial, capsys):
    assert main(["run", *FLAGS, "--task", "survival", *WORK, "--name", "cox"]) == 0
    run = muster.load("runs/cox")
    assert run.recipe.inputs.columns == ("age", "dose")
    assert run.recipe.inputs.label == ("days", "died")
    assert run.final["train_c_index"].min() > 0.7
    trial.drop("site").write_csv("new.csv")
    capsys.readouterr()
    assert main(["predict", "runs/cox", "new.csv"]) == 0
    printed = capsys.readouterr()
    said = pl.read_csv(io.StringIO(printed.out))
    assert said.columns == ["row", "label_days", "label_died", "log_risk"]
    w, b = (run.weights[name].astype(float) for name in ("1.weight", "1.bias"))
    z = trial.select("age", "dose").to_numpy() @ w.T + b
    np.testing.assert_allclose(said["log_risk"], z[:, 0], atol=1e-5)
    assert said["label_days"].to_list() == trial["days"].to_list()
    assert printed.err.startswith("C-index 0.")
    trial.select("age", "dose").write_csv("bare.csv")
    assert main(["predict", "runs/cox", "bare.csv"]) == 0
    printed = capsys.readouterr()
    assert (printed.out.splitlines()[0], printed.err) == ("row,log_risk", "")
    trial.drop("site", "died").write_csv("half.csv")
    assert main(["predict", "runs/cox", "half.csv"]) == 2
    assert "half.csv: label 'days' without 'died'; give all, or none" in capsys.readouterr().err


def test_a_manifest_says_it_too(trial):
    with open("trial.manifest.toml", "w") as file:
        file.write('label = ["days", "died"]\nclient = "site"\ntest_fraction = 0\n')
    fed = muster.Federation.from_folder("trial.csv", targets="numbers")
    assert (fed.classes, fed.target, fed.label_column) == (0, (2,), ("days", "died"))
    y = np.concatenate([fed.train.client(k)[1].numpy() for k in range(2)])
    ordered = trial.sort("site", maintain_order=True)
    assert (y == ordered.select("days", "died").to_numpy()).all()


def test_several_numbers_and_several_yes_or_no(trial):
    two = trial.with_columns(up=pl.col("age") * 2, down=-pl.col("dose")).drop("days", "died")
    two.write_csv("two.csv")
    how = {"client": "site", "label": ("up", "down"), "test_fraction": 0}
    fed = muster.Federation.from_folder("two.csv", **how)
    fit = {"rounds": 60, "local": muster.Local(steps=5, batch_size=20, lr=0.1)}
    run = muster.simulate(fed, muster.methods.fedavg(), muster.models.Linear(),
                          task=muster.tasks.regression(), **fit)  # fmt: skip
    said, known = run.predict_and_score("two.csv")
    assert said.columns[1:] == ["label_up", "label_down", "prediction_up", "prediction_down"]
    assert known["R2"] > 0.999
    signs = two.with_columns((pl.col("up", "down") > 0).cast(pl.Int8))
    signs.write_csv("signs.csv")
    fed = muster.Federation.from_folder("signs.csv", **how)
    run = muster.simulate(fed, muster.methods.fedavg(), muster.models.Linear(),
                          task=muster.tasks.multilabel(), **fit)  # fmt: skip
    said, known = run.predict_and_score("signs.csv")
    assert said.columns[1:] == ["label_up", "label_down", "p_up", "p_down"]
    assert known["accuracy"] > 0.9


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (pl.col("days") - 100, r"task survival: client \w+: time -\d.*; times are 0 or more"),
        (pl.col("died") + 1, "task survival: client north: event 2; it is 1 where it happened"),
        (pl.lit("soon").alias("days"), "column 'days', row 1: 'soon' is not a number; write it as"),
        (pl.lit(None).alias("died"), "column 'died', row 1: is missing"),
        (
            pl.col("died").alias("gone"),
            r"no label 2 column 'died'; name it in manifest.toml, label",
        ),
    ],
)
def test_times_and_events_that_cannot_be(trial, capsys, change, says):
    changed = trial.with_columns(change)
    if "gone" in changed.columns:
        changed = changed.drop("died")
    changed.write_csv("trial.csv")
    assert main(["run", *FLAGS, "--task", "survival", *WORK]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    with pytest.raises(muster.MusterError, match=says):
        raise muster.MusterError(error)


def test_several_columns_are_no_classes(trial):
    for how, says in (
        ({"targets": "classes"}, "label: several columns are numbers to predict"),
        ({"classes": (0, 1)}, "classes: given together with targets = 'numbers'"),
        ({"label": ("days", "days")}, r"label: \['days', 'days'\]; give different names"),
        ({"label": ("days", "site")}, "column 'site' is both"),
    ):
        given = {"label": ("days", "died"), "client": "site", **how}
        with pytest.raises(muster.MusterError, match=says):
            muster.Federation.from_folder("trial.csv", **given)


def test_a_node_reads_them_too(trial):
    pytest.importorskip("flwr")
    from muster.config.network import Network
    from muster.flower.client.node_data import read_own_data

    trial.filter(pl.col("site") == "north").drop("site").write_csv("north.csv")
    config = {"data-path": "north.csv", "test-fraction": 0.0}
    fed = read_own_data(config, Network(label=("days", "died")), 0, "numbers")
    assert (fed.target, fed.columns, fed.n) == ((2,), ("age", "dose"), 1)


def test_label_columns_survive_being_written_down():
    again = Inputs.from_dict(Inputs((2,), 0, label=("days", "died"), target=(2,)).to_dict())
    assert again.label_columns == ("days", "died")
    assert Inputs((2,), 2, label="ill").label_columns == ("ill",)
