"""The cache: each data set stored once, as plain `.npy` files that are memory-mapped on use.

A stored data set is a folder `arrays/NAME` below the root with a file for each array and a
`manifest.json`, there whole or not at all (`muster.base.durable`), however many processes store it
at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base import durable
from ...base.errors import MusterError, first_line

Arrays = Mapping[str, NDArray[Any]]

MANIFEST = "manifest.json"


class Damaged(MusterError):
    """A stored data set that is no longer what was stored."""


def root() -> Path:
    """Where data is kept: $MUSTER_DATA, or `muster` in the user's cache directory."""
    if own := os.environ.get("MUSTER_DATA"):
        return Path(own).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "muster"


def place(key: str) -> Path:
    """Where the data set of this key is stored, if it is."""
    return root() / "arrays" / key


def digest(arrays: Arrays) -> str:
    """The sha256 of some arrays: names, types, shapes and bytes, in the order of their names.

    >>> digest({"x": np.zeros(3, np.uint8)})[:16]
    'a1a485f0e56316b3'
    """
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        total.update(array.reshape(-1).view(np.uint8).data)
    return total.hexdigest()


@dataclass(frozen=True)
class Stored:
    """A stored data set: its arrays, memory-mapped, and what is known of them.

    Attributes:
        sha256: of the arrays, see `digest`
        verified: how it was made sure, when they were stored, that they are the right ones
        source: what brought them
        origin: path, size and time of the files they were read from
    """

    arrays: Arrays
    sha256: str
    verified: str
    source: str
    origin: list[list[Any]]


def load(key: str) -> Stored | None:
    """The data set stored under a key, or None. Sizes and shapes are checked, not every byte.

    The maps are copy-on-write: nothing reaches the files, and torch takes them without a copy.
    """
    folder = place(key)
    if not folder.is_dir():
        return None
    try:
        known = json.loads((folder / MANIFEST).read_text())
        arrays: dict[str, NDArray[Any]] = {}
        for name, (dtype, shape) in known["arrays"].items():
            array = np.load(folder / f"{name}.npy", mmap_mode="c", allow_pickle=False)
            if [array.dtype.str, list(array.shape)] != [dtype, shape]:
                raise ValueError(f"{name}.npy is {array.dtype.str} of shape {array.shape}")
            arrays[name] = array
        facts = (known[name] for name in ("sha256", "verified", "source", "origin"))
        return Stored(arrays, *facts)
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        raise Damaged(
            f"{folder}: damaged ({first_line(error)}); remove that folder, or run `muster data "
            f"get`, which stores it again"
        ) from None


@contextmanager
def workspace(key: str) -> Iterator[Path]:
    """A temporary folder on the disk of the cache, which is gone afterwards whatever happens."""
    with writable(durable.scratch_folder(place(key))) as folder:
        yield folder


@contextmanager
def writable(made: AbstractContextManager[Path]) -> Iterator[Path]:
    """A folder made in the cache, or what to do where nothing can be made there."""
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(made)
        except OSError as error:
            raise OSError(
                f"{root() / 'arrays'}: cannot be written ({error.strerror}); set MUSTER_DATA to a "
                "folder that can be"
            ) from None
        yield folder


def store(key: str, data: Stored) -> Path:
    """Store a data set under a key, whole or not at all. What is already stored there stays."""
    manifest = {
        "arrays": {name: [a.dtype.str, list(a.shape)] for name, a in data.arrays.items()},
        "sha256": data.sha256,
        "verified": data.verified,
        "source": data.source,
        "origin": data.origin,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    target = place(key)
    try:
        with writable(durable.atomic_folder(target)) as folder:
            for name, array in data.arrays.items():
                np.save(folder / f"{name}.npy", array, allow_pickle=False)
            (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))
    except FileExistsError:
        # Another process stored it first. Its bytes are the same, or they stay.
        there = load(key)
        if there is None or there.sha256 != data.sha256:
            raise FileExistsError(
                f"{target}: holds other data; remove that folder to store this instead"
            ) from None
    return target


def remove_damaged(key: str) -> None:
    """Make room for a good copy: remove what is stored under a key unless every byte is right."""
    try:
        stored = load(key)
        whole = stored is None or digest(stored.arrays) == stored.sha256
    except Damaged:
        whole = False
    if not whole:
        shutil.rmtree(place(key))
