"""Exported models, loaded back by torch (and onnxruntime) alone: the same answers as `predict`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

import muster
import tasks
from muster.cli.main import main
from muster.results import export

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated:DeprecationWarning")
M = muster.methods
NORTH = "age,pain,sugar,ill\n60,sharp,5.0,no\n50,,,yes\n40,dull,7.0,no\n70,dull,6.0,yes\n"
SOUTH = "age,pain,sugar,ill\n30,none,4.0,yes\n?,sharp,8.0,no\n20,none,,yes\n80,dull,5.5,no\n"


@pytest.fixture
def clinics(tmp_path, monkeypatch):
    """A run on a table with categories and holes, scaled."""
    monkeypatch.chdir(tmp_path)
    Path("clinics").mkdir()
    Path("clinics/north.csv").write_text(NORTH)
    Path("clinics/south.csv").write_text(SOUTH)
    fed = muster.Federation.from_folder(
        "clinics", label="ill", categories=("pain",), missing="mean", test_fraction=0,
        scale="pooled",
    )  # fmt: skip
    run = muster.simulate(fed, M.ditto(), muster.models.MLP((5,)), rounds=4)
    muster.save(run, "runs/clinics")
    return run


def as_numbers(frame, taken):
    """A table as an exported graph takes it, by what lies next to the graph."""
    columns = []
    for name in taken["columns"]:
        levels = taken["levels"].get(name)
        column = frame[name]
        if levels is not None:
            column = column.replace_strict(levels, range(len(levels)), default=None)
        columns.append(column.cast(pl.Float64).fill_null(np.nan).to_numpy())
    return np.stack(columns, 1)


def test_torchscript_of_a_table_with_categories_and_holes(clinics, capsys):
    assert main(["export", "runs/clinics", "--to", "out/model.ts"]) == 0
    assert "model: out/model.ts (" in capsys.readouterr().out
    known = json.loads(Path("out/model.ts.json").read_text())
    about = known["about"]
    assert about["takes"]["columns"] == ["age", "pain", "sugar"]
    assert about["takes"]["levels"] == {"pain": ["dull", "none", "sharp"]}
    assert about["gives"]["columns"] == ["p_no", "p_yes"]
    assert known["model"]["inputs"]["labels"] == ["no", "yes"]
    new = pl.DataFrame({"sugar": [None, 6.5, 4.0], "age": [55.0, None, 33.0],
                        "pain": ["sharp", None, "dull"]})  # fmt: skip
    graph = torch.jit.load("out/model.ts")
    p = graph(torch.from_numpy(as_numbers(new, about["takes"]))).numpy()
    assert p.dtype == np.float64
    said = clinics.predict(new)
    assert np.ptp(p[:, 0]) > 0.01
    np.testing.assert_allclose(p, said.select("p_no", "p_yes").to_numpy(), atol=1e-6)
    clinics.export("out/south.ts", client="south")
    own = torch.jit.load("out/south.ts")(torch.from_numpy(as_numbers(new, about["takes"])))
    expected = clinics.predict(new, client="south").select("p_no", "p_yes").to_numpy()
    np.testing.assert_allclose(own, expected, atol=1e-6)
    assert np.abs(own.numpy() - p).max() > 1e-4


def test_a_state_dict_with_its_preparation_next_to_it(clinics):
    assert clinics.export("model.pt") == Path("model.pt")
    state = torch.load("model.pt", weights_only=True)
    module = clinics.model()
    for p in module.parameters():
        nn.init.zeros_(p)
    module.load_state_dict(state)
    recipe = json.loads(Path("model.pt.json").read_text())["model"]
    inputs = muster.federation.Inputs.from_dict(recipe["inputs"])
    x = inputs.transform(np.array([[55.0, 2.0, np.nan]]))
    p = torch.softmax(module(torch.from_numpy(x)), 1)[0].tolist()
    new = pl.DataFrame({"age": [55.0], "pain": ["sharp"], "sugar": [None]})
    assert p == pytest.approx(clinics.predict(new).row(0)[2:], abs=1e-6)


@pytest.mark.parametrize("kind", sorted(tasks.TASKS))
def test_every_task_says_the_same_elsewhere(kind, tmp_path):
    fed = tasks.of(kind)
    run = muster.simulate(fed, M.fedavg(), tasks.model_of(kind), rounds=2, dtype="float64",
                          task=tasks.TASKS[kind][0])  # fmt: skip
    run.export(tmp_path / "m.ts")
    x = fed.test.client(1)[0]
    answers = torch.jit.load(tmp_path / "m.ts")(x).numpy()
    names = json.loads((tmp_path / "m.ts.json").read_text())["about"]["gives"]["columns"]
    said = run.predict(x.numpy())
    assert answers.shape == (len(x), len(names))
    if kind == "next_token":
        assert (answers.argmax(1) == said["prediction"].to_numpy()).all()
        np.testing.assert_allclose(answers.max(1), said["p"], atol=1e-6)
        assert names[3] == "p_3"
    else:
        np.testing.assert_allclose(answers, said.select(names).to_numpy(), atol=1e-6)


def test_pixels_go_in_as_bytes(tmp_path):
    draw = np.random.default_rng(0)
    clients = [(draw.integers(0, 256, (8, 1, 4, 4), np.uint8), np.arange(8) % 2) for _ in range(2)]
    fed = muster.Federation.from_arrays(clients)
    run = muster.simulate(fed, M.fedavg(), muster.models.CNN(), rounds=1)
    run.export(tmp_path / "m.ts")
    x = clients[0][0]
    p = torch.jit.load(tmp_path / "m.ts")(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(p, run.predict(x).select("p_0", "p_1").to_numpy(), atol=1e-6)


class Counting(nn.Module):
    """Its answers go by how many rows there are, which a trace cannot know."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 1)

    def forward(self, x):
        return self.inner(x) * (1.0 if int(x.shape[0]) < 4 else 2.0)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_what_cannot_be_is_one_line(clinics, tmp_path, capsys):
    fed = tasks.of("regression")
    run = muster.simulate(fed, M.fedavg(), Counting(), rounds=1, task=muster.tasks.regression())
    with pytest.raises(muster.MusterError, match="answers otherwise on others"):
        run.export(tmp_path / "m.ts")
    assert not (tmp_path / "m.ts").exists()
    for line, message in (
        (["runs/clinics"], "export: give a run and a file"),
        (["runs/clinics", "--to", "model.h5"], "its ending says the format: .pt (a state_dict)"),
        (["runs/none", "--to", "model.ts"], "runs/none: no run here"),
    ):
        assert main(["export", *line]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_onnx_without_its_packages_says_what_to_install(clinics, monkeypatch):
    def missing(*given, **more):
        raise ModuleNotFoundError("No module named 'onnxscript'", name="onnxscript")

    monkeypatch.setattr(export.onnx, "export", missing)
    with pytest.raises(muster.MusterError, match=r"onnxscript is not installed.*muster-fl\[onnx\]"):
        clinics.export("model.onnx")


@pytest.mark.filterwarnings("ignore")
def test_onnx_says_the_same(clinics):
    pytest.importorskip("onnxscript", reason="the extra onnx")
    runtime = pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
    clinics.export("model.onnx")
    taken = json.loads(Path("model.onnx.json").read_text())["about"]["takes"]
    new = pl.DataFrame({"sugar": [None, 6.5, 4.0, 2.0], "age": [55.0, None, 33.0, 90.0],
                        "pain": ["sharp", None, "dull", "none"]})  # fmt: skip
    session = runtime.InferenceSession("model.onnx")
    (p,) = session.run(None, {"rows": as_numbers(new, taken)})
    said = clinics.predict(new).select("p_no", "p_yes").to_numpy()
    np.testing.assert_allclose(p, said, atol=1e-6)
    assert not Path("model.onnx.data").exists()


def test_what_may_not_be_missing_gets_no_answer_elsewhere_either(tmp_path):
    rows = "".join(f"{i},{i % 3},{i % 2}\n" for i in range(20))
    (tmp_path / "t.csv").write_text("a,b,label\n" + rows)
    fed = muster.Federation.from_folder(tmp_path / "t.csv", scale="pooled")
    run = muster.simulate(fed, M.fedavg(), muster.models.Softmax(), rounds=1)
    graph = torch.jit.load(run.export(tmp_path / "model.ts"))
    x = np.array([[4.0, 1.0], [np.nan, 1.0]])
    assert graph(torch.from_numpy(x)).isfinite().all(1).tolist() == [True, False]
    with pytest.raises(muster.MusterError, match="column 'a', row 2: nan is not finite"):
        run.predict(x)
