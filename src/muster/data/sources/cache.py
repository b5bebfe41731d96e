"""The cache: each data set stored once, as plain `.npy` files that are memory-mapped on use.

An entry is a folder `arrays/NAME` below the root with a file for each array and a `manifest.json`
with their checksum. It is there whole or not at all (`muster.base.durable`), however many processes
store it at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
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
from ...base.lazy import platformdirs

Arrays = Mapping[str, NDArray[Any]]

MANIFEST = "manifest.json"


class CacheError(MusterError):
    """A cache entry that is damaged."""


def root() -> Path:
    """Return the cache folder: $MUSTER_DATA, or `muster` in the user's cache folder."""
    if own := os.environ.get("MUSTER_DATA"):
        return Path(own).expanduser()
    return platformdirs.user_cache_path("muster", appauthor=False, opinion=False)


def entry_path(key: str) -> Path:
    """Return the folder of the entry under a key, which need not exist."""
    return root() / "arrays" / key


def digest(arrays: Arrays) -> str:
    """Return the checksum of arrays: sha256 of names, types, shapes and bytes, sorted by name.

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
class CacheEntry:
    """A data set in the cache: its arrays, memory-mapped, and where they come from.

    Attributes:
        sha256: checksum of the arrays, see `digest`
        verified: how they were verified when they were stored
        source: where they were downloaded or read from
        origin: path, size and time of the files they were read from
    """

    arrays: Arrays
    sha256: str
    verified: str
    source: str
    origin: list[list[Any]]


def load(key: str) -> CacheEntry | None:
    """Load the entry under a key, or None. Sizes and shapes are checked, the checksum is not.

    The maps are copy-on-write: nothing reaches the files, and torch takes them without a copy.
    """
    folder = entry_path(key)
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
        return CacheEntry(arrays, *facts)
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        raise CacheError(
            f"{folder}: damaged ({first_line(error)}); remove that folder, or run `muster data "
            f"get`, which stores it again"
        ) from None


@contextmanager
def workspace(key: str) -> Iterator[Path]:
    """Yield a temporary folder on the disk of the cache, which is always removed afterwards."""
    with writable(durable.scratch_folder(entry_path(key))) as folder:
        yield folder


@contextmanager
def writable(creation: AbstractContextManager[Path]) -> Iterator[Path]:
    """Yield a folder created in the cache, or raise an error that says what to set."""
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(creation)
        except OSError as error:
            raise OSError(
                f"{root() / 'arrays'}: cannot be written ({error.strerror}); set MUSTER_DATA to a "
                "folder that can be"
            ) from None
        yield folder


def store(key: str, data: CacheEntry) -> Path:
    """Store an entry under a key, whole or not at all. An entry that is already there stays."""
    manifest = {
        "arrays": {name: [a.dtype.str, list(a.shape)] for name, a in data.arrays.items()},
        "sha256": data.sha256,
        "verified": data.verified,
        "source": data.source,
        "origin": data.origin,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    target = entry_path(key)
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


def remove_corrupt(key: str) -> None:
    """Remove the entry under a key unless its checksum is right, so that it is stored again."""
    try:
        stored = load(key)
        whole = stored is None or digest(stored.arrays) == stored.sha256
    except CacheError:
        whole = False
    if not whole:
        shutil.rmtree(entry_path(key))
