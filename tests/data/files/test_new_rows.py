"""New rows unlike those of training are flagged; unknown levels are a choice; columns are kept."""

from __future__ import annotations

import io

import numpy as np
import polars as pl
import pytest

import muster
from muster.cli.main import main
from own_files import put


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two hospitals with ages, a rare 0 or 1, and a category; runs with and without a scale."""
    place, draw = tmp_path_factory.mktemp("hospitals"), np.random.default_rng(0)
    put(place / "h")
    for name in ("north", "south"):
        age, rare = draw.uniform(20, 90, 200).round(1), (np.arange(200) == 7).astype(int)
        sex = np.array(["f", "m"])[draw.integers(0, 2, 200)]
        ill = np.where(age + 20 * (sex == "m") + draw.normal(0, 5, 200) > 65, "yes", "no")
        table = pl.DataFrame({"age": age, "rare": rare, "sex": sex, "ill": ill})
        table.write_csv(place / "h" / f"{name}.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for name, settings in {
            "scaled": {"scale": "pooled", "missing": "mean"}, "strict": {"scale": "pooled"},
            "plain": {},
        }.items():  # fmt: skip
            fed = muster.Federation.from_folder("h", label="ill", categories=["sex"], **settings)
            local = muster.Local(steps=5, batch_size=16, lr=0.5 if settings else 0.0001)
            run = muster.simulate(
                fed, muster.methods.fedavg(), muster.models.Linear(), rounds=5, local=local,
                task=muster.tasks.binary(),
            )  # fmt: skip
            muster.save(run, f"runs/{name}")
    return place


@pytest.fixture
def here(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    capsys.readouterr()
    return place


NEW = "patient_id,age,rare,sex\np1,55,0,f\np2,710,1,m\np3,60,2,f\n"
pytestmark = pytest.mark.filterwarnings("ignore:features need scaling")


def spans(name, place):
    """Mean and deviation of the ages that a run has trained on, by hand."""
    fed = muster.Federation.from_folder(place / "h", label="ill", categories=["sex"])
    at = fed.columns.index("age")
    ages = np.concatenate([fed.train.client(k)[0][:, at].numpy() for k in range(2)])
    return ages.astype(float).mean(), ages.astype(float).std()


@pytest.mark.parametrize("name", ["scaled", "strict", "plain"])
def test_values_far_from_training_rows_are_flagged(here, name):
    run = muster.load(f"runs/{name}")
    with pytest.warns(
        muster.MusterWarning, match="2 of 3 rows unlike training rows .*row 2, age 710 out"
    ):
        said = run.predict(pl.read_csv(io.StringIO(NEW)), keep=["patient_id"])
    assert said.columns[:2] == ["row", "patient_id"]
    assert said["patient_id"].to_list() == ["p1", "p2", "p3"]
    mean, std = spans(name, here)
    low, high = run.recipe.inputs.find_ranges()["age"]
    assert (low, high) == pytest.approx((mean - 7 * std, mean + 7 * std), rel=1e-5)
    flags = said["flags"].to_list()
    assert flags[0] == ""
    assert flags[1].startswith("age 710 outside ")
    # One row in 200 has it: 14 deviations from the mean, and yet as it is in training rows.
    assert "rare" not in flags[1]
    assert flags[2] == "rare 2 outside 0 to 1"


def test_rows_like_those_of_training_have_no_flags(here):
    said = muster.load("runs/scaled").predict({"age": [50.0], "rare": [1], "sex": ["m"]})
    assert "flags" not in said.columns


@pytest.mark.parametrize("name", ["scaled", "strict"])
def test_an_unknown_level_is_refused_or_missing_by_choice(here, name):
    run = muster.load(f"runs/{name}")
    rows = {"age": [50.0, 50.0], "rare": [0, 0], "sex": ["f", "divers"]}
    known = r"row 2: 'divers' is no level the model knows; .*; or count it .* --unknown missing"
    with pytest.raises(muster.MusterError, match=known):
        run.predict(rows)
    with pytest.warns(muster.MusterWarning) as heard:
        said = run.predict(rows, unknown="missing")
    assert any("row 2, sex 'divers' unknown" in str(w.message) for w in heard)
    assert said["flags"].to_list() == ["", "sex 'divers' unknown"]
    # By hand: neither level's weight counts.
    weights = next(v for v in run.weights.values() if v.ndim == 2)[0]
    bias = next(v for v in run.weights.values() if v.ndim == 1)[0]
    made = run.recipe.inputs.encoder
    age = (50.0 - made.mean[0]) / made.std[0]
    rare = (0.0 - made.mean[1]) / made.std[1]
    z = weights[0] * age + weights[1] * rare + bias
    assert said["p_yes"][1] == pytest.approx(1 / (1 + np.exp(-z)), abs=1e-6)
    with pytest.raises(muster.MusterError, match="unknown: 'drop'; allowed: error, missing"):
        run.predict(rows, unknown="drop")


def test_the_command_line_carries_columns_and_reads_other_dialects(here, capsys):
    text = NEW.replace(",", ";").replace("55", "55,5").replace("710", "71").replace("60;2", "60;0")
    (here / "neu.csv").write_bytes(text.replace("p1", "Müller").encode("latin-1"))
    flags = ["predict", "runs/scaled", "neu.csv", "--keep", "patient_id,age"]
    with pytest.warns(
        muster.MusterWarning, match="neu.csv: read with separator ';', decimal ',', enc"
    ):
        assert main(flags) == 0
    said = pl.read_csv(io.StringIO(capsys.readouterr().out))
    assert said.columns == ["row", "patient_id", "age", "prediction", "p_no", "p_yes"]
    assert said["patient_id"].to_list() == ["Müller", "p2", "p3"]
    assert said["age"].to_list() == [55.5, 71, 60]
    (here / "other.csv").write_text(NEW.replace("710", "71").replace("60,2,f", "60,0,x"))
    assert main(["predict", "runs/scaled", "other.csv"]) == 2
    assert "carry it through with keep (--keep patient_id)" in capsys.readouterr().err
    assert main(["predict", "runs/scaled", "other.csv", "--keep", "patient"]) == 2
    assert "keep: no column 'patient'; did you mean 'patient_id'" in capsys.readouterr().err
    out = ["--keep", "patient_id", "--unknown", "missing", "--out", "o.parquet"]
    with pytest.warns(muster.MusterWarning, match="sex 'x' unknown"):
        assert main(["predict", "runs/scaled", "other.csv", *out]) == 0
    assert pl.read_parquet("o.parquet")["flags"].to_list() == ["", "", "sex 'x' unknown"]


def test_kept_columns_may_not_be_called_as_predictions_are(here):
    rows = {"age": [50.0], "rare": [0], "sex": ["f"], "prediction": ["old"]}
    with pytest.raises(muster.MusterError, match="keep: predictions have a column 'prediction'"):
        muster.load("runs/scaled").predict(rows, keep="prediction")
    with pytest.raises(muster.MusterError, match="keep: an array has no columns"):
        muster.load("runs/scaled").predict([[50.0, 0, "f"]], keep="age")


def test_ranges_that_were_agreed_and_values_recoded_are_kept_with_the_model(here, tmp_path):
    put(tmp_path / "h")
    for name in ("north", "south"):
        (tmp_path / "h" / f"{name}.csv").write_text((here / "h" / f"{name}.csv").read_text())
    put(
        tmp_path / "h", manifest="[range]\nage = [0, 120]\n[recode.sex]\nf = 'female'\nm = 'male'\n"
    )
    fed = muster.Federation.from_folder(
        tmp_path / "h", label="ill", categories=["sex"], scale="pooled"
    )
    assert fed.encoder.levels["sex"] == ("female", "male")
    run = muster.simulate(fed, muster.methods.fedavg(), muster.models.Softmax(), rounds=1)
    muster.save(run, tmp_path / "run")
    again = muster.load(tmp_path / "run")
    with pytest.warns(muster.MusterWarning, match="age 121 outside 0 to 120"):
        said = again.predict({"age": [121, 119], "rare": [0, 0], "sex": ["f", "female"]})
    assert said["flags"].to_list() == ["age 121 outside 0 to 120", ""]
