"""Going on from any round ends in the same bits: for every attack, optimizer, solver and method."""

from __future__ import annotations

import shutil
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

import muster
from helpers import nine_clients, same_bits
from muster.base import durable
from muster.base.registry import kinds
from muster.methods import Method
from muster.parts import Attack, Optimizer, Scaffold, Solver

M, O = muster.methods, muster.optimizers  # noqa: E741
ROUNDS = 3


class Backwards(nn.Module):
    """A module whose parameters do not lie in the order of their names."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.z, self.m, self.a = nn.Linear(5, 6), nn.Linear(6, 3), nn.Linear(3, 4)

    def forward(self, x):
        return self.a(torch.tanh(self.m(torch.tanh(self.z(x)))))


def with_fields(part, **wanted):
    """A part with those of these settings that it has."""
    known = {f.name for f in fields(part)} if is_dataclass(part) else set()
    return part(**{name: value for name, value in wanted.items() if name in known})


KEPT = {
    name: with_fields(kind, keep=True, clip=0.2, momentum=0.9, weight_decay=0.01)
    for name, kind in kinds(Optimizer).items()
}


def solved_by(kind):
    solver = kind()
    step = {"step": Scaffold()} if solver.needs else {}
    return Method(f"by {kind.__name__}", solver=solver, **step)


CASES = {
    **{
        f"attack {name}": {
            "attack": kind(fraction=0.3),
            "method": M.fedalign(5.0, warmup=1, trust=trust),
            "local": {"optimizer": O.sgd(clip=0.3)},
        }
        for name, kind in kinds(Attack).items()
        for trust in [name in ("alie", "inflate_and_noise", "liars", "mimic")]
    },
    **{
        f"optimizer {name}, {engine}": {
            "method": M.scaffold(m=6) if engine == "stacked" else M.ditto(0.5, m=6),
            "local": {"optimizer": optimizer},
            "engine": engine,
        }
        for name, optimizer in KEPT.items()
        for engine in ("stacked", "loop")
    },
    **{
        f"solver {name}": {
            "method": solved_by(kind),
            "local": {"optimizer": KEPT["adam"]},
            "attack": muster.parts.InflateAndNoise(0.3),
        }
        for name, kind in kinds(Solver).items()
    },
    **{
        f"method {name}": {"method": kind(), "local": {"optimizer": KEPT["sgd"]}}
        for name, kind in kinds(Method).items()
        if kind.__module__.startswith("muster.")
    },
    "a robust step, trusting nobody": {
        "method": replace(M.fedalign(5.0, trust=True), step=muster.parts.CentredClipping()),
        "attack": muster.parts.InflateAndNoise(0.3),
    },
}


@pytest.mark.parametrize("name", CASES)
def test_a_run_cut_after_any_round_ends_in_the_same_bits(name, tmp_path, monkeypatch):
    monkeypatch.setattr(durable, "sync", lambda path: None)  # no power goes here
    case = {"engine": "stacked", "processes": 1, **CASES[name]}
    local = muster.Local(steps=2, batch_size=4, lr=0.1, **case.pop("local", {}))
    fed = replace(nine_clients(), requirement=np.full(9, 1.2))

    def run(folder, **more):
        return muster.simulate(
            fed, model=Backwards(), rounds=ROUNDS, local=local, checkpoint=folder,
            checkpoint_every=1, **case, **more,
        )  # fmt: skip

    def keep(row):
        place = f"round-{row['round']:08d}"
        shutil.copytree(tmp_path / "whole" / place, tmp_path / str(row["round"]) / place)

    whole = run(tmp_path / "whole", on_round=keep)
    assert whole.facts["moved"], "it went somewhere"
    for cut in range(1, ROUNDS):
        again = run(tmp_path / str(cut), resume=True)
        assert same_bits(whole, again), f"cut after round {cut}"
        assert list(again.weights) == list(whole.weights)
        # The model, what the server remembers, and what every client does.
        whole_end, end = (
            (tmp_path / of / f"round-{ROUNDS:08d}" / "s.safetensors").read_bytes()
            for of in ("whole", str(cut))
        )
        assert whole_end == end, f"cut after round {cut}"
