"""Durable files: atomic writes that survive a crash or power failure, and locks between processes.

Everything is written next to its place, synced, and then moved there in one step; its folder is
synced too. So a process that is killed, or a machine that goes down, leaves the old file or the new
one, never a part of one. Locks are those of the library filelock: the system releases them when a
process ends, however it ends.

    write(path, text)                 one file
    with atomic_file(path) as new:    one file, written to the path `new` by any library
    with atomic_folder(path) as new:  a folder with everything that is put into `new`
    append(path, text)                one more line of a file that grows
    new_folder(folder)                a new folder that no other process gets
    with lock_folder(folder):         a folder for one process at a time
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import BinaryIO

from .errors import MusterError
from .lazy import filelock
from .untrusted_files import descriptor

LOCK = ".lock"  # name of a folder's lock file
TRIES, WAIT = 3, 0.01  # attempts to acquire a lock, and seconds between them
ABANDONED = 24 * 3600  # seconds after which files that a killed process was writing are removed
PARTIAL = "muster-partial"  # ends the names of files that are being written
NO_FOLDER_SYNC = (errno.EINVAL, errno.EBADF, errno.ENOTSUP)


def sync(path: Path) -> None:
    """Wait until the disk holds a file's bytes, or a folder's list of names."""
    folder = path.is_dir()
    if folder and os.name == "nt":
        return  # Windows cannot, and does not need to
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network file systems cannot sync a folder. The files in it are synced all the same.
        if not folder or error.errno not in NO_FOLDER_SYNC:
            raise
    finally:
        os.close(handle)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a path to write a file to, which then replaces `path`.

    It has the same suffix, which some libraries require. If the block fails, `path` is unchanged.
    """
    partial = _next_to(path)
    try:
        yield partial
        sync(partial)
        os.replace(partial, path)
        sync(path.parent)
    except OSError as error:
        # The error of a full disk does not name the file, and those of polars have no number.
        if error.errno is None:
            why = str(error).replace(str(partial), str(path))
            raise OSError(why if str(path) in why else f"{path}: {why}") from error
        if error.filename in (None, str(partial), partial):
            error.filename = str(path)
        raise
    finally:
        partial.unlink(missing_ok=True)


def write(path: Path, content: str | bytes) -> None:
    """Write one file, replacing what is there."""
    with atomic_file(path) as new:
        new.write_bytes(_bytes(content))


def create(path: Path, content: str | bytes, mode: int = 0o666) -> None:
    """Write one new file; raise FileExistsError if there is one already.

    Args:
        mode: its permissions, from the first moment
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_bytes(content))
        sync(path)
        sync(path.parent)
    except BaseException:
        path.unlink()
        raise


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder on the disk of `path`, removed afterwards in any case."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = _next_to(path)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def atomic_folder(path: Path, marker: str | None = None) -> Iterator[Path]:
    """Yield an empty folder to fill, which then appears as `path`.

    An existing folder that is not empty is an error. Not so with a marker, the file that shows the
    folder to be complete: then everything is moved in, next to what is there, and the marker last.
    Until then there is no marker, so that old and new are never mixed up.
    """
    with scratch_folder(path) as work:
        filled = work / "whole"
        filled.mkdir()
        yield filled
        for place, _, files in os.walk(filled):
            for name in files:
                sync(Path(place, name))
            sync(Path(place))
        if marker is not None and path.exists():
            (path / marker).unlink(missing_ok=True)
            for item in sorted(filled.iterdir(), key=lambda item: item.name == marker):
                if item.name == marker:
                    sync(path)
                os.replace(item, path / item.name)
            sync(path)
            return
        try:
            os.replace(filled, path)
        except OSError as error:
            if not path.is_dir():
                raise
            raise FileExistsError(errno.EEXIST, "is there already", str(path)) from error
        sync(path.parent)


def new_folder(folder: Path) -> Path:
    """Create and return the first of `folder`, `folder-2`, `folder-3`, ... that does not exist. Two
    processes that ask at the same time get two folders."""
    if "\0" in str(folder):
        raise MusterError(f"{folder}: no name of a folder; give one without a zero byte")
    return next(place for place in numbered_paths(folder) if _create(place))


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold a folder exclusively while the block lasts; raise an error if another process holds it.
    The system releases the lock of a process that is killed."""
    folder.mkdir(parents=True, exist_ok=True)
    with _open_lock(folder / LOCK) as lock:
        if not _try_lock(lock):
            raise MusterError(
                f"{folder}: in use by another run; wait for it to end, or use another folder"
            )
        try:
            yield
        finally:
            # Closing is not enough: a forked worker that is about to exit has it open.
            filelock.unlock_descriptor(lock.fileno())


def in_use(folder: Path) -> bool:
    """Return True if a process holds a folder now; False where that cannot be known."""
    try:
        with os.fdopen(descriptor(folder / LOCK, os.O_RDWR), "r+b") as lock:
            if not _try_lock(lock):
                return True
            filelock.unlock_descriptor(lock.fileno())
    except OSError:
        pass
    return False


def _open_lock(place: Path) -> BinaryIO:
    """Open the file of a lock, creating it if it is missing; anything but a file is refused."""
    return os.fdopen(descriptor(place, os.O_RDWR | os.O_CREAT), "r+b")


def _try_lock(lock: BinaryIO) -> bool:
    """Return True if the lock was acquired. `in_use` holds it for a moment: try a few times."""
    for _ in range(TRIES):
        if filelock.lock_descriptor(lock.fileno(), blocking=False):
            return True
        time.sleep(WAIT)
    return False


def append(path: Path, text: str) -> None:
    """Append a text to a file in one piece; others may read it at any time."""
    with os.fdopen(descriptor(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
        file.write(text.encode())


def numbered_paths(folder: Path) -> Iterator[Path]:
    """Yield `folder`, `folder-2`, `folder-3`, ..."""
    yield folder
    for i in count(2):
        yield folder.with_name(f"{folder.name}-{i}")


def _create(place: Path) -> bool:
    try:
        place.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def _next_to(path: Path) -> Path:
    """Return a hidden name in the folder of `path` that nobody else uses.

    Old files under such names, left by processes that were killed, are removed.
    """
    for left in path.parent.glob(f".*.{PARTIAL}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED:
                shutil.rmtree(left) if left.is_dir() else left.unlink()
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.{PARTIAL}{path.suffix}")


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content
