"""Heart disease at four hospitals, as one table and as the official files, on made-up patients; the
real ones where they are at hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import muster
from muster.data.sets import heart
from muster.data.sources.patients import COLUMNS, HOSPITALS, TABLE
from small_data import SHARED, shared

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
    layouts = tuple(replace(ways, shapes={}, sha256="") for ways in heart.HEART.layouts)
    monkeypatch.setattr(heart, "HEART", replace(heart.HEART, layouts=layouts))
    draw = np.random.default_rng(0)
    table, official = tmp_path / "table", tmp_path / "official"
    table.mkdir()
    official.mkdir()
    lines = [",".join(("hospital", *COLUMNS))]
    for name in HOSPITALS:
        rows = [patient(draw) for _ in range(24)]
        lines += [",".join([name, *row]) for row in rows]
        text = "\n".join(",".join(v or "?" for v in row) for row in rows)
        (official / f"processed.{name}.data").write_text(text)
    (table / TABLE).write_text("\n".join(lines))
    return table, official


def test_both_ways_of_files_give_the_same_hospitals(folders):
    a, b = (muster.data.heart(folder) for folder in folders)
    assert a.names.tolist() == list(HOSPITALS)
    assert a.labels == ("healthy", "ill")
    assert a.priority.tolist() == [True, False, False, False]
    for k in range(4):
        assert a.train.client(k)[0].equal(b.train.client(k)[0])
        assert a.train.client(k)[1].equal(b.train.client(k)[1])
    assert "chol missing" in a.columns, "a cholesterol of 0 was not measured"
    assert "thal=7" in a.columns


def test_what_is_not_there_is_said(tmp_path):
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
    (folders[0] / TABLE).write_text("hospital,age\nva,60\n")
    with pytest.raises(muster.MusterError, match="needs the columns hospital, age, sex"):
        muster.data.heart(folders[0])


@shared(TABLE)
def test_the_real_hospitals_from_file_to_prediction():
    fed = muster.data.heart(SHARED)
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
    said = run.predict(SHARED / TABLE)
    assert len(said) == 920
    assert ((said["p_ill"] > 0.5) == (said["prediction"] == "ill")).all()
