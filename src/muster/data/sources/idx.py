"""The idx format of MNIST and its relatives: arrays in files, plain or gzipped."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from ...base.errors import MusterError
from ...base.memory import format_bytes, free_memory
from ...base.untrusted_files import TABLE, open_file

TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
DIMENSIONS = 64  # that an array may have
CHUNK = 2**24  # bytes read at a time
GZIP = b"\x1f\x8b"


def read_idx(path: str | Path) -> NDArray[Any]:
    """An array in idx format, plain or gzipped.

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
    """The array in an open gzipped idx file; `path` names it in errors."""
    try:
        return parse_idx(cast(BinaryIO, gzip.GzipFile(fileobj=file)), path)
    except EOFError as error:
        raise MusterError(f"{path}: the gzip file is truncated; get or copy it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise MusterError(f"{path}: damaged gzip file ({error}); copy it again") from error


def read_up_to(file: BinaryIO, most: int) -> bytes:
    """The bytes of a file, and no more than this, whatever it says or unpacks to."""
    parts: list[bytes] = []
    while most > 0 and (part := file.read(min(most, CHUNK))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def parse_idx(file: BinaryIO, path: str | Path) -> NDArray[Any]:
    """The array in an open idx file; `path` names it in errors."""
    magic = file.read(4)
    known = len(magic) == 4 and magic[:2] == b"\0\0" and magic[2] in TYPES
    if not known or not 1 <= magic[3] <= DIMENSIONS:
        raise MusterError(f"{path}: starts with bytes '{magic.hex(' ')}'; that is no idx file")
    header = file.read(4 * magic[3])
    if len(header) < 4 * magic[3]:
        raise MusterError(f"{path}: truncated within its header; get or copy it again")
    shape = struct.unpack(f">{magic[3]}I", header)
    dtype = np.dtype(TYPES[magic[2]])
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
