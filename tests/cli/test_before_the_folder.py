"""A bad setting is one line, found before `runs/NAME` is made and before other methods have run."""

from __future__ import annotations

from pathlib import Path

import pytest

import muster
from muster.cli.main import main

SHORT = ["--data", "digits", "--rounds", "1", "--seeds", "1"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ["--method", "maxfl"],
            "requirement: maxfl needs each client's rho_k; give requirement.st",
        ),
        (["--participation", "flexible"], "requirement: participation needs each client's rho_k"),
        (["--device", "mps"], "unknown device 'mps'; known: cpu, cuda"),
        (["--device", "cuda:7"], "device: 'cuda:7'"),
        (["--seed", str(2**64)], f"seed: {2**64}; allowed: whole numbers from 0 to {2**63 - 1}"),
        (["--seeds", f"[{2**64}]"], f"seeds: {2**64}; allowed: whole numbers from 0 to"),
        (["--model", "mlp", "--model.hidden", "[0]"], "hidden"),
        (["--data.clients", "9999"], "clients: 9999; allowed: at most one per row, so 1797"),
        (["--method.epsilon", "-1"], "epsilon"),
        (["--attack", "nosuch"], "attack"),
    ],
)
@pytest.mark.parametrize("command", ["run", "compare"])
def test_nothing_is_made(tmp_path, monkeypatch, capsys, command, flags, said):
    monkeypatch.chdir(tmp_path)
    given = [w for pair in zip(SHORT[::2], SHORT[1::2], strict=True) if pair[0] not in flags
             for w in pair]  # fmt: skip
    assert main([command, *given, *flags]) == 2
    error = capsys.readouterr().err
    assert error.startswith("muster: ")
    assert said in error
    assert len(error.splitlines()) == 1
    assert not Path("runs").exists() or not any(Path("runs").iterdir())


def test_the_last_methods_error_does_not_wait_for_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *SHORT, "--method", "fedavg", "--method", "maxfl"]) == 2
    shown = capsys.readouterr()
    assert "maxfl needs" in shown.err
    assert "fedavg, seed" not in shown.out
    fed = muster.data.digits()
    seen = []
    with pytest.raises(muster.MusterError, match="maxfl needs"):
        muster.compare(
            fed, [muster.methods.fedavg(), muster.methods.maxfl()], muster.models.Softmax(), 1,
            on_round=seen.append,
        )  # fmt: skip
    assert seen == []


def test_the_advice_for_a_missing_requirement_works(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = ["--method", "maxfl", "--requirement.steps", "5"]
    assert main(["run", *SHORT, *flags]) == 0
    assert "gm appeal" in capsys.readouterr().out


def test_seeds_beyond_64_bits_from_python():
    for bad in (2**63, -1):
        with pytest.raises(muster.MusterError, match=f"seed: {bad}; allowed"):
            muster.data.digits(seed=bad)
    muster.data.digits(seed=2**63 - 1)
