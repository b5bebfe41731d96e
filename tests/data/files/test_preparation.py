"""Categories and missing values: features that every client makes alike, and new rows too."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch

import muster
from muster.cli.main import main
from muster.federation import Inputs, TableEncoder
from muster.results.export import build_exportable

NORTH = "age,pain,sugar,ill\n60,sharp,5.0,1\n50,,,0\n40,dull,7.0,1\n70,dull,6.0,0\n"
SOUTH = "age,pain,sugar,ill\n30,none,4.0,0\n?,sharp,8.0,1\n20,none,,0\n80,dull,5.5,1\n"
HOW = {"label": "ill", "categories": ("pain",), "missing": "mean", "test_fraction": 0}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clinics").mkdir()
    (tmp_path / "clinics" / "north.csv").write_text(NORTH)
    (tmp_path / "clinics" / "south.csv").write_text(SOUTH)
    return tmp_path / "clinics"


def test_levels_are_those_of_everybody_and_missing_values_are_counted(folder):
    with pytest.warns(muster.MusterWarning, match="features need scaling"):
        fed = muster.Federation.from_folder(folder, **HOW)
    assert fed.columns == (
        "age", "age missing", "pain=dull", "pain=none", "pain=sharp", "pain missing", "sugar",
        "sugar missing",
    )  # fmt: skip
    x = fed.train.client(0)[0].numpy()
    sugar = np.mean([5, 7, 6, 4, 8, 5.5])
    assert x.tolist() == pytest.approx(
        np.array([
            [60, 0, 0, 0, 1, 0, 5, 0], [50, 0, 0, 0, 0, 1, sugar, 1], [40, 0, 1, 0, 0, 0, 7, 0],
            [70, 0, 1, 0, 0, 0, 6, 0],
        ])
    )  # fmt: skip
    assert fed.train.client(1)[0][1, :2].tolist() == [50.0, 1.0], "the mean of seven ages is 50"


def test_numbers_are_scaled_by_what_is_there_and_categories_stay(folder):
    fed = muster.Federation.from_folder(folder, **HOW, scale="pooled")
    ages = np.array([60, 50, 40, 70, 30, 20, 80.0])
    x = np.concatenate([fed.train.client(k)[0].numpy() for k in range(2)])
    assert x[:5, 0] == pytest.approx((ages[:5] - 50) / ages.std(), abs=1e-6)
    assert x[5, 0] == 0.0, "a missing age is the mean"
    assert set(np.unique(x[:, 1:6])) == {0.0, 1.0}


def test_only_training_rows_are_fitted_to(folder):
    """Held-out rows may be extreme: what is filled in does not follow them."""
    table = pl.concat(
        [pl.read_csv(folder / f"{n}.csv", infer_schema=False).with_columns(client=pl.lit(n))
         for n in ("north", "south")]
    ).with_columns(split=pl.Series(["train", "train", "test", "train"] * 2))  # fmt: skip
    extreme = pl.when(pl.col("split") == "test").then(pl.lit("999")).otherwise(pl.col("sugar"))
    table.with_columns(sugar=extreme).write_csv(folder.parent / "all.csv")
    how = {**HOW, "test_fraction": None, "split": "split", "client": "client"}
    with pytest.warns(muster.MusterWarning, match="features need scaling"):
        fed = muster.Federation.from_folder(folder.parent / "all.csv", **how)
    assert fed.encoder.mean[2] == pytest.approx(np.mean([5.0, 6.0, 4.0, 8.0, 5.5]))


def test_from_files_to_a_prediction_of_raw_rows(folder, capsys):
    assert main([
        "run", "--data", "clinics", "--data.label", "ill", "--data.categories", "[\"pain\"]",
        "--data.missing", "mean", "--data.scale", "pooled", "--model", "linear", "--task", "binary",
        "--method", "fedavg", "--rounds", "5", "--name", "pain",
    ]) == 0  # fmt: skip
    new = folder.parent / "new.csv"
    new.write_text("pain,sugar,age\nsharp,,55\n,6.0,?\n")
    capsys.readouterr()
    assert main(["predict", "runs/pain", "new.csv"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == "row,prediction,p_0,p_1"
    run = muster.load("runs/pain")
    made = run.recipe.inputs.encoder
    x = made(np.array([[55.0, 2.0, np.nan], [np.nan, np.nan, 6.0]]))
    p = torch.sigmoid(run.model()(torch.from_numpy(x))[:, 0]).tolist()
    assert [float(r.split(",")[3]) for r in rows[1:]] == pytest.approx(p, abs=1e-6)
    new.write_text("pain,sugar,age\nshapr,5,55\n")
    assert main(["predict", "runs/pain", "new.csv"]) == 2
    assert "column 'pain', row 1: 'shapr' is no level the model knows" in capsys.readouterr().err


def test_what_a_model_takes_survives_being_written_down():
    nothing = {"a": (0.0, -9.0)}
    made = TableEncoder(
        ("a", "b"), {"b": ("x", "y")}, ("a",), (1.5, 0.0), (2.0, 1.0), True, nothing
    )
    inputs = Inputs((4,), 2, columns=("a", "b"), encoder=made)
    again = Inputs.from_dict(inputs.to_dict()).encoder
    assert vars(again) == vars(made)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"missing": None}, "column 'sugar', row 2: is missing; fill it in or drop the row"),
        ({"categories": ("pian",)}, "category 'pian' is no feature; did you mean 'pain'"),
        ({"categories": None}, "column 'pain', row 1: 'sharp' is not a number"),
        ({"missing": None, "features": ("pain",)}, "column 'pain', row 2: is missing; fill it in"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(folder, how, says):
    with pytest.raises(muster.MusterError, match=says):
        muster.Federation.from_folder(folder, **{**HOW, **how})


def test_a_priority_scale_is_that_of_the_priority_clients(folder):
    """Levels and holes are everybody's; means and deviations those of the clients it is for."""
    fed = muster.Federation.from_folder(folder, **HOW, scale="priority", priority=["north"])
    made, ages, sugar = fed.encoder, np.array([60, 50, 40, 70.0]), np.array([5.0, 7.0, 6.0])
    assert made.mean[0] == pytest.approx(ages.mean(), rel=1e-12)
    assert made.std[2] == pytest.approx(sugar.std(), rel=1e-12)
    assert made.holes == ("age", "pain", "sugar")
    assert made.levels == {"pain": ("dull", "none", "sharp")}
    everyone = muster.Federation.from_folder(folder, **HOW, scale="priority").encoder
    assert vars(everyone) == vars(
        muster.Federation.from_folder(folder, **HOW, scale="pooled").encoder
    )


