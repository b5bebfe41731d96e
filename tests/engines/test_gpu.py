"""A GPU against the processor: all engines and methods, to a tolerance (`make test-gpu`).

In float64 the two differ by the order of sums alone, so every decision is the same one. In float32
convolutions may use TF32, and numbers agree to three digits.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import muster
import spread_cases
from helpers import nine_clients

M = muster.methods
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="no CUDA device: torch.cuda.is_available() is False"
    ),
]
# On the loop engine layers draw their own numbers, on a GPU others than on the processor.
DRAWS = {"loop", "loop, own models"}
CASES = {n: c for n, c in {**spread_cases.CASES, **spread_cases.MORE}.items() if n not in DRAWS}


def norm():
    return nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4))


def differ(a, b):
    """The largest difference of two runs: of their weights, and of the losses of their rounds."""
    gaps = [np.abs(a.weights[n] - b.weights[n]).max() for n in a.weights if a.weights[n].size]
    losses = [run.rounds["loss"].drop_nulls().to_numpy() for run in (a, b)]
    gaps.append(np.abs(losses[0] - losses[1]).max(initial=0.0))
    return max(map(float, gaps))


@pytest.mark.parametrize("name", CASES)
def test_every_method_computes_the_same_on_a_gpu(name):
    here, there = (CASES[name](device=device, dtype="float64") for device in ("cpu", "cuda"))
    assert here.clients["admitted"].equals(there.clients["admitted"])
    assert differ(here, there) < 1e-8


@pytest.mark.parametrize("engine", ["stacked", "loop"])
@pytest.mark.parametrize("method", [M.fedavg(), M.scaffold(), M.fedprox(0.1), M.perfedavg()])
def test_both_engines_agree_on_a_gpu(method, engine):
    model = muster.models.MLP((6,))
    how = {"dtype": "float64", "rounds": 3}
    here = spread_cases.go(method, model, **how)
    there = spread_cases.go(method, model, engine=engine, device="cuda", **how)
    assert differ(here, there) < 1e-8


def test_statistics_of_batches_agree_on_a_gpu():
    here, there = (
        spread_cases.go(M.scaffold(), spread_cases.seeded(norm), device=d, dtype="float64")
        for d in ("cpu", "cuda")
    )
    assert there.engine == "loop"
    assert differ(here, there) < 1e-8


@pytest.mark.parametrize("name", ["fedalign by name", "images", "next token"])
def test_in_float32_too(name):
    case = CASES[name]
    here, there = (case(device=d, dtype="float32") for d in ("cpu", "cuda"))
    assert differ(here, there) < 1e-2


def test_a_run_resumes_on_a_gpu(tmp_path):
    whole = spread_cases.go(M.scaffold(m=5), rounds=6, device="cuda", dtype="float64")
    for until in (2, 4, 0):
        run = spread_cases.resume(tmp_path, 6, until, device="cuda", dtype="float64")
    assert differ(whole, run) < 1e-8


def test_random_numbers_of_the_caller_stay_as_they_are():
    model = spread_cases.seeded(spread_cases.norm)
    before = torch.cuda.get_rng_state()
    spread_cases.go(M.fedavg(), model, fed=nine_clients(), device="cuda")
    assert torch.equal(before, torch.cuda.get_rng_state())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="nccl needs a GPU for each rank")
def test_two_ranks_on_two_gpus(tmp_path, monkeypatch):
    names = ["scaffold", "maxfl, requirement, tuned", "images", "nobody joins"]
    spread_cases.small_portions(monkeypatch.setattr)
    found, _ = spread_cases.launch(tmp_path, 2, *names, device="cuda")
    for name in names:
        expected = spread_cases.digest(CASES[name](device="cuda"))
        assert {mine[name]["digest"] for mine in found} == {expected}, name
