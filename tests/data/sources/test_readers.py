"""Readers, on files made here: every idx type and what can be wrong; tweets as numbers, against a
slow and plain computation."""

from __future__ import annotations

import gzip
import io
import re
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from muster.base.errors import MusterError
from muster.data import read_idx
from muster.data.sources.readers import (
    IDX_TYPES,
    OFFICIAL,
    glove_wheel,
    glove_zip,
    join_lines,
    mean_vectors,
    tokens,
    tweet_arrays,
    tweets_zip,
)


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


WORDS = ["the", "ca", "n't", "wait", "!", "'s", "it", "i", "7", "é", "."]
VECTORS = np.random.default_rng(0).normal(size=(len(WORDS), 50)).astype(np.float32)


def words_of(text):
    return pl.DataFrame({"t": [text]}).select(tokens(pl.col("t"))).item().to_list()


def plainly(text):
    """The tokenizer again, by Python's own regular expressions."""
    text = re.sub(r"@\w+|https?://\S+|www\.\S+", " ", text.lower())
    text = re.sub(r"(n't\b|'(?:s|m|re|ve|ll|d)\b)", r" \1", text)
    return re.findall(r"n't\b|'(?:s|m|re|ve|ll|d)\b|[^\W_]+|[.,!?]", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I can't WAIT!!", ["i", "ca", "n't", "wait", "!", "!"]),
        ("@ann_b it's http://t.co/x?y 7up", ["it", "'s", "7up"]),
        ("they'll've", ["they", "'ll", "'ve"]),
        ("naïve café #win", ["naïve", "café", "win"]),
        ("www.x.org ok", ["ok"]),
        ("", []),
        ("::: ---", []),
    ],
)
def test_tokens(text, expected):
    assert words_of(text) == expected
    assert plainly(text) == expected


pieces = st.sampled_from([*WORDS, "I", "can't", "@ann", "it's", "http://x.y", "unknown", "?", ","])


@given(st.lists(st.lists(pieces, max_size=8).map(" ".join), min_size=1, max_size=12))
def test_features_are_the_means_of_known_words(texts):
    found = mean_vectors(pl.Series(texts), WORDS, VECTORS)
    assert found.dtype == np.float32
    assert found.shape == (len(texts), 50)
    for row, text in zip(found, texts, strict=True):
        known = [VECTORS[WORDS.index(w)].astype(np.float64) for w in plainly(text) if w in WORDS]
        expected = np.mean(known, axis=0) if known else np.zeros(50)
        assert row == pytest.approx(expected, abs=1e-6)


def glove():
    return {"vectors": VECTORS, "words": join_lines(WORDS)}


def test_the_official_archive_is_read_with_its_odd_letters(tmp_path):
    lines = '"0","1","Mon","NO_QUERY","bob","I can\'t, ""really"" é"\n"4","2","T","Q","al","the"\n'
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr(OFFICIAL, lines.encode("latin-1"))
    frame = tweets_zip([tmp_path / "t.zip"])
    assert frame["text"].to_list() == ['I can\'t, "really" é', "the"]
    arrays = tweet_arrays(frame, glove())
    assert arrays["y"].tolist() == [0, 1]
    assert arrays["user"].tolist() == [1, 0]
    assert arrays["x"][1] == pytest.approx(VECTORS[0])


def test_both_layouts_of_glove_give_the_same_arrays(tmp_path):
    rounded = np.round(VECTORS, 5).astype(np.float32)
    np.save(tmp_path / "v.npy", rounded)
    pl.DataFrame({"index": WORDS}).write_parquet(tmp_path / "w.parquet")
    text = io.StringIO()
    for word, row in zip(WORDS, rounded, strict=True):
        text.write(" ".join([word, *(f"{v:.5f}" for v in row)]) + "\n")
    with zipfile.ZipFile(tmp_path / "g.zip", "w") as archive:
        archive.writestr("glove.6B.50d.txt", text.getvalue())
    wheel = glove_wheel([tmp_path / "v.npy", tmp_path / "w.parquet"])
    own = glove_zip([tmp_path / "g.zip"])
    for name in ("vectors", "words"):
        assert np.array_equal(wheel[name], own[name])
        assert wheel[name].dtype == own[name].dtype
    assert own["words"].tobytes().decode().split("\n") == WORDS


def test_a_word_with_a_line_break_is_refused():
    with pytest.raises(MusterError, match="line break"):
        join_lines(["a", "b\nc"])
