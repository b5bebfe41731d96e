"""Tweets as numbers, against a slow and plain computation."""

from __future__ import annotations

import io
import re
import zipfile

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.base.errors import MusterError
from muster.data.sources.tweets import (
    OFFICIAL,
    glove_wheel,
    glove_zip,
    join_lines,
    mean_vectors,
    tokens,
    tweet_arrays,
    tweets_zip,
)

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
