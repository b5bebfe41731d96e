"""Reader of npz files: arrays x and y, with errors that name file, array and row."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ...base.errors import MusterError, nearest
from ...base.lazy import pl
from ...base.memory import require_memory
from ...base.untrusted_files import TABLE, open_file
from .table_reader import file_errors
from .tabular import MISSING, Block, require_present

ARRAYS = ("x", "y", "x_test", "y_test")
WEIGHT = "weight_test"  # the array of weights of test rows, where they differ


def load_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Load the arrays of an npz file, by name."""
    with file_errors(path), open_file(path, TABLE, follow=True) as raw:
        if raw.read(6) == np.lib.format.MAGIC_PREFIX:
            raise MusterError(f"{path}: a single array; save x and y with numpy.savez")
        with zipfile.ZipFile(raw) as archive:
            return {key: read_array(archive, key, path) for key in list_keys(archive, path)}


def list_keys(archive: zipfile.ZipFile, path: Path) -> list[str]:
    """Return the names of the arrays in an npz file; unknown ones are an error."""
    keys = [name.removesuffix(".npy") for name in archive.namelist()]
    known = (*ARRAYS, WEIGHT)
    for key in keys:
        if key not in known:
            raise MusterError(f"{path}: unknown array '{key}'; {nearest(key, known)}")
    return keys


def read_array(archive: zipfile.ZipFile, key: str, path: Path) -> NDArray[Any]:
    """Read an array of an npz file, after its size in its header and in the archive was compared
    and found to fit into memory."""
    with archive.open(f"{key}.npy") as file:
        shape, _, dtype = read_array_header(file)
        size, begin = math.prod(shape) * dtype.itemsize, file.tell()
        if dtype.hasobject or size != archive.getinfo(f"{key}.npy").file_size - begin:
            raise ValueError(f"{key} is not the {dtype} of shape {shape} that its header states")
    require_memory(f"array {key} of {path}", size, "give fewer rows")
    with archive.open(f"{key}.npy") as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def read_array_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape, order and type of a saved array."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)


def read_npz(path: Path) -> list[Block]:
    """Read the arrays x and y of an npz file, then x_test and y_test (and weight_test) if they
    are there."""
    arrays = load_npz(path)
    tested = any(key.endswith("_test") for key in arrays)
    for key in ARRAYS if tested else ARRAYS[:2]:
        if key not in arrays:
            raise MusterError(f"{path}: no array '{key}'; it holds {', '.join(arrays) or 'none'}")
    return [
        build_block(path, arrays, x, y, test)
        for x, y, test in (("x", "y", False), ("x_test", "y_test", True))
        if x in arrays
    ]


def build_block(path: Path, arrays: dict[str, NDArray[Any]], x: str, y: str, test: bool) -> Block:
    """Build the block of one half of an npz file. Bytes (pixels), float32 and float64 are kept."""
    rows, labels = arrays[x], arrays[y]
    if rows.dtype.kind not in "fiub" or labels.dtype.kind not in "fiubU":
        key, kind = (y, labels) if rows.dtype.kind in "fiub" else (x, rows)
        raise MusterError(f"{path}: {key} holds {kind.dtype}; give numbers")
    if rows.ndim < 2 or labels.ndim < 1 or len(rows) != len(labels):
        raise MusterError(
            f"{path}: {x} has shape {rows.shape} and {y} {labels.shape}; give rows of features "
            "and one label for each"
        )
    if not rows.size:
        what = "features" if len(rows) else "rows"
        raise MusterError(f"{path}: {x} has no {what}; give at least one")
    for key, array in ((x, rows), (y, labels)):
        if array.dtype == np.uint64 and array.max() >= 2**63:
            raise MusterError(f"{path}: {key} holds {array.max()}; allowed: below 2^63")
    if rows.dtype.kind == "b" or rows.dtype == np.float16:
        rows = rows.astype(np.float32)
    elif rows.dtype.kind in "iu" and rows.dtype != np.uint8:
        rows = rows.astype(np.int64)
    elif rows.dtype.kind == "f" and rows.dtype.itemsize > 8:
        rows = rows.astype(np.float64)
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        i, *at = (int(v) for v in np.argwhere(~np.isfinite(rows))[0])
        value = rows[(i, *at)]
        raise MusterError(f"{path}: {x}, row {i + 1}, position {at}: {value}; fix or drop the row")
    where = f"{path}: {y}" if test else str(path)
    if labels.dtype.kind != "U":
        labels = labels.astype(np.float64 if labels.dtype.kind == "f" else np.int64)
    single = labels if labels.ndim == 1 else np.zeros(len(labels), np.int64)
    column = require_present(pl.Series(y, single), path, MISSING)
    weight = arrays.get(WEIGHT) if test else None
    if weight is not None and not (
        weight.shape == labels.shape[:1]
        and weight.dtype.kind == "f"
        and (weight > 0).all()
        and np.isfinite(weight).all()
    ):
        raise MusterError(f"{path}: {WEIGHT}: give a number above 0 for each row of {x}")
    mask = np.full(len(rows), test)
    return Block(path.stem, where, rows, column, test=mask, weight=weight, numbers=labels)
