"""`muster predict`: from one's own records to predictions, checked by hand."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file
from sklearn.datasets import load_breast_cancer

import muster
from muster.cli.main import main

pytestmark = [
    pytest.mark.filterwarnings("ignore:features need scaling"),
    pytest.mark.filterwarnings("ignore:1 of 149 rows unlike training rows"),  # a huge tumour
]

NETS = "from torch import nn\n\n\ndef net():\n    return nn.Sequential(nn.Linear(30, 2))\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Breast cancer records as one table with hospitals and diagnoses, some kept back; and runs."""
    place = tmp_path_factory.mktemp("records")
    data, draw = load_breast_cancer(), np.random.default_rng(0)
    names = [str(n).replace(" ", "_") for n in data.feature_names]
    sites = np.array(["north", "south", "east"])[draw.integers(0, 3, len(data.target))]
    table = pl.DataFrame(data.data, names).with_columns(
        pl.Series("hospital", sites),
        pl.Series("diagnosis", data.target_names[data.target].astype(str)),
    )
    table[:420].write_csv(place / "old.csv")
    new = table[420:]
    new.select(table.columns[::-1]).write_csv(place / "new.csv")  # in another order
    new.drop("hospital", "diagnosis").write_parquet(place / "bare.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        flags = ["--data.client", "hospital", "--data.label", "diagnosis", "--rounds", "8"]
        flags += ["--data", "old.csv", "--data.scale", "pooled", "--data.priority", '["north"]']
        assert main(["run", *flags, "--name", "plain"]) == 0
        assert main(["run", *flags, "--name", "own", "--method", "ditto"]) == 0
        two = ["--data.features", json.dumps(names[:2]), "--local.lr", "0.001"]
        assert main(["run", *flags[:8], *two, "--name", "raw"]) == 0
    return place


@pytest.fixture
def here(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    capsys.readouterr()
    return place


def by_hand(weights, columns, frame):
    """softmax(W (x - mean) / std + b), with mean and std taken from the records again."""
    old = pl.read_csv("old.csv")
    fed = muster.Federation.from_folder(
        "old.csv", client="hospital", label="diagnosis", scale="pooled"
    )
    # Training rows, by what they were before scaling: their order is by client.
    x = fed.train.x.numpy()[fed.train.rows]
    raw = old.select(columns).to_numpy()[fed.train.rows]
    mean, std = raw.mean(0), raw.std(0)
    np.testing.assert_allclose(x, (raw - mean) / std, atol=1e-5)
    w, b = (weights[name].astype(float) for name in ("1.weight", "1.bias"))
    z = ((frame.select(columns).to_numpy() - mean) / std) @ w.T + b
    return np.exp(z) / np.exp(z).sum(1, keepdims=True)


def test_predictions_are_those_of_the_saved_weights(here, capsys):
    assert main(["predict", "runs/plain", "new.csv"]) == 0
    printed = capsys.readouterr()
    said = pl.read_csv(io.StringIO(printed.out))
    assert said.columns == ["row", "label", "prediction", "p_benign", "p_malignant", "flags"]
    new = pl.read_csv("new.csv")
    columns = json.loads(Path("runs/plain/model.json").read_text())["inputs"]["columns"]
    assert len(columns) == 30
    p = by_hand(load_file("runs/plain/weights.safetensors"), columns, new)
    np.testing.assert_allclose(said[:, 3:5].to_numpy(), p, atol=1e-5)
    assert said["prediction"].to_list() == np.array(["benign", "malignant"])[p.argmax(1)].tolist()
    right = (new["diagnosis"] == said["prediction"]).mean()
    assert right > 0.9
    at = (new["diagnosis"] == "malignant").cast(int).to_numpy()
    loss = -np.log(p[np.arange(len(p)), at]).mean()
    assert f"accuracy {right:.4f}, loss {loss:.4f}" in printed.err


def test_without_labels_and_to_a_file(here, capsys):
    for name in ("p.csv", "p.parquet"):
        assert main(["predict", "--out", f"made/{name}", "runs/plain", "bare.parquet"]) == 0
        printed = capsys.readouterr()
        assert printed.out.strip() == f"predictions: made/{name} (149 rows)"
        assert "accuracy" not in printed.err
    one, other = pl.read_csv("made/p.csv"), pl.read_parquet("made/p.parquet")
    assert one.equals(other)
    assert one.columns == ["row", "prediction", "p_benign", "p_malignant", "flags"]
    assert main(["predict", "runs/plain", "new.csv", "--out", "made/q.csv"]) == 0
    assert "accuracy" in capsys.readouterr().out


def test_python_says_the_same(here, capsys):
    run = muster.load("runs/plain")
    said = run.predict("bare.parquet")
    frame = pl.read_parquet("bare.parquet")
    columns = run.recipe.inputs.columns
    assert run.predict(frame).equals(said)
    assert run.predict({name: frame[name].to_numpy() for name in frame.columns}).equals(said)
    assert run.predict(frame.select(columns).to_numpy()).equals(said)
    labelled = run.predict(pl.read_csv("new.csv"))
    assert labelled.drop("label").equals(said)


def test_a_clients_own_model(here, capsys):
    printed = {}
    for who in ([], ["--client", "east"], ["--client", "0"], ["--client", "south"]):
        assert main(["predict", "runs/own", "bare.parquet", *who]) == 0
        printed[" ".join(who)] = capsys.readouterr().out
    assert printed["--client east"] == printed["--client 0"], "by name or by number"
    assert len(set(printed.values())) == 3
    run = muster.load("runs/own")
    own = {name: a[0] for name, a in run.own.models.items()}  # east is the first by name
    p = by_hand(own, run.recipe.inputs.columns, pl.read_csv("new.csv"))
    said = pl.read_csv(io.StringIO(printed["--client east"]))
    np.testing.assert_allclose(said["p_malignant"].to_numpy(), p[:, 1], atol=1e-5)


def test_columns_that_training_passed_over_may_be_there(here, capsys):
    assert main(["predict", "runs/raw", "new.csv"]) == 0
    said = pl.read_csv(io.StringIO(capsys.readouterr().out))
    weights = load_file("runs/raw/weights.safetensors")
    x = pl.read_csv("new.csv").select("mean_radius", "mean_texture").to_numpy()
    z = x @ weights["1.weight"].T.astype(float) + weights["1.bias"]
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    np.testing.assert_allclose(said["p_benign"].to_numpy(), p[:, 0], atol=1e-5)


def changed(name, change):
    """The new records, changed."""
    frame = change(pl.read_csv("new.csv"))
    frame.write_parquet(name) if name.endswith("parquet") else frame.write_csv(name)
    return name


@pytest.mark.parametrize(("make", "message"), [
    (lambda: changed("a.csv", lambda t: t.drop("mean_area")), "a.csv: no column 'mean_area'"),
    (lambda: changed("b.csv", lambda t: t.with_columns(more=1)), "b.csv: column 'more' is not one"),
    (lambda: changed("c.csv", lambda t: t.head(0)), "c.csv: no rows; give at least one"),
    (lambda: changed("d.parquet", lambda t: t.head(0)), "d.parquet: no rows; give at least one"),
    (lambda: changed("e.csv", lambda t: t.with_columns(mean_area=pl.lit("large"))),
     "e.csv: column 'mean_area', row 1: 'large' is not a number; fix it or drop the row"),
    (lambda: changed("f.parquet", lambda t: t.with_columns(mean_area=pl.lit([1, 2]))),
     "f.parquet: column 'mean_area' holds List(Int64); features must be numbers"),
    (lambda: changed("g.csv", lambda t: t.with_columns(mean_area=pl.lit(None))),
     "g.csv: column 'mean_area', row 1: is missing"),
    (lambda: changed("h.csv", lambda t: t.with_columns(diagnosis=pl.lit("benin"))),
     "h.csv: column 'diagnosis', row 1: label 'benin' is none of the model's classes"),
    (lambda: str(Path("i.csv").write_text("") or "i.csv"), "i.csv: empty; give a header"),
    (lambda: "new.xlsx", "new.xlsx: no such file"),
    (lambda: "old.txt", "old.txt: ends in '.txt'; allowed: .csv, .parquet, .npz files"),
    (lambda: "runs", "runs: is a folder"),
    (lambda: "rows.npz", "takes numbers of shape (rows, 30)"),
])  # fmt: skip
def test_files_that_do_not_fit_are_one_line(here, capsys, make, message):
    Path("old.txt").write_text("a,b\n")
    np.savez("rows.npz", x=np.zeros((2, 29)))
    assert main(["predict", "runs/plain", make()]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert (printed.err.count("\n"), printed.out) == (1, "")


@pytest.mark.parametrize(("line", "message"), [
    ([], "predict: give a run and a file"),
    (["runs/plain"], "predict: give a run and a file"),
    (["runs", "new.csv"], "runs: no run here (it holds the runs"),
    (["runs/plain", "new.csv", "--out", "p.xlsx"], "--out: 'p.xlsx'; its ending says the format"),
    (["runs/plain", "new.csv", "--client", "east"], "fedavg has no clients' own models"),
    (["runs/own", "new.csv", "--client", "est"], "client: no 'est'; did you mean 'east'?"),
    (["runs/plain", "new.csv", "--scale", "none"], "has the scale of its rows"),
    (["runs/plain", "new.csv", "--model", "nowhere:net"], "--model: 'nowhere:net' cannot be"),
    (["runs/plain", "new.csv", "--cleint", "a"], "flag '--cleint'; did you mean '--client'"),
])  # fmt: skip
def test_lines_that_cannot_be_are_one_line(here, capsys, line, message):
    # FedALIGN has no clients' own models either; its name is in the error.
    message = message.replace("fedavg", "fedalign")
    assert main(["predict", *line]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_comparison_is_asked_for_one_of_its_runs(here, capsys):
    flags = ["--data", "old.csv", "--data.client", "hospital", "--data.label", "diagnosis"]
    assert main(["compare", *flags, "--rounds", "1", "--seeds", "1", "--name", "c"]) == 0
    capsys.readouterr()
    assert main(["predict", "runs/c", "new.csv"]) == 2
    assert "give one of its runs, such as runs/c/fedalign-seed0" in capsys.readouterr().err
    assert main(["predict", "runs/c/fedalign-seed0", "new.csv"]) == 0


def test_code_of_yours_is_named_on_the_line(here, capsys):
    Path("nets_of_mine.py").write_text(NETS)
    space: dict = {}
    exec(NETS, space)
    fed = muster.Federation.from_folder("old.csv", client="hospital", label="diagnosis")
    run = muster.simulate(fed, muster.methods.fedavg(), space["net"](), rounds=1)
    muster.save(run, "runs/mine")
    assert main(["predict", "runs/mine", "bare.parquet"]) == 2
    assert "give what builds it: run.model(build=...), or --model" in capsys.readouterr().err
    assert main(["predict", "runs/mine", "bare.parquet", "--model", "nets_of_mine:net"]) == 0
    said = pl.read_csv(io.StringIO(capsys.readouterr().out))
    assert said.equals(run.predict("bare.parquet")) or np.allclose(
        said["p_benign"], run.predict("bare.parquet")["p_benign"]
    )


def test_code_of_yours_has_the_settings_of_its_run(here, capsys, monkeypatch):
    monkeypatch.syspath_prepend(here)
    Path("wide_nets.py").write_text(
        "from torch import nn\n\n\n"
        "class Net(nn.Sequential):\n"
        "    def __init__(self, width=4):\n"
        "        super().__init__(nn.Linear(30, width), nn.Linear(width, 2))\n"
    )
    flags = ["--data", "old.csv", "--data.client", "hospital", "--data.label", "diagnosis"]
    model = ["--model", "wide_nets:Net"]
    assert main(["run", *flags, *model, "--model.width", "9", "--rounds", "1", "--name", "w"]) == 0
    capsys.readouterr()
    assert main(["predict", "runs/w", "bare.parquet", *model]) == 0
    assert "p_benign" in capsys.readouterr().out


def test_rows_without_columns_come_as_arrays(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--data", "digits", "--rounds", "1", "--name", "d"]) == 0
    fed = muster.data.digits()
    x, y = (t.numpy() for t in fed.train.client(0))
    np.savez("rows.npz", x=x, y=y)
    np.savez("bare.npz", x=x)
    capsys.readouterr()
    assert main(["predict", "runs/d", "rows.npz"]) == 0
    printed = capsys.readouterr()
    accuracy = muster.load("runs/d").final["train_accuracy"][0]
    assert f"accuracy {accuracy:.4f}" in printed.err
    assert main(["predict", "runs/d", "bare.npz"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(x) + 1
    Path("t.csv").write_text("a\n1\n")
    np.savez("none.npz", y=y)
    for file, message in (
        ("t.csv", "trained on rows without column names"),
        ("none.npz", "no array 'x'"),
    ):
        assert main(["predict", "runs/d", file]) == 2
        assert message in capsys.readouterr().err
