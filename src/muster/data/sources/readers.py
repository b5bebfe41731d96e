"""Readers: one small function for each kind of file a data set comes in, files to arrays.

Images are uint8 with 255 as ink, 28x28 ones flattened to 784, colour ones [3, 32, 32]. Arrays are
called x and y, with test_ before them where there is an official test set. Heart disease has an
array for each hospital: a row for each patient, NaN where nothing was measured.

A tweet is the mean of its words' GloVe vectors. The tokenizer is simple on purpose: lower case;
@names and links are dropped; n't, 's, 'm, 're, 've, 'll and 'd are separate words, as in GloVe;
otherwise a word is a run of letters and digits, or one of the marks . , ! ?. Words that GloVe does
not have are skipped; a tweet without any known word is all zeros.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import Float64
from ...base.errors import MusterError
from ...base.lazy import Image, pl, sparse
from ...base.memory import format_bytes, free_memory
from ...base.untrusted_files import TABLE, open_file
from .cache import Arrays

UInt8 = NDArray[np.uint8]

IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MOST_DIMENSIONS = 64  # of an array in an idx file
CHUNK = 2**24  # bytes read at a time
GZIP = b"\x1f\x8b"

MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CIFAR_PNG = (
    *(f"data_batch_{i}.png" for i in range(1, 6)),
    "test_batch.png",
    "train_lables.json",
    "test_lables.json",
)
HEART_HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
HEART_COLUMNS = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg"),
    *("thalach", "exang", "oldpeak", "slope", "ca", "thal", "num"),
)
HEART_TABLE = "heart_uci.csv"
HEART_FILES = tuple(f"processed.{name}.data" for name in HEART_HOSPITALS)


def read_idx(path: str | Path) -> NDArray[Any]:
    """Read an array in the idx format of MNIST, plain or gzipped.

    The format (LeCun, Cortes, Burges: the MNIST database): two zero bytes, a byte for the type, a
    byte for the number of dimensions, each dimension as a big-endian uint32, then the values.
    """
    try:
        with open_file(Path(path), TABLE, follow=True) as raw:
            zipped = raw.read(2) == GZIP
            raw.seek(0)
            return gunzip_idx(raw, path) if zipped else parse_idx(raw, path)
    except OSError as error:
        raise MusterError(f"{path}: cannot be read ({error.strerror}); give an idx file") from error


def gunzip_idx(file: BinaryIO, path: str | Path) -> NDArray[Any]:
    """Read the array of an open gzipped idx file; `path` names it in errors."""
    try:
        return parse_idx(cast(BinaryIO, gzip.GzipFile(fileobj=file)), path)
    except EOFError as error:
        raise MusterError(f"{path}: the gzip file is truncated; get or copy it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise MusterError(f"{path}: damaged gzip file ({error}); copy it again") from error


def read_up_to(file: BinaryIO, most: int) -> bytes:
    """Read at most this many bytes, whatever the file states or unpacks to."""
    parts: list[bytes] = []
    while most > 0 and (part := file.read(min(most, CHUNK))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def parse_idx(file: BinaryIO, path: str | Path) -> NDArray[Any]:
    """Read the array of an open idx file; `path` names it in errors."""
    magic = file.read(4)
    known = len(magic) == 4 and magic[:2] == b"\0\0" and magic[2] in IDX_TYPES
    if not known or not 1 <= magic[3] <= MOST_DIMENSIONS:
        raise MusterError(f"{path}: starts with bytes '{magic.hex(' ')}'; that is no idx file")
    header = file.read(4 * magic[3])
    if len(header) < 4 * magic[3]:
        raise MusterError(f"{path}: truncated within its header; get or copy it again")
    shape = struct.unpack(f">{magic[3]}I", header)
    dtype = np.dtype(IDX_TYPES[magic[2]])
    size = math.prod(shape) * dtype.itemsize
    most = int(min(size, free_memory() / 4))  # as parts, and together
    values = read_up_to(file, most + 1)
    if most < size and len(values) > most:
        raise MusterError(
            f"{path}: its {format_bytes(size)} do not fit into memory; take fewer rows"
        )
    if len(values) != size:
        raise MusterError(
            f"{path}: {'truncated' if len(values) < size else 'too long'}, with {len(values)} bytes"
            f"{'' if len(values) < size else ' or more'} of values where shape {shape} needs "
            f"{size}; get or copy it again"
        )
    return np.frombuffer(values, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def flatten_images(images: NDArray[Any], labels: NDArray[Any], where: object) -> list[UInt8]:
    """Return images as rows of 784 bytes, and their labels, after checking both."""
    for array, shape in ((images, (len(labels), 28, 28)), (labels, (len(labels),))):
        if array.shape != shape or array.dtype != np.uint8:
            raise MusterError(
                f"{where}: {array.dtype} values of shape {array.shape}; expected: uint8 of shape "
                f"{shape}"
            )
    return [images.reshape(len(images), 784), labels]


def mnist_idx(paths: list[Path]) -> Arrays:
    """Read the four idx files of MNIST, Fashion-MNIST or EMNIST."""
    return name_halves([read_idx(path) for path in paths], paths[0], paths[2])


def name_halves(found: list[NDArray[Any]], where: object, where_test: object) -> Arrays:
    """Return images and labels, to train and to test, by the names of their arrays."""
    x, y, test_x, test_y = found
    whole = [*flatten_images(x, y, where), *flatten_images(test_x, test_y, where_test)]
    return dict(zip(("x", "y", "test_x", "test_y"), whole, strict=True))


def emnist_files(split: str) -> tuple[str, ...]:
    """Return the names of the idx files of an EMNIST split."""
    return tuple(
        f"emnist-{split}-{half}-{kind}-ubyte"
        for half in ("train", "test")
        for kind in ("images-idx3", "labels-idx1")
    )


def transpose_images(arrays: Arrays) -> Arrays:
    """Turn EMNIST's official images upright: their rows and columns are swapped."""

    def transpose(x: UInt8) -> UInt8:
        return x.reshape(-1, 28, 28).transpose(0, 2, 1).reshape(-1, 784)

    return {name: transpose(a) if name.endswith("x") else a for name, a in arrays.items()}


