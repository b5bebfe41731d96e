"""Files of a folder of data: which are read, in which order, and the column of their clients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...base.errors import MusterError
from .assembly import natural_key
from .dialect import PLAIN, Dialect
from .manifest import MANIFEST, Options
from .table_reader import read_header
from .tabular import ENDINGS, TABLES

CLIENT = "client"  # the default name of the client column


def data_files(path: Path) -> list[Path]:
    """Return the files to read, in the order of their names.

    In a folder only hidden files, notes (.md) and manifests are ignored.
    """
    if not path.exists():
        raise MusterError(
            f"{path}: no such file or folder; give a {list_endings()} file, or a folder"
        )
    if not path.is_dir():
        if path.suffix not in ENDINGS:
            raise MusterError(f"{path}: ends in '{path.suffix}'; allowed: {list_endings()}")
        return [path]
    inside = [p for p in path.iterdir() if not p.name.startswith(".") and p.suffix != ".md"]
    files = [p for p in inside if p.name != MANIFEST and not p.name.endswith(f".{MANIFEST}")]
    for file in sorted(files):
        if file.suffix not in ENDINGS or not file.is_file():
            raise MusterError(
                f"{file}: allowed here: {list_endings()} files, one per client, and {MANIFEST}; "
                "move it elsewhere"
            )
    if not files:
        raise MusterError(f"{path}: holds no data; give a {list_endings()} file for each client")
    files.sort(key=lambda file: natural_key(file.stem))
    for a, b in zip(files, files[1:], strict=False):
        if a.stem == b.stem:
            raise MusterError(f"{b}: {a.name} is of the same client; keep one of them")
        if (a.suffix == ".npz") != (b.suffix == ".npz"):
            raise MusterError(f"{b}: {a.name} is of another kind; give tables, or npz files")
    return files


def list_endings() -> str:
    """Return the endings a data file may have, as text."""
    return f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"


def client_column(
    files: Sequence[Path], options: Options, folder: bool, dialect: Dialect = PLAIN
) -> str | None:
    """Return the column of the clients' names, if there is one."""
    if files[0].suffix not in TABLES:
        for name in ("label", "client", "features", "split", "text", "duplicates"):
            if getattr(options, name) is not None:
                raise MusterError(f"{name}: npz files have no columns; leave it out for these")
        return None
    if options.client is None and not folder and CLIENT in read_header(files[0], dialect):
        return CLIENT
    return options.client
