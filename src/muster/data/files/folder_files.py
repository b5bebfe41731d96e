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

SPREADSHEETS = (".xls", ".xlsx", ".ods", ".numbers")
CLIENT = "client"  # the default name of the client column


def data_files(path: Path, wrong: list[str] | None = None) -> list[Path]:
    """Return the files to read, in the order of their names.

    In a folder only hidden files, notes (.md) and manifests are ignored.

    Args:
        wrong: where errors about files of a folder are put, which are then left out; None: the
            first is raised
    """
    found: list[str] = []
    if not path.exists():
        kinds = f"a {list_endings()} file, or a folder"
        if path.is_absolute():
            raise MusterError(f"{path}: no such file or folder; give {kinds}")
        raise MusterError(
            f"{path}: no such file or folder in {Path.cwd()}; give {kinds} (by an absolute path "
            "if workers or a resume start in another folder)"
        )
    if not path.is_dir():
        if path.suffix not in ENDINGS:
            raise MusterError(f"{path}: ends in '{path.suffix}'; allowed: {list_endings()}")
        return [path]
    inside = [p for p in path.iterdir() if not p.name.startswith(".") and p.suffix != ".md"]
    files = [p for p in inside if p.name != MANIFEST and not p.name.endswith(f".{MANIFEST}")]
    fit: list[Path] = []
    for file in sorted(files, key=lambda file: (natural_key(file.stem), file.name)):
        if file.suffix not in ENDINGS or not file.is_file():
            found.append(
                f"{file}: {describe_stray(file)}allowed here: {list_endings()} files, one per "
                f"client, and {MANIFEST}; move it elsewhere"
            )
        elif fit and fit[-1].stem == file.stem:
            found.append(f"{file}: {fit[-1].name} is of the same client; keep one of them")
        elif fit and (fit[-1].suffix == ".npz") != (file.suffix == ".npz"):
            found.append(f"{file}: {fit[-1].name} is of another kind; give tables, or npz files")
        else:
            fit.append(file)
    if found and (wrong is None or not fit):
        raise MusterError(found[0])
    if not fit:
        raise MusterError(f"{path}: holds no data; give a {list_endings()} file for each client")
    if wrong is not None:
        wrong += found
    return fit


def describe_stray(file: Path) -> str:
    """Return what a file is that has no place in a folder of data, where that may be overlooked."""
    if file.is_symlink() and not file.exists():
        return "a link to nothing; "
    if file.suffix in ENDINGS:
        return "a folder; " if file.is_dir() else "no regular file; "
    if file.suffix.lower() in ENDINGS:
        return f"its ending is written {file.suffix}; "
    return "a spreadsheet, to be saved as CSV; " if file.suffix in SPREADSHEETS else ""


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
