"""Rows are read once, and again as soon as a file of theirs is another one."""

import os

import numpy as np
import pytest

from muster.base.errors import MusterError
from muster.config.network import Network
from muster.flower.client import node_data
from muster.flower.client.node_data import MAX_CACHED, read_cached


@pytest.fixture
def readings(monkeypatch):
    monkeypatch.setattr(node_data, "_cache", {})
    return []


def owner(path):
    return {"data-path": str(path), "test-fraction": 0.2}


def reader(path, readings):
    def read():
        readings.append(path.name)
        return object()

    return read


def test_the_same_question_of_the_same_file_is_answered_from_what_was_read(tmp_path, readings):
    file = tmp_path / "own.npz"
    np.savez(file, x=np.zeros((3, 2)))
    read = reader(file, readings)
    first = read_cached(owner(file), ("terms", 0), read)
    assert read_cached(owner(file), ("terms", 0), read) is first
    assert len(readings) == 1


@pytest.mark.parametrize("change", ["rows", "touched", "manifest", "seed", "owner"])
def test_whatever_changes_is_read_again(tmp_path, readings, change):
    file, config, asked = tmp_path / "own.npz", owner(tmp_path / "own.npz"), ("terms", 0)
    np.savez(file, x=np.zeros((3, 2)))
    read = reader(file, readings)
    read_cached(config, asked, read)
    if change == "rows":
        np.savez(file, x=np.zeros((4, 2)))
    elif change == "touched":
        os.utime(file, ns=(1, 1))
    elif change == "manifest":
        (tmp_path / "own.manifest.toml").write_text("test_fraction = 0.5\n")
    elif change == "seed":
        asked = ("terms", 1)
    else:
        config = config | {"test-fraction": 0.5}
    read_cached(config, asked, read)
    assert len(readings) == 2


def test_an_image_more_in_a_folder_is_seen(tmp_path, readings):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").write_bytes(b"1")
    read = reader(tmp_path, readings)
    read_cached(owner(tmp_path), "terms", read)
    read_cached(owner(tmp_path), "terms", read)
    (tmp_path / "cat" / "2.png").write_bytes(b"2")
    read_cached(owner(tmp_path), "terms", read)
    assert len(readings) == 2


def test_an_error_is_not_kept(tmp_path, readings):
    def fails():
        readings.append("failed")
        raise MusterError("no such file")

    for _ in range(2):
        with pytest.raises(MusterError, match="no such file"):
            read_cached(owner(tmp_path / "none.npz"), "terms", fails)
    assert len(readings) == 2


def test_no_more_than_a_few_owners_rows_are_held(tmp_path, readings):
    for k in range(MAX_CACHED + 5):
        read_cached(owner(tmp_path / f"{k}.npz"), "terms", reader(tmp_path / f"{k}.npz", readings))
    assert len(node_data._cache) == MAX_CACHED


def test_a_requirement_may_be_below_0_and_a_share_may_not(tmp_path):
    """Losses of counts may be negative."""
    file = tmp_path / "own.npz"
    np.savez(file, x=np.random.default_rng(0).normal(size=(8, 2)), y=np.arange(8) % 2)
    config = {"data-path": str(file), "test-fraction": 0.25, "requirement": "-1.5"}
    fed = node_data.read_own_data(config, Network(), 0)
    assert fed.requirement.tolist() == [-1.5]
    with pytest.raises(MusterError, match="requirement: 'inf'; give a finite number"):
        node_data.read_own_data(config | {"requirement": "inf"}, Network(), 0)
    with pytest.raises(MusterError, match="test-fraction: -1; give a number from 0"):
        node_data.read_own_data(config | {"test-fraction": -1}, Network(), 0)


def test_ids_are_not_sent_as_levels(tmp_path):
    file = tmp_path / "own.csv"
    rows = "".join(f"p{i},{i % 7},{i % 2}\n" for i in range(40))
    file.write_text(f"patient_id,age,label\n{rows}")
    network = Network(columns=("patient_id", "age"), categories=("patient_id",))
    with pytest.raises(MusterError, match="has 40 levels in 40 rows: it identifies rows"):
        node_data.read_own_statistics({"data-path": str(file)}, network, 0)
