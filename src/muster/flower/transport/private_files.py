"""Files that are nobody else's: keys, data, rosters, and who can read them.

A private key that anyone else can read is refused, as ssh does. So is a data file that everybody on
the machine can read, or anybody else can change; one that its group can read is allowed, for a
service user that is given access that way, and said.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...base import durable
from ...base.errors import MusterError

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600


@contextmanager
def for_oneself() -> Iterator[None]:
    """Within, whatever this process writes is for its own user alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def private_folder(path: Path) -> Path:
    """A folder for its owner alone, made if it is not there."""
    path.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
    path.chmod(PRIVATE_FOLDER)
    return path


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file for its owner alone, in place of what is there."""
    private_folder(path.parent)
    with durable.atomic_file(path) as new:
        durable.create(new, content, PRIVATE_FILE)


def open_to(path: Path) -> tuple[bool, bool]:
    """Whether a file's group, and everybody, can read or change it: by its mode, and those of the
    folders on the way to it."""
    if os.name != "posix":
        return False, False
    here = path.resolve()
    mode = here.stat().st_mode
    group, others = bool(mode & 0o060), bool(mode & 0o006)
    for folder in here.parents:
        way = folder.stat().st_mode
        group = group and bool(way & (stat.S_IXGRP | stat.S_IXOTH))
        others = others and bool(way & stat.S_IXOTH)
    return group, others


def check_key(path: Path) -> None:
    """Refuse a private key that is not its owner's alone, or is not there."""
    group, others = _open_to(path, "key")
    if group or others:
        raise MusterError(f"{path}: others can read this private key; chmod 600 {path}")


def check_data(path: Path) -> str:
    """Refuse data that everybody on the machine can read, or that its group can change; returns
    what is to be said of data that its group can read."""
    group, others = _open_to(path, "data")
    if others:
        raise MusterError(
            f"{path}: everybody on this machine can read or change it; chmod 600 {path}"
        )
    if group and path.stat().st_mode & stat.S_IWGRP:
        raise MusterError(f"{path}: its group can change it; chmod 640 {path}, or 600")
    return f"{path}: its group can read it; with chmod 600 only its owner can" if group else ""


def _open_to(path: Path, what: str) -> tuple[bool, bool]:
    try:
        return open_to(path)
    except OSError as error:
        raise MusterError(
            f"{path}: cannot be read ({error.strerror}); give the {what} of this client"
        ) from None