def emnist_idx(paths: list[Path]) -> Arrays:
    """Read a split of EMNIST from its four official idx files."""
    return transpose_images(mnist_idx(paths))


def emnist_zip(split: str) -> Callable[[list[Path]], Arrays]:
    """Return a reader of a split of EMNIST from the official archive of all splits."""

    def read(paths: list[Path]) -> Arrays:
        found = []
        with zipfile.ZipFile(paths[0]) as archive:
            for name in emnist_files(split):
                with archive.open(f"gzip/{name}.gz") as file:
                    found.append(gunzip_idx(cast(BinaryIO, file), f"{paths[0]}: {name}"))
        return transpose_images(name_halves(found, paths[0], paths[0]))

    return read


def cifar_png(paths: list[Path]) -> Arrays:
    """Read CIFAR-10 from PNG files with an image a row, 1024 pixels RGB, and labels as JSON."""

    def images(path: Path) -> UInt8:
        with Image.open(path) as picture:
            rows = np.asarray(picture.convert("RGB"))
        return rows.reshape(len(rows), 32, 32, 3).transpose(0, 3, 1, 2)

    *train, test, labels, test_labels = paths
    return {
        "x": np.concatenate([images(path) for path in train]),
        "y": np.array(json.loads(labels.read_text()), np.uint8),
        "test_x": np.ascontiguousarray(images(test)),
        "test_y": np.array(json.loads(test_labels.read_text()), np.uint8),
    }


def cifar_binary(paths: list[Path]) -> Arrays:
    """Read CIFAR-10 from its official archive: a label byte, then 3072 bytes of an image."""
    rows = {}
    with tarfile.open(paths[0]) as archive:
        for member in archive:
            if member.name.endswith(".bin") and (file := archive.extractfile(member)):
                name = member.name.rpartition("/")[2]
                rows[name] = np.frombuffer(file.read(), np.uint8).reshape(-1, 3073)
    train = np.concatenate([rows[f"data_batch_{i}.bin"] for i in range(1, 6)])
    test = rows["test_batch.bin"]
    return {
        "x": train[:, 1:].reshape(-1, 3, 32, 32),
        "y": train[:, 0].copy(),
        "test_x": test[:, 1:].reshape(-1, 3, 32, 32),
        "test_y": test[:, 0].copy(),
    }


def npz(**names: str) -> Callable[[list[Path]], Arrays]:
    """Return a reader of npz arrays by our names (`npz(x="x_train")`); images are rows of 784."""

    def read(paths: list[Path]) -> Arrays:
        with np.load(paths[0], allow_pickle=False) as file:
            found = {ours: file[theirs] for ours, theirs in names.items()}
        return {name: a.reshape(len(a), 784) if a.ndim == 3 else a for name, a in found.items()}

    return read


def femnist_npz(paths: list[Path]) -> Arrays:
    """Read FEMNIST by writer; there 255 is the background, here it is ink."""
    train = {"x": "x_train", "y": "y_train", "writer": "u_train"}
    test = {"test_x": "x_test", "test_y": "y_test", "test_writer": "u_test"}
    arrays = npz(**train, **test)(paths)
    return {name: 255 - a if name.endswith("x") else a for name, a in arrays.items()}


def heart_table(paths: list[Path]) -> Arrays:
    """Read the heart-disease table of all hospitals: a column `hospital`, and the 14."""
    found = pl.read_csv(paths[0], infer_schema=False)
    if set(found.columns) != {"hospital", *HEART_COLUMNS}:
        raise MusterError(f"{paths[0]}: needs the columns hospital, {', '.join(HEART_COLUMNS)}")
    return {
        name: heart_numbers(found.filter(pl.col("hospital") == name)) for name in HEART_HOSPITALS
    }


def heart_files(paths: list[Path]) -> Arrays:
    """Read the official heart-disease files (UCI), one for each hospital, without a header."""
    tables = (
        pl.read_csv(path, has_header=False, new_columns=list(HEART_COLUMNS), infer_schema=False)
        for path in paths
    )
    return dict(zip(HEART_HOSPITALS, map(heart_numbers, tables), strict=True))


def heart_numbers(table: pl.DataFrame) -> Float64:
    """Return the 14 columns as numbers, without empty lines; NaN for missing values (`?`, -9)."""
    values = pl.col(HEART_COLUMNS).str.strip_chars().replace({"?": None, "": None}).cast(pl.Float64)
    rows = table.select(values.replace({-9.0: None}))
    rows = rows.filter(~pl.all_horizontal(pl.all().is_null()))
    return rows.with_columns(pl.all().fill_null(float("nan"))).to_numpy()


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
