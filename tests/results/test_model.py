"""The model a run leaves: as a module, for a client, for new rows; in memory and from disk."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

import muster
from muster.results import model

M = muster.methods
WORK = muster.Local(steps=3, batch_size=8, lr=0.1)


@pytest.fixture(scope="module")
def fed():
    return muster.data.digits(clients=5, priority=2)


def of(fed, method=None, model=None, **more):
    how = {"rounds": 3, "local": WORK, **more}
    return muster.simulate(fed, method or M.fedavg(), model or muster.models.MLP((6,)), **how)


class Net(nn.Module):
    """A module of the user's, with weights under two names and a counter that is no float."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 64, bias=False)
        self.norm = nn.BatchNorm1d(64)
        self.again = self.first
        self.last = nn.Linear(64, 10)

    def forward(self, x):
        return self.last(self.again(self.norm(self.first(x))))


def measured(module, fed, k):
    """A client's training loss and accuracy, by a few lines of numpy."""
    x, y = fed.train.client(k)
    with torch.no_grad():
        z = module(x.to(next(module.parameters()).dtype)).double().numpy()
    z -= z.max(1, keepdims=True)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    y = y.numpy()
    return -np.log(p[np.arange(len(y)), y]).mean(), (p.argmax(1) == y).mean()


@pytest.mark.parametrize("model", [muster.models.Softmax(), muster.models.MLP((6,)), Net()])
def test_the_module_is_the_one_that_was_measured(fed, model, tmp_path):
    run = of(fed, model=model)
    muster.save(run, tmp_path / "r")
    back = muster.load(tmp_path / "r")
    build = Net if isinstance(model, Net) else None
    for module in (run.model(), back.model(build=build)):
        assert not module.training
        for k in range(fed.n):
            loss, accuracy = measured(module, fed, k)
            assert loss == pytest.approx(run.final["train_loss"][k], abs=1e-5)
            assert accuracy == pytest.approx(run.final["train_accuracy"][k], abs=1e-9)
        for name, t in module.state_dict().items():
            assert np.array_equal(t.numpy(), run.weights[name])
    changed = run.model()
    with torch.no_grad():
        next(changed.parameters()).zero_()
    assert (next(run.model().parameters()) != 0).any()


@pytest.mark.parametrize("method", [M.ditto(), M.pfedme(), M.local()], ids=lambda m: m.name)
def test_clients_own_models_are_kept(fed, method, tmp_path):
    run = of(fed, method, dtype="float64")
    muster.save(run, tmp_path / "r")
    back = muster.load(tmp_path / "r")
    share = fed.objective
    losses = [measured(run.model(client=k), fed, k)[0] for k in range(fed.n)]
    column = "loss" if method.serves == "own" else "own_loss"
    assert share @ losses == pytest.approx(run.rounds[column][-1], abs=1e-9)
    assert len({round(loss, 9) for loss in losses}) == fed.n, "each has another"
    for k in range(fed.n):
        assert measured(back.model(client=str(k)), fed, k)[0] == losses[k]


def test_a_clients_own_model_under_two_names(fed):
    run = of(fed, M.ditto(), Net(), dtype="float64")
    share = fed.objective
    losses = [measured(run.model(client=k), fed, k)[0] for k in range(fed.n)]
    assert share @ losses == pytest.approx(run.rounds["own_loss"][-1], abs=1e-9)
    module = run.model(client=1)
    assert module.first is module.again


def test_own_models_too_large_to_keep_are_a_warning(fed, monkeypatch):
    monkeypatch.setattr("muster.run.training_loop.LARGE", 1)
    with pytest.warns(muster.MusterWarning, match="not saved with the results"):
        run = of(fed, M.ditto())
    with pytest.raises(muster.MusterError, match="ditto has no clients' own models"):
        run.model(client=0)


def test_an_older_runs_own_models_are_not_taken_for_this_ones(fed, tmp_path):
    muster.save(of(fed, M.ditto()), tmp_path / "r")
    assert (tmp_path / "r" / "own.safetensors").exists()
    muster.save(of(fed), tmp_path / "r")
    assert muster.load(tmp_path / "r").own is None


def test_damage_to_the_recipe_is_noticed(fed, tmp_path):
    muster.save(of(fed), tmp_path / "r")
    file = tmp_path / "r" / "model.json"
    file.write_text(file.read_text().replace("64", "63"))
    with pytest.raises(muster.MusterError, match=r"model\.json is not what was written"):
        muster.load(tmp_path / "r")


