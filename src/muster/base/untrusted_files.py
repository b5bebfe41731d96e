"""Untrusted files: safe reading of files made by others.

A run folder may come from anybody. A link in it could lead anywhere, a device never ends, a FIFO
waits for a writer that never comes, and a small file may claim a billion rows. So only regular
files are opened, under plain names, without following links, and up to a size limit for their kind.
Users may link their own data (`follow`); the link must still lead to a regular file.

    read_text, read_toml, read_json   text and its values
    parse_toml, parse_json            the values of a text
    read_frame                        a parquet table
    open_file, descriptor_path        a file for another library to read
    open_log                          a log
    safe_path                         a path inside a folder, by plain names
"""

from __future__ import annotations

import errno
import json
import os
import stat
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Any

from .errors import MusterError, first_line
from .lazy import pl
from .memory import format_bytes, require_memory

# Size limits in bytes by kind of file, far above the largest that muster writes.
TEXT = 16 * 2**20  # TOML and JSON: markers, configurations, manifests, model.json
LINES = 2**30  # progress.jsonl, a line for each round
TABLE = 2**36  # parquet and other tables
TENSORS = 2**38  # safetensors

DEEPEST = 32  # levels of tables and lists within each other: functions recurse into them
LONGEST = 255  # bytes of a name that file systems take
CELL = 8  # bytes that a value of a table takes in memory, at least
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}
NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)  # 0 on Windows, as the next
NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)
AS_BYTES: int = getattr(os, "O_BINARY", 0)  # 0 but on Windows

TOO_DEEP = f"tables or lists within each other, over {DEEPEST} deep"


class NotRegular(MusterError):
    """A file that is not regular, too large, or not allowed in its place."""


def descriptor(path: Path, flags: int = os.O_RDONLY, follow: bool = False) -> int:
    """Return a file descriptor of a regular file, opened without blocking."""
    if not follow and not NO_FOLLOW and path.is_symlink():
        raise _not_regular(path, stat.S_IFLNK)
    how = flags | AS_BYTES | NO_WAIT | (0 if follow else NO_FOLLOW)
    try:
        handle = os.open(path, how, 0o666)
    except ValueError as error:  # a zero byte in its name
        raise NotRegular(f"{path}: no name of a file ({error})") from None
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise
        raise _not_regular(path, os.lstat(path).st_mode) from None
    kind = os.fstat(handle).st_mode
    if not stat.S_ISREG(kind):
        os.close(handle)
        raise _not_regular(path, kind)
    return handle


def _not_regular(path: Path, mode: int) -> NotRegular:
    what = KINDS.get(stat.S_IFMT(mode), "no file")
    return NotRegular(f"{path}: {what}; only regular files are opened here: put the file in place")


def open_log(path: Path) -> BufferedWriter:
    """Open a regular file, new or existing, to append to."""
    return os.fdopen(descriptor(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def open_file(path: Path, most: int, follow: bool = False) -> BufferedReader:
    """Open a regular file of at most `most` bytes for reading."""
    file = os.fdopen(descriptor(path, follow=follow), "rb")
    size = os.fstat(file.fileno()).st_size
    if size > most:
        file.close()
        raise NotRegular(
            f"{path}: {format_bytes(size)}; allowed for such a file: up to {format_bytes(most)}"
        )
    return file


def descriptor_path(file: BufferedReader, path: Path) -> Path:
    """Return a path by which a library opens the very file that is open, if the system has one."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        if os.path.exists(place := f"{folder}/{file.fileno()}"):
            return Path(place)
    return path


def read_text(path: Path, most: int = TEXT, follow: bool = False) -> str:
    """Return the text of a UTF-8 file."""
    with open_file(path, most, follow) as file:
        return file.read(most).decode("utf-8-sig")


def read_toml(path: Path, follow: bool = False) -> dict[str, Any]:
    """Return the tables of a TOML file; raise ValueError if it is none."""
    return parse_toml(read_text(path, follow=follow))


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text; raise ValueError if it is none."""
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    check_depth(table)
    return table


def read_json(path: Path) -> Any:
    """Return the values of a JSON file; raise ValueError if it is none."""
    return parse_json(read_text(path))


def parse_json(text: str) -> Any:
    """Return the values of a JSON text; raise ValueError if it is none."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    check_depth(value)
    if "\\ud" in text.lower():
        json.dumps(value, ensure_ascii=False).encode()  # lone surrogates cannot be written again
    return value


def check_depth(value: Any) -> None:
    """Raise ValueError for tables or lists within each other deeper than any that muster writes."""
    level = [value]
    for _ in range(DEEPEST + 1):
        inner = [
            v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list)
        ]
        level = [v for values in inner for v in values]
        if not level:
            return
    raise ValueError(TOO_DEEP)


@contextmanager
def table_errors() -> Iterator[None]:
    """Raise polars errors, and panics of its Rust code, as ValueError."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ValueError(first_line(error)) from None


def frame_columns(path: Path) -> list[str]:
    """Return the names of the columns of the user's parquet table."""
    with open_file(path, TABLE, follow=True) as file, table_errors():
        return pl.scan_parquet(descriptor_path(file, path), glob=False).collect_schema().names()


def read_frame(
    path: Path, columns: Sequence[str] | None = None, follow: bool = False, most: int = 2**62
) -> pl.DataFrame:
    """Return a parquet table of at most `most` rows, or some of its columns; raise ValueError if it
    is none. The memory it needs is checked before it is read."""
    with open_file(path, TABLE, follow) as file, table_errors():
        # Read the open file, even if its name is another's by now.
        there = pl.scan_parquet(descriptor_path(file, path), glob=False)
        schema = there.collect_schema()
        chosen = list(schema) if columns is None else list(columns)
        for name in chosen:
            if name in schema and schema[name].is_nested():
                raise NotRegular(
                    f"{path}: column '{name}' holds {schema[name]}; features must be numbers, "
                    "other columns numbers or text"
                )
        rows = int(there.select(pl.len()).collect().item())
        if rows > most:
            raise NotRegular(f"{path}: {rows} rows; allowed for such a table: up to {most}")
        require_memory(
            f"the {rows} rows of {path}", CELL * rows * len(chosen), "read it on another machine"
        )
        return there.select(chosen).collect()


def plain_name(name: Any) -> str:
    """Return a name if it is plain: no path that leads elsewhere."""
    ok = isinstance(name, str) and name not in ("", ".", "..") and "\0" not in name
    if not ok or {"/", "\\", os.sep} & set(name) or len(os.fsencode(name)) > LONGEST:
        raise NotRegular(f"{name!r}: no plain name of a file or folder")
    return str(name)


def safe_path(folder: Path, *names: str) -> Path:
    """Return the path of nested plain names inside a folder; none of them may be a link."""
    place = folder
    for name in names:
        place = place / plain_name(name)
        if place.is_symlink():
            raise _not_regular(place, stat.S_IFLNK)
    return place
