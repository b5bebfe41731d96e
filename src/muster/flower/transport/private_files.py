"""Permissions of keys, data and rosters: files that are for their owner alone.

A private key that anyone else can read is refused, as ssh does. So is a data file that everybody on
the machine can read, or anybody else can change; one that its group can read is allowed with a
warning, for a service user that is given access that way.
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
def private_umask() -> Iterator[None]:
    """Create files for this process's own user alone, within the block."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def make_private_folder(path: Path) -> Path:
    """Make a folder for its owner alone, unless it exists; return it."""
    path.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
    path.chmod(PRIVATE_FOLDER)
    return path


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file for its owner alone, replacing an existing one."""
    make_private_folder(path.parent)
    with durable.atomic_file(path) as new:
        durable.create(new, content, PRIVATE_FILE)


def find_access(path: Path) -> tuple[bool, bool]:
    """Return two booleans: True if a file's group, and if everybody, can read or change it, by its
    mode and those of the folders on the way to it."""
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
    """Refuse a private key that others can read, or that is missing."""
    group, others = _find_access(path, "key")
    if group or others:
        raise MusterError(f"{path}: others can read this private key; chmod 600 {path}")


def check_data(path: Path) -> str:
    """Refuse data that everybody on the machine can read, or that its group can change; return a
    warning about data that its group can read, or ""."""
    group, others = _find_access(path, "data")
    if others:
        raise MusterError(
            f"{path}: everybody on this machine can read or change it; chmod 600 {path}"
        )
    if group and path.stat().st_mode & stat.S_IWGRP:
        raise MusterError(f"{path}: its group can change it; chmod 640 {path}, or 600")
    return f"{path}: its group can read it; with chmod 600 only its owner can" if group else ""


def _find_access(path: Path, what: str) -> tuple[bool, bool]:
    try:
        return find_access(path)
    except OSError as error:
        raise MusterError(
            f"{path}: cannot be read ({error.strerror}); give the {what} of this client"
        ) from None
