"""Heart disease at four hospitals, as one table and as the official files, on made-up patients; the
real ones as they come with the package."""

from __future__ import annotations

import socket
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import muster
from muster.data.sets import natural_clients
from muster.data.sources.catalogue import EMBEDDED
from muster.data.sources.readers import HEART_COLUMNS, HEART_HOSPITALS, HEART_TABLE
from muster.results.export import build_exportable

SIZES = {"cleveland": 303, "hungarian": 294, "switzerland": 123, "va": 200}
ILL = {"cleveland": 139, "hungarian": 106, "switzerland": 115, "va": 149}


def patient(draw):
    row = [
        draw.integers(30, 75), draw.integers(0, 2), draw.integers(1, 5), 130, draw.choice([0, 220]),
        draw.integers(0, 2), draw.integers(0, 3), 150, 0, 1.5, draw.integers(1, 4),
        draw.choice(["", "0", "1.0"]), draw.choice(["3", "7.0", "6", ""]), draw.integers(0, 5),
    ]  # fmt: skip
    return [str(value) for value in row]


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """The same patients in a table, and in files without a header and with `?`."""
    monkeypatch.setenv("MUSTER_DATA", str(tmp_path / "cache"))
    layouts = tuple(replace(ways, shapes={}, sha256="") for ways in natural_clients.HEART.layouts)
    monkeypatch.setattr(natural_clients, "HEART", replace(natural_clients.HEART, layouts=layouts))
    draw = np.random.default_rng(0)
    table, official = tmp_path / "table", tmp_path / "official"
    table.mkdir()
    official.mkdir()
    lines = [",".join(("hospital", *HEART_COLUMNS))]
    for name in HEART_HOSPITALS:
        rows = [patient(draw) for _ in range(24)]
        lines += [",".join([name, *row]) for row in rows]
        text = "\n".join(",".join(v or "?" for v in row) for row in rows)
        (official / f"processed.{name}.data").write_text(text)
    (table / HEART_TABLE).write_text("\n".join(lines))
    return table, official


def test_both_ways_of_files_give_the_same_hospitals(folders):
    a, b = (muster.data.heart(folder) for folder in folders)
    assert a.names.tolist() == list(HEART_HOSPITALS)
    assert a.labels == ("healthy", "ill")
    assert a.priority.tolist() == [True, False, False, False]
    for k in range(4):
        assert a.train.client(k)[0].equal(b.train.client(k)[0])
        assert a.train.client(k)[1].equal(b.train.client(k)[1])
    assert "chol missing" in a.columns, "a cholesterol of 0 was not measured"
    assert "thal=7" in a.columns


@pytest.mark.filterwarnings("ignore:1 of 1 row unlike training rows")  # a pulse of 1
def test_what_was_not_measured_is_missing_in_training_and_in_new_patients(folders, tmp_path):
    table = folders[0] / HEART_TABLE
    lines = table.read_text().splitlines()
    cells = lines[1].split(",")
    cells[HEART_COLUMNS.index("trestbps") + 1] = cells[HEART_COLUMNS.index("thal") + 1] = "0"
    table.write_text("\n".join([lines[0], ",".join(cells), *lines[2:]]))
    fed = muster.data.heart(folders[0])
    assert fed.encoder.levels["thal"] == ("3", "6", "7"), "0 is no result of a scan"
    run = muster.simulate(
        fed, muster.methods.fedavg(), muster.models.Linear(), 3, task=muster.tasks.binary()
    )
    person = dict.fromkeys(HEART_COLUMNS[:-1], "1")
    zeros = person | {"trestbps": "0", "chol": "0.0", "thal": "0"}
    blank = person | {"trestbps": "", "chol": "", "thal": ""}
    said = [run.predict({k: [v] for k, v in who.items()})["p_ill"][0] for who in (zeros, blank)]
    assert said[0] == said[1]
    muster.save(run, tmp_path / "run")
    again = muster.load(tmp_path / "run").predict({k: [v] for k, v in zeros.items()})
    assert again["p_ill"][0] == said[0]
    place = {"cp": 0.0, "restecg": 1.0, "slope": 0.0}
    row = torch.tensor([[place.get(c, float(zeros[c])) for c in HEART_COLUMNS[:-1]]]).double()
    row[0, -1] = torch.nan  # of thal there are places of levels
    exported = build_exportable(run.model(), run.recipe)
    assert float(exported(row)[0, 1]) == pytest.approx(said[0], abs=1e-6)


def test_official_files_may_end_in_empty_lines_and_say_nothing_by_minus_9(folders):
    _, official = folders
    before = muster.data.heart(official)
    for name in HEART_HOSPITALS:
        file = official / f"processed.{name}.data"
        file.write_text(file.read_text().replace("?", "-9") + "\n\n \n")
    after = muster.data.heart(official)
    for k in range(4):
        assert before.train.client(k)[0].equal(after.train.client(k)[0])


def test_missing_files_are_named(tmp_path):
    needs = (
        r"Heart disease \(heart_uci\.csv or processed\.cleveland\.data and 3 more\) is not in .*"
    )
    with pytest.raises(muster.MusterError, match=needs + "run `muster data get heart`"):
        muster.data.heart(tmp_path)


def test_other_files_of_that_name_are_refused(folders, tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("MUSTER_DATA", str(tmp_path / "cache"))
    with pytest.raises(muster.MusterError, match=r"cleveland has shape \(24, 14\).*\(303, 14\)"):
        muster.data.heart(folders[0])
    (folders[0] / HEART_TABLE).write_text("hospital,age\nva,60\n")
    with pytest.raises(muster.MusterError, match="needs the columns hospital, age, sex"):
        muster.data.heart(folders[0])


def test_the_hospitals_come_with_the_package_without_a_network(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_DATA", str(tmp_path / "none"))
    monkeypatch.setattr(socket, "socket", None)
    assert muster.data.heart().names.tolist() == list(HEART_HOSPITALS)
    notice = (EMBEDDED / HEART_TABLE).with_suffix(".txt").read_text()
    for needed in ("CC BY 4.0", "10.24432/C52P4X", "Janosi", "Steinbrunn", "Pfisterer", "Detrano"):
        assert needed in notice
    shipped = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    patterns = shipped["tool"]["setuptools"]["package-data"]["muster"]
    for file in (HEART_TABLE, "heart_uci.txt"):
        assert any(Path("data/sets", file).match(pattern) for pattern in patterns)


def test_the_real_hospitals_from_file_to_prediction():
    fed = muster.data.heart()
    sizes = dict(zip(fed.names.tolist(), fed.train.sizes + fed.test.sizes, strict=True))
    assert sizes == SIZES
    ill = {
        name: sum(int(d.client(k)[1].sum()) for d in (fed.train, fed.test))
        for k, name in enumerate(fed.names.tolist())
    }
    assert ill == ILL
    run = muster.simulate(
        fed, muster.methods.fedalign(0.2), muster.models.Linear(), 30,
        muster.Local(steps=5, batch_size=16, lr=0.1), task=muster.tasks.binary(),
    )  # fmt: skip
    assert run.rounds["test_auc"][-1] > 0.8
    said = run.predict(EMBEDDED / HEART_TABLE)
    assert len(said) == 920
    assert ((said["p_ill"] > 0.5) == (said["prediction"] == "ill")).all()