def test_missing_values_in_arrays_of_a_complete_table_are_refused(tmp_path):
    rows = "".join(f"{i},{i % 3},{i % 2}\n" for i in range(20))
    (tmp_path / "t.csv").write_text("a,b,label\n" + rows)
    fed = muster.Federation.from_folder(tmp_path / "t.csv", scale="pooled")
    run = muster.simulate(fed, muster.methods.fedavg(), muster.models.Softmax(), rounds=1)
    assert run.predict([[1.0, 2.0]])["p_1"].is_finite().all()
    with pytest.raises(muster.MusterError, match="column 'a', row 1: nan is not finite"):
        run.predict([[np.nan, 2.0]])


def one_table(tmp_path, kinds, ages=None, **how):
    """A model of 24 rows, of which the last two are held out: an age, and a kind."""
    ages = [*range(40, 64)] if ages is None else ages
    split = ["train"] * (len(kinds) - 2) + ["test"] * 2
    lines = [f"{a},{k},{i % 2},{s}" for i, (a, k, s) in
             enumerate(zip(ages, kinds, split, strict=True))]  # fmt: skip
    (tmp_path / "t.csv").write_text("\n".join(["age,kind,label,split", *lines]))
    how = {"categories": ("kind",), "split": "split", "scale": "pooled"} | how
    fed = muster.Federation.from_folder(tmp_path / "t.csv", **how)
    return fed, muster.simulate(fed, muster.methods.fedavg(), muster.models.Softmax(), rounds=2)


KINDS = ["1", "2", "4"] * 8


