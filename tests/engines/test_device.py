"""The device path, on a GPU that is not there: devices do not mix, and steps wait for nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import muster
import spread_cases
from fake_device import FakeTensor, fake_gpu
from muster.base import registry
from muster.engines.compute import Compute

M = muster.methods
ALL = {**spread_cases.CASES, **spread_cases.MORE}
LONG = {"assist", "fedalign, trust"}  # seconds here, where every operation is looked at
EARLY = [name for name in spread_cases.CASES if name not in LONG]


def compare_with_the_processor(name):
    """A case on the fake GPU computes what it computes on the processor."""
    expected = spread_cases.digest(ALL[name]())
    with fake_gpu() as gpu:
        run = ALL[name](device="cuda")
    assert spread_cases.digest(run) == expected
    assert gpu.total("in") > 0 < gpu.total("out"), "it was really used"


@pytest.mark.parametrize("name", EARLY)
def test_no_tensor_is_left_on_the_other_device(name):
    compare_with_the_processor(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ALL if name not in EARLY])
def test_no_tensor_of_any_method_is_left_on_the_other_device(name):
    compare_with_the_processor(name)


@pytest.mark.slow
@pytest.mark.parametrize("role", [muster.parts.Attack, muster.parts.Step])
def test_attacks_and_defences_leave_nothing_on_the_other_device(role):
    tried = 0
    for build in registry.kinds(role).values():
        try:
            part = build()
            method = replace(M.fedavg(), **({"step": part} if role is muster.parts.Step else {}))
        except (TypeError, muster.MusterError):
            continue  # it needs a number, or another solver: a method above has it
        how = {"rounds": 2, **({"attack": part} if role is muster.parts.Attack else {})}
        expected = spread_cases.digest(spread_cases.go(method, **how))
        with fake_gpu():
            run = spread_cases.go(method, device="cuda", **how)
        assert spread_cases.digest(run) == expected, part
        tried += 1
    assert tried > 10


def test_private_rounds_take_a_device():
    private = muster.privacy.Gaussian(clip=1.0, epsilon=4.0, delta=1e-3)
    with fake_gpu():
        assert spread_cases.go(M.fedavg(), privacy=private, device="cuda", rounds=1).complete


def test_the_fake_gpu_refuses_what_a_gpu_refuses():
    """Otherwise the tests above would show nothing."""
    here = torch.ones(3)
    with fake_gpu():
        there = here.to("cuda:0")
        assert isinstance(there, FakeTensor)
        assert str(there.device) == "cuda:0"
        with pytest.raises(RuntimeError, match="tensors on cuda:0 and cpu"):
            there + here
        with pytest.raises(TypeError, match="can't convert cuda:0"):
            there.numpy()
        with pytest.raises(RuntimeError, match="expected a cuda generator"):
            there.bernoulli_(0.5, generator=torch.Generator())
        assert torch.equal((there + 1).cpu(), here + 1)


@pytest.mark.parametrize(
    ("method", "model"),
    [(M.fedavg(), spread_cases.MLP), (M.fedprox(0.1), spread_cases.MLP), (M.scaffold(), "norm")],
    ids=["fused", "drift", "loop"],
)
def test_more_steps_mean_no_more_copies_and_no_more_waiting(method, model):
    """Rows go to the device once for all steps of a round; nothing comes back before the end."""
    found = []
    for steps in (2, 5):
        module = spread_cases.seeded(spread_cases.norm) if model == "norm" else model
        with fake_gpu() as gpu:
            local = replace(spread_cases.LOCAL, steps=steps)
            spread_cases.go(method, module, rounds=2, device="cuda", local=local)
        found.append(gpu.copies)
    assert found[0] == found[1]


def test_dropout_waits_for_nothing_either():
    """Its numbers are drawn on the processor: one copy to the device a step and layer."""
    found = []
    for steps in (2, 9):
        with fake_gpu() as gpu:
            local = replace(spread_cases.LOCAL, steps=steps)
            model = spread_cases.seeded(spread_cases.drop)
            spread_cases.go(M.fedavg(), model, rounds=1, device="cuda", local=local)
        found.append((gpu.total("in"), gpu.total("out", "wait")))
    assert found[0][1] == found[1][1]
    assert found[1][0] - found[0][0] == 9 - 2


@pytest.mark.parametrize("method", [M.fedalign(0.5, trust=True), M.scaffold(m=5), M.afl()])
def test_a_run_resumes_on_the_device(tmp_path, method):
    whole = spread_cases.go(method, rounds=4)
    with fake_gpu():

        def stop(row):
            if row["round"] == 2:
                raise KeyboardInterrupt

        how = {"rounds": 4, "device": "cuda", "checkpoint": tmp_path, "checkpoint_every": 1}
        with pytest.raises(muster.Interrupted):
            spread_cases.go(method, on_round=stop, **how)
        run = spread_cases.go(method, resume=True, **how)
    assert spread_cases.digest(run) == spread_cases.digest(whole)


def test_one_place_says_where_tensors_are(monkeypatch):
    assert Compute().place() == torch.device("cpu")
    with fake_gpu():
        assert Compute(device="cuda").place() == torch.device("cuda:0")
        with pytest.raises(muster.MusterError, match="'cuda:1'; allowed: cpu, cuda:0 to cuda:0"):
            Compute(device="cuda:1").place()
        for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1",
                            "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "x",
                            "MASTER_PORT": "1"}.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        with pytest.raises(muster.MusterError, match="spread needs one for each process"):
            Compute("spread", device="cuda").place()
