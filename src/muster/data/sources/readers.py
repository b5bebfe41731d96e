"""Files as arrays: one small function for each kind of file a data set comes in.

Images are uint8 with 255 as ink, 28x28 ones flattened to 784, colour ones [3, 32, 32]. Arrays are
called x and y, with test_ before them where there is an official test set.
"""

from __future__ import annotations

import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from ...base.errors import MusterError
from ...base.lazy import Image
from .cache import Arrays
from .idx import gunzip_idx, read_idx

UInt8 = NDArray[np.uint8]

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


def images_and_labels(images: NDArray[Any], labels: NDArray[Any], where: object) -> list[UInt8]:
    """One half of a data set: rows of 784 bytes and as many labels."""
    for array, shape in ((images, (len(labels), 28, 28)), (labels, (len(labels),))):
        if array.shape != shape or array.dtype != np.uint8:
            raise MusterError(
                f"{where}: {array.dtype} values of shape {array.shape}; uint8 of shape {shape} "
                "belongs here"
            )
    return [images.reshape(len(images), 784), labels]


def mnist_idx(paths: list[Path]) -> Arrays:
    """The four idx files of MNIST and of what is made like it."""
    x, y, test_x, test_y = (read_idx(path) for path in paths)
    whole = [*images_and_labels(x, y, paths[0]), *images_and_labels(test_x, test_y, paths[2])]
    return dict(zip(("x", "y", "test_x", "test_y"), whole, strict=True))


def emnist_files(split: str) -> tuple[str, ...]:
    """The names of a split's idx files."""
    return tuple(
        f"emnist-{split}-{half}-{kind}-ubyte"
        for half in ("train", "test")
        for kind in ("images-idx3", "labels-idx1")
    )


def upright(arrays: Arrays) -> Arrays:
    """EMNIST's official images lie on their side (rows and columns swapped): turn them."""

    def turn(x: UInt8) -> UInt8:
        return x.reshape(-1, 28, 28).transpose(0, 2, 1).reshape(-1, 784)

    return {name: turn(a) if name.endswith("x") else a for name, a in arrays.items()}


def emnist_idx(paths: list[Path]) -> Arrays:
    """A split of EMNIST from its four official idx files."""
    return upright(mnist_idx(paths))


def emnist_zip(split: str) -> Callable[[list[Path]], Arrays]:
    """A split of EMNIST from the official archive of all splits."""

    def read(paths: list[Path]) -> Arrays:
        found = []
        with zipfile.ZipFile(paths[0]) as archive:
            for name in emnist_files(split):
                with archive.open(f"gzip/{name}.gz") as file:
                    found.append(gunzip_idx(cast(BinaryIO, file), f"{paths[0]}: {name}"))
        whole = [
            *images_and_labels(found[0], found[1], paths[0]),
            *images_and_labels(found[2], found[3], paths[0]),
        ]
        return upright(dict(zip(("x", "y", "test_x", "test_y"), whole, strict=True)))

    return read


def cifar_png(paths: list[Path]) -> Arrays:
    """CIFAR-10 as PNG files with an image a row, 1024 pixels RGB, and labels as JSON."""

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
    """CIFAR-10 from its official archive of binary files: a label byte, then 3072 of an image."""
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
    """Arrays of an npz file under our names (`npz(x="x_train")`); images become rows of 784."""

    def read(paths: list[Path]) -> Arrays:
        with np.load(paths[0], allow_pickle=False) as file:
            found = {ours: file[theirs] for ours, theirs in names.items()}
        return {name: a.reshape(len(a), 784) if a.ndim == 3 else a for name, a in found.items()}

    return read


def femnist_npz(paths: list[Path]) -> Arrays:
    """FEMNIST by writer; there 255 is the background, here it is ink."""
    arrays = npz(
        x="x_train", y="y_train", writer="u_train",
        test_x="x_test", test_y="y_test", test_writer="u_test",
    )(paths)  # fmt: skip
    return {name: 255 - a if name.endswith("x") else a for name, a in arrays.items()}