def test_a_run_saved_before_recipes(fed):
    run = replace(of(fed), recipe=None)
    assert run.labels is None
    spec_built = muster.models.MLP((6,)).build(fed, 1)
    assert measured(run.model(build=spec_built), fed, 0)[0] == pytest.approx(
        run.final["train_loss"][0], abs=1e-5
    )
    for ask in (run.model, lambda: run.predict(np.zeros((1, 64)), build=spec_built)):
        with pytest.raises(muster.MusterError, match="earlier version"):
            ask()


def test_an_interrupted_run_has_its_model_too(fed):
    def stop(row):
        raise KeyboardInterrupt

    with pytest.raises(muster.Interrupted) as stopped:
        of(fed, on_round=stop)
    assert isinstance(stopped.value.run.model(), nn.Module)


@pytest.mark.parametrize(("ask", "message"), [
    (lambda run, back: back.model(), r"trained .*:Net, your own code.*build="),
    (lambda run, back: back.model(build=lambda: nn.Linear(64, 10)), "in both"),
    (lambda run, back: back.model(build=3), "build: int; give an nn.Module"),
    (lambda run, back: back.model(build=lambda: 1 / 0), "build: cannot be called"),
    (lambda run, back: run.model(client=0), "fedavg has no clients' own models"),
    (lambda run, back: run.model(client=5), "client: no '5'; allowed: 0 to 4"),
    (lambda run, back: run.model(client="north"), "client: no 'north'"),
    (lambda run, back: run.predict(np.zeros((2, 63))), r"takes numbers of shape \(rows, 64\)"),
    (lambda run, back: run.predict(pl.DataFrame({"a": [1]})), "rows without column names"),
    (lambda run, back: run.predict("no.csv"), "no.csv: no such file"),
    (lambda run, back: run.predict(np.zeros((2, 64)), scale="none"), "leave it out"),
])  # fmt: skip
def test_what_cannot_be_is_one_line(fed, tmp_path, ask, message):
    run = of(fed, model=Net(), rounds=1)
    muster.save(run, tmp_path / "r")
    with pytest.raises(muster.MusterError, match=message) as error:
        ask(run, muster.load(tmp_path / "r"))
    assert "\n" not in str(error.value)


def test_a_method_without_a_common_model_asks_whose(fed):
    with pytest.raises(muster.MusterError, match=r"local has no common model.*client="):
        of(fed, M.local()).model()


def test_other_shapes_are_one_line(fed):
    with pytest.raises(muster.MusterError, match="not the module that was trained") as error:
        of(fed).model(build=muster.models.MLP((7,)).build(fed, 0))
    assert "\n" not in str(error.value)


def test_a_client_that_never_trained_has_no_model():
    own = model.ClientModels(np.array([0, 2]), {"w": np.arange(2.0)})
    assert own.get(2, "2")["w"] == 1.0
    with pytest.raises(muster.MusterError, match="client east: has not trained"):
        own.get(1, "east")


def test_the_runs_of_a_comparison_have_their_models(fed, tmp_path):
    how = {"rounds": 2, "seeds": 1, "local": WORK, "folder": tmp_path / "c"}
    both = muster.compare(fed, [M.ditto(), M.fedavg()], muster.models.Softmax(), **how)
    back = muster.load(tmp_path / "c")
    x = fed.train.client(0)[0]
    for done in (both, back, muster.load_runs(tmp_path / "c")):
        assert torch.equal(done["ditto"][0].model(client=1)(x), both["ditto"][0].model(client=1)(x))
        assert torch.equal(done["fedavg"][0].model()(x), both["fedavg"][0].model()(x))
    with pytest.raises(muster.MusterError, match="fedavg has no"):
        back["fedavg"][0].model(client=1)


def test_answers_are_the_softmax_of_the_outputs(fed):
    run = of(fed, model=muster.models.Softmax(), dtype="float64", rounds=6)
    x, y = fed.train.client(3)
    x = x.double().numpy()
    w, b = run.weights.values()
    z = x @ w.T + b
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    said = run.predict(x)
    assert said.columns == ["row", "prediction", *(f"p_{c}" for c in range(10))]
    np.testing.assert_allclose(said.select(pl.col("^p_.*$")).to_numpy(), p, atol=1e-12)
    assert said["prediction"].to_list() == [str(c) for c in p.argmax(1)]
    assert len(set(said["prediction"])) > 1
    assert said["row"].to_list() == list(range(1, len(y) + 1))
    # Images that stand are the same rows.
    assert run.predict(x.reshape(-1, 1, 8, 8)).equals(said)
    many = np.concatenate([x] * 100)
    assert run.predict(many)["p_3"].to_list() == pytest.approx(said["p_3"].to_list() * 100)
