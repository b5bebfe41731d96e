"""Files that are there whole or not at all, and stay there when the power goes.

Everything is written next to its place, synced, and then moved there in one step; the folder that
lists it is synced too. So a process that is killed, or a machine that goes down, leaves the old
file or the new one, never a part of one.

    write(path, text)                one file
    with replacing(path) as new:     one file, written to the path `new` by any library
    with whole_folder(path) as new:  a folder with everything that is put into `new`
    with turn(path):                 one file, read and written again by several processes
    add(path, text)                  one more line of a file that grows
    fresh(folder)                    a new folder that no other process gets
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

from .errors import MusterError
from .untrusted_files import descriptor

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # not on Windows, where folders are not held
    fcntl = None

LOCK = ".lock"  # the file by which a folder is held
ABANDONED = 24 * 3600  # seconds after which what a killed process was writing is removed
PARTIAL = "muster-partial"  # ends the names of what is being written
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
    """A path to write a file to; what was written then takes the place of `path`.

    The path given has the same ending, as some libraries go by it. If the block fails, `path`
    stays as it was.
    """
    partial = _next_to(path)
    try:
        yield partial
        sync(partial)
        os.replace(partial, path)
        sync(path.parent)
    except OSError as error:
        # A full disk does not say what there was no room for.
        if error.errno is None and type(error) is OSError:
            raise OSError(f"{path}: {error}") from error
        error.filename = error.filename or str(path)
        raise
    finally:
        partial.unlink(missing_ok=True)


def write(path: Path, content: str | bytes) -> None:
    """Write one file, in place of what is there."""
    with atomic_file(path) as new:
        new.write_bytes(_bytes(content))


def create(path: Path, content: str | bytes, mode: int = 0o666) -> None:
    """Write one new file; one that is there already is an error, whoever made it when.

    Args:
        mode: who may read it, from the first moment
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
    """An empty folder on the disk of `path`, gone afterwards whatever happens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = _next_to(path)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def atomic_folder(path: Path, marker: str | None = None) -> Iterator[Path]:
    """An empty folder to fill, which then appears as `path`.

    A folder that is there already, and not empty, is an error. Not so with a marker, the file by
    which the folder is known to be complete: then everything is moved in, next to what else is
    there, and the marker last. Until then there is none, so that old and new are never mixed up.
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


def new_folder(folder: Path, taken: Callable[[Path], bool] = lambda place: True) -> Path:
    """The first of `folder`, `folder-2`, `folder-3`, ... that is not taken; it is made.

    Making it is how it is claimed: two processes that ask at the same time get two folders.

    Args:
        taken: whether a folder that exists is no longer free; by default every one is
    """
    if "\0" in str(folder):
        raise MusterError(f"{folder}: no name of a folder; give one without a zero byte")
    return next(place for place in numbered_paths(folder) if _claimed(place, taken))


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """A folder that is ours alone while the block lasts. Another process that holds it is an
    error; one that was killed holds nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder / LOCK) as lock:
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise MusterError(
                    f"{folder}: in use by another run; wait for it to end, or use another folder"
                ) from None
        try:
            yield
        finally:
            if fcntl is not None:
                # Closing is not enough: a forked worker that is still on its way out has it open.
                fcntl.flock(lock, fcntl.LOCK_UN)


def is_locked(folder: Path) -> bool:
    """Whether a process holds a folder at this moment; where that cannot be known, no."""
    if fcntl is None:
        return False
    try:
        with os.fdopen(descriptor(folder / LOCK, os.O_RDWR), "r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(lock, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Our turn to read a file and write it again: processes that ask for it wait for each other."""
    place = path.with_name(f".{path.name}{LOCK}")
    with _lock(place) as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_UN)


def _lock(place: Path) -> BinaryIO:
    """The file of a lock, made where there is none; what else has its name is left as it is."""
    return os.fdopen(descriptor(place, os.O_RDWR | os.O_CREAT), "r+b")


def append(path: Path, text: str) -> None:
    """Add a text to the end of a file, in one piece; others may read it at any time."""
    with os.fdopen(descriptor(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
        file.write(text.encode())


def numbered_paths(folder: Path) -> Iterator[Path]:
    """`folder`, `folder-2`, `folder-3`, ..."""
    yield folder
    for i in count(2):
        yield folder.with_name(f"{folder.name}-{i}")


def _claimed(place: Path, taken: Callable[[Path], bool]) -> bool:
    try:
        place.mkdir(parents=True)
    except FileExistsError:
        return place.is_dir() and not taken(place)
    return True


def _next_to(path: Path) -> Path:
    """A hidden name in the folder of `path` that nobody else uses.

    What processes that were killed left under such names goes, once it is old.
    """
    for left in path.parent.glob(f".*.{PARTIAL}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED:
                shutil.rmtree(left) if left.is_dir() else left.unlink()
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.{PARTIAL}{path.suffix}")


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content