def test_what_is_to_be_filled_in_need_not_be_missing_in_training(tmp_path):
    fed, run = one_table(tmp_path, KINDS, [*range(40, 63), ""], missing="mean")
    assert fed.columns == ("age", "kind=1", "kind=2", "kind=4")
    assert fed.test.x[-1, 0] == 0.0, "the mean stands in"
    known = run.predict({"age": [50.5], "kind": ["2"]})
    assert run.predict({"age": [None], "kind": ["2"]}).equals(known), "50.5 is the mean"
    said = build_exportable(run.model(), run.recipe)(torch.tensor([[np.nan, 1.0]]).double())
    assert said[0, 1] == pytest.approx(known["p_1"][0], abs=1e-6)


def test_a_missing_category_is_an_error_unless_it_may_be_missing(tmp_path):
    _, run = one_table(tmp_path, KINDS)
    with pytest.raises(muster.MusterError, match="rows: column 'kind', row 2: is missing"):
        run.predict({"age": [50.0, 60.0], "kind": ["2", ""]})
    _, run = one_table(tmp_path, KINDS, missing="mean")
    with pytest.warns(muster.MusterWarning, match="column 'kind', row 2: is missing, as it is in"):
        run.predict({"age": [50.0, 60.0], "kind": ["2", ""]})


def test_holes_are_no_levels_however_they_are_written(tmp_path):
    fed, run = one_table(tmp_path, ["?", "NA", "", "nan", *KINDS[4:]], missing="mean")
    assert fed.columns == ("age", "kind=1", "kind=2", "kind=4", "kind missing")
    x = fed.train.client(0)[0]
    assert x[:4, -1].tolist() == [1.0] * 4
    ways = {"age": [50.0] * 3, "kind": [np.nan, None, "?"]}
    assert len(set(run.predict(ways)["p_1"])) == 1


@pytest.mark.parametrize("strange", ["inf", "1e30", "-inf"])
def test_numbers_without_end_are_levels_like_any_text(tmp_path, strange):
    fed, run = one_table(tmp_path, [strange, *KINDS[1:]])
    assert f"kind={strange}" in fed.columns
    with pytest.raises(muster.MusterError, match="is no level the model knows"):
        run.predict({"age": [50.0], "kind": [2e40]})


def test_an_array_holds_the_values_of_categories_and_not_their_places(tmp_path):
    _, run = one_table(tmp_path, KINDS)
    named = run.predict({"age": [50, 60], "kind": [4, 1]})
    assert run.predict(np.array([[50.0, 4.0], [60.0, 1.0]])).equals(named)
    assert run.predict([["50", "4"], ["60", "1"]]).equals(named)
    np.savez(tmp_path / "new.npz", x=np.array([[50.0, 4.0], [60.0, 1.0]]))
    assert run.predict(tmp_path / "new.npz").equals(named)
    with pytest.raises(muster.MusterError, match="column 'kind', row 1: '3' is no level the model"):
        run.predict([[50.0, 3.0]])


def test_a_priority_scale_takes_from_everybody_what_the_priority_clients_lack(folder):
    north = NORTH.replace("5.0", "").replace("7.0", "").replace("6.0", "")
    (folder / "north.csv").write_text(north)
    fed = muster.Federation.from_folder(folder, **HOW, scale="priority", priority=["north"])
    sugar = np.array([4.0, 8.0, 5.5])
    assert fed.encoder.mean[2] == pytest.approx(sugar.mean())
    assert fed.encoder.std[2] == pytest.approx(sugar.std())


def test_a_table_may_be_all_categories(tmp_path):
    rows = "".join(f"{'xyz'[i % 3]},{'uv'[i % 2]},{i % 2}\n" for i in range(30))
    (tmp_path / "t.csv").write_text("a,b,label\n" + rows)
    fed = muster.Federation.from_folder(tmp_path / "t.csv", categories=("a", "b"))
    assert fed.columns == ("a=x", "a=y", "a=z", "b=u", "b=v")
    run = muster.simulate(fed, muster.methods.fedavg(), muster.models.Softmax(), rounds=1)
    assert len(run.predict({"a": ["x"], "b": ["v"]})) == 1
