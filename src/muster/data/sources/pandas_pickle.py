"""Reader of data frames that pandas pickled: their columns, without pandas and without any code.

A pickle names the functions that rebuild what it holds, and `pickle.load` calls them. Here every
name stands for a small function of this module, and a name that has none is refused, so that a
file can hold nothing but columns of numbers and text. The layout is that of pandas 2: a frame has
a block manager, and that has blocks of columns of one type and the names of all columns.
"""

from __future__ import annotations

import io
import lzma
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.errors import MusterError

Columns = dict[str, NDArray[Any]]
Block = tuple[NDArray[Any], Any]

MOST = 2**29  # bytes of a table when unpacked: a small file must not fill the memory
TYPES = {"f8": "<f8", "i8": "<i8", "O8": "O", "b1": "?"}  # of columns
SCALAR = ("<", "|")  # byte orders that are these types'


class Type:
    """The type of an array."""

    def __init__(self, name: str, *_: Any) -> None:
        self.dtype = np.dtype(TYPES[name])

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] not in SCALAR:
            raise ValueError(f"numbers in byte order {state[1]!r}")


class Objects:
    """An array of objects: text, or None or nan where a value is missing."""

    def __init__(self, *_: Any) -> None:
        self.values: NDArray[Any] = np.empty(0, object)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, _, fortran, values = state
        flat = np.empty(len(values), object)
        flat[:] = values
        self.values = flat.reshape(shape, order="F" if fortran else "C")


class State:
    """A frame or a block manager: what it was built from, or its state."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


def unwrap(array: Any) -> NDArray[Any]:
    """Return an array of numbers or of objects as numpy's."""
    return array.values if isinstance(array, Objects) else array


def from_buffer(buffer: bytes, dtype: Type, shape: tuple[int, ...], order: str) -> NDArray[Any]:
    """Return an array of numbers."""
    return np.frombuffer(buffer, dtype.dtype).reshape(shape, order="F" if order == "F" else "C")


def build_index(_: Any, parts: Mapping[str, Any]) -> Any:
    """Return the names of an index; None for the numbers of rows."""
    return parts.get("data")


def build_block(values: Any, place: Any, *_: Any) -> Block:
    """Return the values of a block, and the positions of its columns."""
    return unwrap(values), place


ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("builtins", "slice"): slice,
    ("numpy", "dtype"): Type,
    ("numpy", "ndarray"): State,
    ("numpy.core.multiarray", "_reconstruct"): Objects,
    ("numpy.core.numeric", "_frombuffer"): from_buffer,
    ("pandas._libs.internals", "_unpickle_block"): build_block,
    ("pandas.core.frame", "DataFrame"): State,
    ("pandas.core.indexes.base", "Index"): State,
    ("pandas.core.indexes.base", "_new_Index"): build_index,
    ("pandas.core.indexes.range", "RangeIndex"): State,
    ("pandas.core.internals.managers", "BlockManager"): State,
}


class FrameUnpickler(pickle.Unpickler):
    """An unpickler that knows these names alone."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise ValueError(f"it names {module}.{name}, which is no part of a table")
        return ALLOWED[module, name]


def read_pickled_frame(path: Path) -> Columns:
    """Read the columns of a data frame, pickled and compressed by xz, by their names."""
    try:
        with lzma.open(path) as file:
            content = file.read(MOST + 1)
        if len(content) > MOST:
            raise ValueError(f"over {MOST} bytes when unpacked")
        frame = FrameUnpickler(io.BytesIO(content)).load()
        blocks, (names, *_) = frame.state["_mgr"].parts
        columns: Columns = {}
        for values, place in blocks:
            at = np.arange(len(unwrap(names)))[place if isinstance(place, slice) else unwrap(place)]
            for name, column in zip(unwrap(names)[at].tolist(), values, strict=True):
                columns[str(name)] = column
        return columns
    except (
        *(pickle.UnpicklingError, lzma.LZMAError, AttributeError, TypeError, IndexError),
        *(KeyError, ValueError, EOFError),
    ) as error:
        raise MusterError(f"{path}: no table that pandas wrote ({error}); get it again") from None
