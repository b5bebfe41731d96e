"""What an npz file says of itself is held against what is there before anything is read."""

from __future__ import annotations

import io
import os
import zipfile

import numpy as np
import pytest

from muster.base.errors import MusterError
from muster.data import from_folder
from muster.data.files.npz import load_npz


def saved(path, **arrays):
    """An npz file of arrays, or of the bytes that are given for one."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, array in arrays.items():
            raw = io.BytesIO()
            if not isinstance(array, bytes):
                np.save(raw, array)
            file.writestr(f"{name}.npy", array if isinstance(array, bytes) else raw.getvalue())
    return path


def lying(shape):
    """A saved array whose header states another shape."""
    raw = io.BytesIO()
    np.save(raw, np.zeros((4, 2)))
    return raw.getvalue().replace(b"(4, 2)", shape)


def test_arrays_read_back_as_they_were_saved(tmp_path):
    given = {"x": np.arange(6.0).reshape(3, 2).T.copy().T, "y": np.array([0, 1, 1])}
    found = load_npz(saved(tmp_path / "a.npz", **given))
    assert {k: v.tolist() for k, v in found.items()} == {k: v.tolist() for k, v in given.items()}


@pytest.mark.parametrize("shape", [b"(999999999, 99)", b"(-4, 2)", b"(4, 3)", b"(0, 2)", b"(4.0,)"])
def test_headers_that_lie_are_refused_before_anything_is_read(tmp_path, shape):
    with pytest.raises(MusterError, match=r"a\.npz: not readable as npz"):
        load_npz(saved(tmp_path / "a.npz", x=lying(shape), y=np.zeros(4)))


def test_an_array_that_unpacks_to_more_than_there_is_room_for_is_refused(tmp_path, monkeypatch):
    path = saved(tmp_path / "a.npz", x=np.zeros((10**5, 10)), y=np.zeros(10**5))
    assert path.stat().st_size < 10**5
    monkeypatch.setattr("muster.base.memory.free_memory", lambda device=None: 10**6)
    with pytest.raises(MusterError, match=r"array x of .* need 8\.0 MB"):
        load_npz(path)


@pytest.mark.parametrize("name", ["data.csv", "data.parquet", "data.npz"])
def test_a_data_file_that_is_a_fifo_is_one_line(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(MusterError, match="a FIFO; only regular files"):
        from_folder(tmp_path / name)


def test_data_may_be_a_link(tmp_path):
    saved(tmp_path / "there", x=np.eye(4), y=np.array([0, 1, 0, 1]))
    (tmp_path / "data.npz").symlink_to("there")
    assert from_folder(tmp_path / "data.npz", test_fraction=0.0).n == 1
