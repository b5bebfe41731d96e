"""The idx reader, on files made here: every type, and everything that can be wrong."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from muster.base.errors import MusterError
from muster.data import read_idx
from muster.data.sources.readers import IDX_TYPES


def idx(array: NDArray[Any], code: int = 0x08) -> bytes:
    head = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    return head + array.astype(IDX_TYPES[code]).tobytes()


def save(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["array.gz", "array"])
@pytest.mark.parametrize("code", sorted(IDX_TYPES))
def test_every_type_is_read_plain_and_gzipped(tmp_path: Path, name: str, code: int) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(IDX_TYPES[code])
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


def test_more_dimensions_than_an_array_has_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes([0, 0, 8, 255]) + bytes([0, 0, 0, 1]) * 255 + b"\1")
    with pytest.raises(MusterError, match="that is no idx file"):
        read_idx(tmp_path / "a")


def test_a_gzipped_file_is_not_unpacked_beyond_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = bytes([0, 0, 8, 1]) + (10**7).to_bytes(4, "big")
    (tmp_path / "a").write_bytes(gzip.compress(head + bytes(10**7)))
    monkeypatch.setattr("muster.data.sources.readers.free_memory", lambda: 4e6)
    with pytest.raises(MusterError, match=r"its 10\.0 MB do not fit into memory"):
        read_idx(tmp_path / "a")
