"""Rows from npz files: arrays x and y, with errors that name file, array and row."""

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
from .tables import HOLES, Block, present, readable

ARRAYS = ("x", "y", "x_test", "y_test")
WEIGHT = "weight_test"  # how much each test row counts, where they do not all count alike


def npz_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file, by name."""
    with readable(path), open_file(path, TABLE, follow=True) as raw:
        if raw.read(6) == np.lib.format.MAGIC_PREFIX:
            raise MusterError(f"{path}: a single array; save x and y with numpy.savez")
        with zipfile.ZipFile(raw) as archive:
            return {key: array_in(archive, key, path) for key in keys_of(archive, path)}


def keys_of(archive: zipfile.ZipFile, path: Path) -> list[str]:
    """The names of the arrays in an npz file; any but ours are refused."""
    keys = [name.removesuffix(".npy") for name in archive.namelist()]
    known = (*ARRAYS, WEIGHT)
    for key in keys:
        if key not in known:
            raise MusterError(f"{path}: unknown array '{key}'; {nearest(key, known)}")
    return keys


def array_in(archive: zipfile.ZipFile, key: str, path: Path) -> NDArray[Any]:
    """An array of an npz file. Its header says how large it is before it is read, and the archive
    the same, or it is not read."""
    with archive.open(f"{key}.npy") as file:
        shape, _, dtype = header_of(file)
        size, begin = math.prod(shape) * dtype.itemsize, file.tell()
        if dtype.hasobject or size != archive.getinfo(f"{key}.npy").file_size - begin:
            raise ValueError(f"{key} is not the {dtype} of shape {shape} that it says it is")
    require_memory(f"array {key} of {path}", size, "give fewer rows")
    with archive.open(f"{key}.npy") as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def header_of(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """The shape, order and type of a saved array."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)


def read_npz(path: Path) -> list[Block]:
    """The arrays x and y of an npz file, then x_test and y_test (and weight_test) if they are
    there."""
    arrays = npz_arrays(path)
    tested = any(key.endswith("_test") for key in arrays)
    for key in ARRAYS if tested else ARRAYS[:2]:
        if key not in arrays:
            raise MusterError(f"{path}: no array '{key}'; it holds {', '.join(arrays) or 'none'}")
    return [
        array_block(path, arrays, x, y, test)
        for x, y, test in (("x", "y", False), ("x_test", "y_test", True))
        if x in arrays
    ]


def array_block(path: Path, arrays: dict[str, NDArray[Any]], x: str, y: str, test: bool) -> Block:
    """One half of an npz file. Bytes (pixels), float32 and float64 stay what they are."""
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
    column = present(pl.Series(y, single), path, HOLES)
    weight = arrays.get(WEIGHT) if test else None
    if weight is not None and not (
        weight.shape == labels.shape[:1]
        and weight.dtype.kind == "f"
        and (weight > 0).all()
        and np.isfinite(weight).all()
    ):
        raise MusterError(f"{path}: {WEIGHT}: give a number above 0 for each row of {x}")
    held = np.full(len(rows), test)
    return Block(path.stem, where, rows, column, test=held, weight=weight, numbers=labels)
