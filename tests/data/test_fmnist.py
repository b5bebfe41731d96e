"""Fashion-MNIST: the idx reader on files made here, the loader on the real bytes if installed."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from muster.data import IID, fmnist, read_idx
from muster.data.fmnist import FILES, INSTALL, INSTALLED, TYPES
from muster.errors import MusterError

installed = pytest.mark.skipif(not INSTALLED.is_dir(), reason=f"run `{INSTALL}`")


def idx(array: NDArray[Any], code: int = 0x08) -> bytes:
    head = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    return head + array.astype(TYPES[code]).tobytes()


def save(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def tiny(folder: Path, ending: str = ".gz", rows: int = 40) -> Path:
    """A data set in the official layout: row i has label i mod 10 and pixels of that value."""
    folder.mkdir(parents=True)
    y = np.arange(rows) % 10
    x = np.broadcast_to(y[:, None, None], (rows, 28, 28))
    for name, array in zip(FILES, (x, y, x, y), strict=True):
        save(folder / (name + ending), idx(array))
    return folder


@pytest.mark.parametrize("name", ["array.gz", "array"])
@pytest.mark.parametrize("code", sorted(TYPES))
def test_every_type_is_read_plain_and_gzipped(tmp_path: Path, name: str, code: int) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(TYPES[code])
    read = read_idx(save(tmp_path / name, idx(array, code)))
    assert np.array_equal(read, array)
    assert read.dtype.isnative
    assert read.dtype == array.dtype.newbyteorder("=")


@given(st.integers(0, 27))
def test_a_truncated_file_is_one_line_with_its_name(
    tmp_path_factory: pytest.TempPathFactory, length: int
) -> None:
    whole = idx(np.arange(12).reshape(3, 4))
    assert len(whole) == 24
    folder = tmp_path_factory.mktemp("idx")
    zipped = gzip.compress(whole)
    for name, content in (("cut", whole[: min(length, 23)]), ("cut.gz", zipped[:length])):
        path = folder / name
        path.write_bytes(content)
        with pytest.raises(MusterError, match="cut") as caught:
            read_idx(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no idx file"),
        (b"\x89PNG\r\n", "starts with bytes '89 50 4e 47'"),
        (b"\0\0\x07\x01\0\0\0\x01\0", "no idx file"),
        (b"\0\0\x08\x00", "no idx file"),
        (b"\0\0\x08\x02\0\0\0\x01", "truncated within its header"),
        (idx(np.arange(5)) + b"\0", "too long, with 6 bytes .* needs 5"),
        (b"\0\0\x08\x02" + b"\xff" * 8, "truncated, with 0 bytes"),
        (gzip.compress(idx(np.arange(5)), mtime=0)[:-8] + b"checksum", "damaged gzip"),
    ],
)
def test_files_that_are_not_idx_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(MusterError, match=f"{path}.*{message}"):
        read_idx(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MusterError, match=r"nowhere\.gz: cannot be read"):
        read_idx(tmp_path / "nowhere.gz")


@pytest.mark.parametrize("ending", [".gz", ""])
def test_a_folder_of_idx_files_becomes_a_federation(tmp_path: Path, ending: str) -> None:
    folder = tiny(tmp_path / "own", ending)
    fed = fmnist(folder, clients=4, priority=[2], partition=IID(), seed=1)
    assert (fed.n, fed.classes) == (4, 10)
    assert fed.priority.tolist() == [False, False, True, False]
    assert fed.train.x.dtype == torch.uint8
    assert fed.train.x.shape == (40, 784)
    for k in range(4):
        x, y = fed.train.client(k)
        assert (x == y[:, None]).all()


def test_the_environment_comes_before_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny(tmp_path / "fashion-mnist")
    monkeypatch.setenv("MUSTER_DATA", str(tmp_path))
    assert len(fmnist(clients=4, partition=IID()).train.y) == 40


def test_a_missing_data_set_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FILES[0]).touch()
    with pytest.raises(MusterError, match=f"not in {tmp_path}; run `{INSTALL}` or pass folder"):
        fmnist(tmp_path)
    monkeypatch.setenv("MUSTER_DATA", str(tmp_path))
    monkeypatch.setitem(fmnist.__globals__["find_files"].__globals__, "INSTALLED", tmp_path / "p")
    with pytest.raises(MusterError, match=f"not in {tmp_path}/fashion-mnist or {tmp_path}/p;"):
        fmnist()


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        (FILES[0], np.zeros((40, 28)), r"shape \(40, 28\); .* of shape \(40, 28, 28\)"),
        (FILES[0], np.zeros((39, 28, 28)), r"shape \(39, 28, 28\); .* \(40, 28, 28\)"),
        (FILES[3], np.zeros((40, 1)), r"shape \(40, 1\); .* \(40,\)"),
    ],
)
def test_arrays_of_another_shape_are_refused(
    tmp_path: Path, name: str, array: NDArray[Any], message: str
) -> None:
    folder = tiny(tmp_path / "own")
    save(folder / f"{name}.gz", idx(array))
    with pytest.raises(MusterError, match=f"{name}.gz.*{message}"):
        fmnist(folder, clients=4, partition=IID())


@installed
def test_the_real_data_set_as_the_paper_splits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUSTER_DATA", raising=False)
    fed = fmnist()
    assert (fed.n, fed.classes, int(fed.priority.sum())) == (60, 10, 2)
    assert fed.train.x.shape == (60_000, 784)
    assert fed.train.x.dtype == torch.uint8
    assert fed.train.rows is not None
    assert fed.test is not None
    assert fed.test.weight is not None
    assert sorted(fed.train.rows) == list(range(60_000))
    counts = fed.label_counts()
    assert set(counts.ravel()) <= {0, 500, 1000}
    assert (counts.sum(axis=1) == 1000).all()
    # Published statistics of the training pixels: mean 0.2860, deviation 0.3530 (of 255).
    pixels = fed.train.x.numpy()
    assert pixels.mean() / 255 == pytest.approx(0.2860, abs=1e-4)
    assert pixels.std(dtype=np.float64) / 255 == pytest.approx(0.3530, abs=1e-4)
    for k in (0, 59):
        y = fed.test.client(k)[1].numpy()
        weight = fed.test.weight[fed.test.positions(np.array([k]))]
        share = np.bincount(y, weight, minlength=10)
        assert share == pytest.approx(counts[k] / 1000)
        assert len(y) == 1000 * np.count_nonzero(counts[k])
