"""The example scripts run as their first lines say."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest

import muster
from small_data import here

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
@here("fmnist")
def test_the_appeal_study_runs(tmp_path):
    script = ROOT / "examples" / "appeal_fmnist.py"
    done = subprocess.run(
        [sys.executable, str(script), "--quick"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "gm_appeal_unseen" in done.stdout


def test_it_prints_which_hospital_gains_from_which(tmp_path, monkeypatch, capsys):
    script = str(ROOT / "examples" / "heart.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script, "--quick"])
    runpy.run_path(script, run_name="__main__")
    said = capsys.readouterr().out
    rows = re.findall(r"^(cleveland|hungarian|switzerland|va) .*", said, re.MULTILINE)
    assert len(rows) == 4
    assert len(re.findall(r"[+-]\d\.\d{3} ± \d\.\d{3}", said)) == 16
    assert "chance of being ill 0." in said


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_guides_hospitals_are_what_the_example_says():
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "heart.py")],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert "\n".join(lines) in (ROOT / "docs" / "guide.md").read_text()


@pytest.mark.slow
@pytest.mark.skipif(
    not all(find_spec(name) for name in ("peft", "transformers", "flwr")),
    reason="needs peft, transformers and Flower: pip install 'muster-fl[lora,flower]'",
)
def test_adapters_alone_travel(tmp_path):
    script = ROOT / "examples" / "lora.py"
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    everything, trains = map(
        float,
        re.search(r"a model of ([\d.]+) kB, of which ([\d.]+) kB train", done.stdout).groups(),
    )
    up = [(float(kb), int(n)) for kb, n in re.findall(r"up ([\d.]+) kB from (\d+)", done.stdout)]
    assert len(up) == 8
    # What travels is what trains; over a grid with a head for each array.
    assert all(trains * n * 0.99 <= kb <= trains * n * 1.6 < everything * n / 4 for kb, n in up)
    assert float(done.stdout.split()[-1]) < 1e-6


@pytest.mark.slow
def test_the_hospitals_are_distinguished(tmp_path):
    script = ROOT / "examples" / "hospitals.py"
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "priority only" in done.stdout
    often = dict(re.findall(r"(\w+) +(\d+)% of the rounds", done.stdout))
    assert len(often) == 6
    assert {name for name, share in often.items() if int(share) < 50} == {"airport", "old_town"}
    # What it wrote is data like any other: each file is also a client alone.
    fed = muster.Federation.from_folder(tmp_path / "hospitals")
    assert fed.names[fed.priority].tolist() == ["north", "south"]
    assert fed.labels == ("benign", "malignant")
    patients = pl.concat([pl.read_csv(f) for f in (tmp_path / "hospitals").glob("*.csv")])
    assert len(patients) == fed.train.sizes.sum() + fed.test.sizes.sum()
    assert len(patients.drop("diagnosis").unique()) == len(patients), "nobody is dealt twice"
    alone = muster.Federation.from_folder(tmp_path / "hospitals" / "north.csv")
    assert alone.train.sizes[0] == fed.train.sizes[fed.names.tolist().index("north")]
