"""Fashion-MNIST from its own files: the idx format, read from a local folder.

The Debian package `dataset-fashion-mnist` installs the four files; nothing is downloaded here.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import MusterError
from ..federation import Federation
from .partition import Partition, Shards, federate

INSTALL = "apt-get install dataset-fashion-mnist"
INSTALLED = Path("/usr/share/datasets/fashion-mnist")
FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
GZIP = b"\x1f\x8b"
SHARDS = Shards(per_client=2, size=500)  # FedALIGN, section 4: 120 shards for 60 clients


def read_idx(path: str | Path) -> NDArray[Any]:
    """An array in idx format, plain or gzipped.

    The format (LeCun, Cortes, Burges: the MNIST database): two zero bytes, a byte for the type, a
    byte for the number of dimensions, each dimension as a big-endian uint32, then the values.
    """
    try:
        with open(path, "rb") as raw:
            zipped = raw.read(2) == GZIP
            raw.seek(0)
            return parse_idx(cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if zipped else raw, path)
    except EOFError as error:
        raise MusterError(f"{path}: the gzip file is truncated; install or copy it anew") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise MusterError(f"{path}: damaged gzip file ({error}); copy it anew") from error
    except OSError as error:
        raise MusterError(f"{path}: cannot be read ({error.strerror}); give an idx file") from error


def parse_idx(file: BinaryIO, path: str | Path) -> NDArray[Any]:
    """The array in an open idx file; `path` names it in errors."""
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES or magic[3] == 0:
        raise MusterError(f"{path}: starts with bytes '{magic.hex(' ')}'; that is no idx file")
    header = file.read(4 * magic[3])
    if len(header) < 4 * magic[3]:
        raise MusterError(f"{path}: truncated within its header; install or copy it anew")
    shape = struct.unpack(f">{magic[3]}I", header)
    dtype = np.dtype(TYPES[magic[2]])
    size = math.prod(shape) * dtype.itemsize
    values = file.read()
    if len(values) != size:
        raise MusterError(
            f"{path}: {'truncated' if len(values) < size else 'too long'}, with {len(values)} bytes"
            f" of values where shape {shape} needs {size}; install or copy it anew"
        )
    return np.frombuffer(values, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def find_file(folder: Path, name: str) -> Path | None:
    """The file of that name in a folder, gzipped or plain."""
    return next((p for p in (folder / f"{name}.gz", folder / name) if p.is_file()), None)


def find_files(folder: str | Path | None) -> list[Path]:
    """The four files: in `folder`, else below $MUSTER_DATA, else where the package puts them."""
    if folder is not None:
        places = [Path(folder)]
    else:
        own = os.environ.get("MUSTER_DATA")
        places = ([Path(own) / "fashion-mnist"] if own else []) + [INSTALLED]
    for place in places:
        found = [path for name in FILES if (path := find_file(place, name))]
        if len(found) == len(FILES):
            return found
    raise MusterError(
        f"Fashion-MNIST ({FILES[0]}.gz and three more) is not in {' or '.join(map(str, places))}; "
        f"run `{INSTALL}` or pass folder"
    )


def images_and_labels(images: Path, labels: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """One half of the data set: rows of 784 bytes and as many labels."""
    x, y = read_idx(images), read_idx(labels)
    for array, shape, path in ((x, (len(y), 28, 28), images), (y, (len(y),), labels)):
        if array.shape != shape or array.dtype != np.uint8:
            raise MusterError(
                f"{path}: {array.dtype} values of shape {array.shape}; "
                f"Fashion-MNIST has uint8 of shape {shape} here"
            )
    return x.reshape(len(x), 784), y


def fmnist(
    folder: str | Path | None = None,
    clients: int = 60,
    priority: int | tuple[int, ...] | Literal["all"] = 2,
    unseen: int = 0,
    partition: Partition = SHARDS,
    seed: int = 0,
) -> Federation:
    """Fashion-MNIST (Xiao et al. 2017): 60,000 images of 28x28 bytes, ten classes.

    Each client is tested on the official test set, in the label proportions of its training rows.

    folder    where the idx files are; None: $MUSTER_DATA/fashion-mnist, then the Debian package's
    priority  a number n for the first n clients (the partition is random), their indices, or "all"
    unseen    the last so many clients never train and only judge
    """
    train_x, train_y, test_x, test_y = find_files(folder)
    x, y = images_and_labels(train_x, train_y)
    return federate(
        x,
        y,
        partition.split(y.astype(np.int64), clients, seed),
        test=images_and_labels(test_x, test_y),
        priority=priority,
        unseen=unseen,
        classes=10,
        name="fmnist",
    )
