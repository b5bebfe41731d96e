"""FedALIGN and MaxFL on a regression, a binary, a survival and a token task: the same numbers on
both engines and over the grid."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

import numpy as np
import pytest
import torch
from polars.testing import assert_frame_equal
from torch import nn

import muster
import tasks as case
from flower_grid import LocalGrid, Node
from flower_parity import assert_same
from muster.base import registry
from muster.config.experiment import load
from muster.config.network import members_of
from muster.federation import Federation
from muster.flower.local.loopback import write_client
from muster.flower.server import app
from muster.flower.server.app import federate
from muster.models.specs import Spec

KINDS = {
    "regression": {"kind": "regression"},
    "binary": {"kind": "binary", "scores": ["auc", "accuracy"]},
    "survival": "survival",
    "next_token": "next_token",
}
METHODS = {
    "loss": ({"name": "fedalign", "epsilon": 0.2, "warmup": 1}, {}),
    "score": ({"name": "fedalign", "epsilon": 0.3, "warmup": 1, "criterion": "score"}, {}),
    "maxfl": ({"name": "maxfl"}, {"requirement": {"steps": 4, "lr": 0.1}}),
}


@pytest.fixture
def named():
    """The kinds' data and models by name, forgotten afterwards."""
    before = {role: dict(known) for role, known in registry._parts.items()}
    for kind in KINDS:

        def data(seed: int = 0, kind: str = kind) -> Federation:
            return case.of(kind)

        @dataclass(frozen=True)
        class Model:
            of_kind: ClassVar[str] = kind

            def build(self, of, seed):
                return case.model_of(self.of_kind)

        registry.part(Federation, f"rows_{kind}")(data)
        registry.part(Spec, f"model_{kind}")(Model)
    yield
    for role, known in before.items():
        registry._parts[role].clear()
        registry._parts[role].update(known)


def grid_of(fed, folder):
    """A node for each client, with its rows in a file, and the list of them."""
    nodes = []
    for k in range(fed.n):
        write_client(fed, k, folder / f"{k}.npz")
        nodes.append(Node({"data-path": str(folder / f"{k}.npz")}))
    return LocalGrid(nodes), members_of(fed, [node.key.decode() for node in nodes])


@pytest.mark.parametrize(("kind", "method"), [*product(KINDS, METHODS)])
def test_the_same_numbers_on_both_engines_and_over_the_grid(kind, method, named, tmp_path):
    table, more = METHODS[method]
    chosen = load(
        {
            "name": "test", "rounds": 3, "dtype": "float64", "data": f"rows_{kind}",
            "model": f"model_{kind}", "task": KINDS[kind], "method": table,
            "local": {"steps": 3, "batch_size": 5, "lr": 0.1, "optimizer": {
                "kind": "sgd", "momentum": 0.5}},
            "network": {"enrolment_timeout": 0.2, "timeout": 0.3}, "checkpoint_every": 1, **more,
        }
    )  # fmt: skip
    fed, s = chosen.federation(0), chosen.settings
    grid, members = grid_of(fed, tmp_path)
    said = []
    real = federate(grid, replace(chosen, members=members), tmp_path / "run", said.append)
    runs = [
        muster.run_job(fed, chosen.job, compute=replace(s.compute, engine=engine, processes=1))
        for engine in ("stacked", "loop")
    ]
    first = s.task.score_name
    columns = [f"test_{name}" for name in ("loss", *s.task.scores)]
    for run in runs:
        assert_same(real, run)
        assert_frame_equal(
            real.rounds.select(columns), run.rounds.select(columns), abs_tol=1e-9, rel_tol=0
        )
        assert_frame_equal(
            real.final.select(columns), run.final.select(columns), abs_tol=1e-9, rel_tol=0
        )
        assert np.isfinite(run.rounds[f"test_{first}"].to_numpy()).all()
    if "accuracy" not in s.task.scores:
        assert not any("accuracy" in c for c in (*real.rounds.columns, *real.final.columns))
        assert not any("accuracy" in line for line in said)
    assert first in real.clients.columns
    if method != "maxfl":
        others = real.clients.filter(~real.clients["priority"])
        assert len(others), "others were asked"


def build(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 500), nn.Tanh(), nn.Linear(500, 1)).double()
    model[0].requires_grad_(False)
    return model


@dataclass(frozen=True)
class Frozen:
    """A large layer that is frozen, and a small one that trains."""

    def build(self, of, seed):
        return build(0)


def test_frozen_parameters_do_not_cross_the_grid_and_must_agree(named, tmp_path, monkeypatch):
    registry.part(Spec, "frozen")(Frozen)
    chosen = load(
        {
            "name": "test", "rounds": 2, "dtype": "float64", "data": "rows_regression",
            "model": "frozen", "task": "regression", "method": "fedavg",
            "local": {"steps": 2, "lr": 0.01},
            "network": {"enrolment_timeout": 0.2, "timeout": 0.3},
        }
    )  # fmt: skip
    fed = chosen.federation(0)
    grid, members = grid_of(fed, tmp_path)
    listed = replace(chosen, members=members)
    real = federate(grid, listed, tmp_path / "run", lambda line: None)
    run = muster.simulate(
        fed, chosen.jobs["fedavg"].method, Frozen(), 2, chosen.local, task=chosen.settings.task,
        dtype="float64",
    )  # fmt: skip
    assert_same(real, run)
    trains, everything = 8 * 501, 8 * (501 + 2500)
    assert (run.clients["bytes_up"] == trains).all()
    assert ((real.clients["bytes_up"] >= trains) & (real.clients["bytes_up"] < 2 * trains)).all()
    assert real.rounds["bytes_down"][1] < 0.5 * everything * fed.n
    monkeypatch.setattr(app, "as_module", lambda *given: build(1))
    grid, members = grid_of(fed, tmp_path)
    told = []
    with pytest.raises(muster.MusterError, match=r"replies from 0\.00 of the objective's weight"):
        federate(grid, replace(chosen, members=members), tmp_path / "other", told.append)


class Gain(nn.Module):
    """A layer, and one number for all of what it says."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.gain = nn.Linear(4, 1), nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return self.gain * self.layer(x)


@dataclass(frozen=True)
class Gained:
    """One of its parameters is a single number."""

    def build(self, of, seed):
        return Gain().double()


@pytest.mark.parametrize("method", METHODS)
def test_a_parameter_that_is_a_single_number_crosses_the_grid(method, named, tmp_path):
    registry.part(Spec, "gained")(Gained)
    table, more = METHODS[method]
    chosen = load(
        {
            "name": "test", "rounds": 3, "dtype": "float64", "data": "rows_regression",
            "model": "gained", "task": "regression", "method": table,
            "local": {"steps": 2, "lr": 0.01},
            "network": {"enrolment_timeout": 0.2, "timeout": 0.3}, **more,
        }
    )  # fmt: skip
    fed, s = chosen.federation(0), chosen.settings
    grid, members = grid_of(fed, tmp_path)
    real = federate(grid, replace(chosen, members=members), tmp_path / "run", lambda line: None)
    run = muster.simulate(
        fed, chosen.job.method, Gained(), s.rounds, chosen.local, task=s.task,
        dtype="float64",
    )  # fmt: skip
    assert_same(real, run)
    assert real.weights["gain"].shape == ()
    assert real.weights["gain"] != 1.0
