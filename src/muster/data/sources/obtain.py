"""Where the bytes of a data set come from, and how it is known that they are the right ones.

A `DataSet` has layouts (files that may hold it, and how they become arrays) and sources (what can
bring those files). `load_here` finds it on this machine: in the cache, in a folder the user names,
among files in the cache's root, where a system package puts it. `obtain` also asks the sources,
in order. Whatever is found is read, verified, and stored once in the cache.
"""

from __future__ import annotations

import hashlib
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import MusterError, first_line
from ...base.lazy import http, pl
from . import cache
from .cache import Arrays, Stored
from .fetch import Source, Tick, quiet

DIGESTS = {"md5": hashlib.md5, "sha256": hashlib.sha256}


@dataclass(frozen=True)
class Layout:
    """Files that hold a data set, and how they become its arrays.

    Attributes:
        files: their names; each may also end in .gz
        read: makes the arrays from the files, given in that order
        shapes: of the arrays: the counts that are always checked
        sha256: of the arrays (`cache.digest`), where real bytes were there to compute it from
        file_digest: "md5:..." or "sha256:...", the digest of a layout's only file
        variant: "" for the data set itself, "subset" for a part of it
        note: what results on these files must say
    """

    files: tuple[str, ...]
    read: Callable[[list[Path]], Arrays]
    shapes: Mapping[str, tuple[int, ...]]
    sha256: str = ""
    file_digest: str = ""
    variant: str = ""
    note: str = ""

    @property
    def verified(self) -> str:
        """How the bytes are verified, in words."""
        how = ["sha256 of the arrays"] if self.sha256 else []
        if self.file_digest:
            how.append(f"{self.file_digest.partition(':')[0]} of {self.files[0]}")
        return " and ".join([*how, "counts"])

    def find(self, folder: Path) -> list[Path] | None:
        """Its files in a folder, gzipped or plain, or None unless all are there."""
        found = [
            next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)
            for name in self.files
        ]
        whole = [path for path in found if path is not None]
        return whole if len(whole) == len(self.files) else None


@dataclass(frozen=True)
class DataSet:
    """A data set by name: what it is, the files that may hold it, and what can bring them.

    Attributes:
        size: bytes that `muster data get` brings
        installed: where a package of the system puts the files
        needs: data sets without which its files cannot be read
        shown_by: what `muster data show` (and --data) calls it, where that is not its name
    """

    name: str
    title: str
    about: str
    licence: str
    size: int
    layouts: tuple[Layout, ...] = ()
    sources: tuple[Source, ...] = ()
    installed: Path | None = None
    needs: tuple[DataSet, ...] = ()
    shown_by: str = ""

    def key(self, layout: Layout) -> str:
        """The name a layout's arrays are cached under."""
        return f"{self.name}-{layout.variant}" if layout.variant else self.name

    @property
    def command(self) -> str:
        """The one command that gets it; "" for what is always there."""
        if not self.layouts:
            return ""
        return f"muster data get {self.name}" + ("" if self.sources else " --folder PATH")

    @property
    def files(self) -> frozenset[str]:
        """All names its files may have."""
        names = [name for layout in self.layouts for name in layout.files]
        return frozenset([*names, *(f"{name}.gz" for name in names)])

    def places(self, folder: str | Path | None = None) -> list[Path]:
        """The folders whose files are looked at: the one that is named, or else the usual ones."""
        base = cache.root() if folder is None else Path(folder).expanduser()
        usual = [self.installed] if self.installed and folder is None else []
        return [base, base / self.name, *usual]


@dataclass(frozen=True)
class Held:
    """A data set at hand: its arrays, where they are, and how they were verified.

    Attributes:
        fresh: whether it was read from files just now, rather than found in the cache
    """

    arrays: Arrays
    layout: Layout
    where: Path
    verified: str
    fresh: bool = False

    @property
    def note(self) -> str:
        """What results on it must say."""
        return self.layout.note


def load_here(data: DataSet, folder: str | Path | None = None) -> Held:
    """The data set as it is on this machine, stored in the cache when it can be written."""
    held = load_if_here(data, folder)
    if held is None:
        raise MusterError(absent(data, folder))
    return held


@dataclass(frozen=True)
class Found:
    """Where a data set was found: in the cache (`stored`), or as files still to be read."""

    layout: Layout
    where: Path
    stored: Stored | None
    paths: list[Path]


def search(data: DataSet, folder: str | Path | None = None) -> Iterator[Found]:
    """Everywhere the data set may be on this machine. The whole one comes before a subset.

    What is cached is used, also for a folder that is named, if it came from that folder's files
    or has the checksum they must have.
    """
    for layout in data.layouts:
        key = data.key(layout)
        stored = cache.load(key)
        if stored and folder is None:
            yield Found(layout, cache.place(key), stored, [])
        for place in data.places(folder):
            if paths := layout.find(place):
                if stored and (stored.sha256 == layout.sha256 or stored.origin == origin(paths)):
                    yield Found(layout, cache.place(key), stored, paths)
                else:
                    yield Found(layout, place, None, paths)


def first_found(data: DataSet, folder: str | Path | None = None) -> Found | None:
    """The first place the data set may be, if there is one; files there are not read."""
    return next(search(data, folder), None)


def load_if_here(
    data: DataSet, folder: str | Path | None = None, must_store: bool = False
) -> Held | None:
    """The data set on this machine, or None; read and stored if it was not yet.

    Files of these names may be another data set's (MNIST and Fashion-MNIST share theirs), so the
    other places are looked at before wrong ones are complained of; but a subset never stands in
    for a whole data set whose files are wrong.
    """
    wrong: MusterError | None = None
    variant = ""
    for found in search(data, folder):
        if wrong and found.layout.variant != variant:
            break
        if found.stored:
            return Held(found.stored.arrays, found.layout, found.where, found.stored.verified)
        try:
            return convert(data, found.layout, found.paths, str(found.where), must_store)
        except MusterError as error:
            wrong, variant = wrong or error, found.layout.variant
    if wrong is not None:
        raise wrong
    return None


def absent(data: DataSet, folder: str | Path | None) -> str:
    """The line about a data set that is not here: what, where it was looked for, what to do."""
    usual = [] if folder is not None else [cache.place(data.name)]
    places = " or ".join(str(place) for place in [*usual, *data.places(folder)])
    files = " or ".join(some(layout.files) for layout in data.layouts)
    return f"{data.title} ({files}) is not in {places}; run `{data.command}`"


def some(files: Sequence[str]) -> str:
    """The first of some files, and how many more there are."""
    return files[0] + (f" and {len(files) - 1} more" if len(files) > 1 else "")


def convert(
    data: DataSet, layout: Layout, paths: list[Path], source: str, must_store: bool
) -> Held:
    """Read files, verify what they hold, and store it in the cache."""
    arrays = verified(data, layout, paths)
    where = paths[0].parent
    try:
        sha256 = layout.sha256 or cache.digest(arrays)
        known = Stored(arrays, sha256, layout.verified, source, origin(paths))
        where = cache.store(data.key(layout), known)
    except OSError:
        # A cache that cannot be written only costs time, unless it was to be written.
        if must_store:
            raise
    return Held(arrays, layout, where, layout.verified, fresh=True)


def verified(data: DataSet, layout: Layout, paths: list[Path]) -> Arrays:
    """A layout's arrays from its files, or one line about what is wrong with them."""
    if layout.file_digest:
        kind, _, expected = layout.file_digest.partition(":")
        with open(paths[0], "rb") as file:
            found = hashlib.file_digest(file, DIGESTS[kind]).hexdigest()
        if found != expected:
            raise MusterError(
                f"{paths[0]}: its {kind} is {found}, that of {data.title} is {expected}; "
                "the file is damaged or another one: get it again"
            )
    with one_line(paths[0].parent):
        arrays = layout.read(paths)
    for name, shape in layout.shapes.items():
        if arrays[name].shape != shape:
            raise MusterError(
                f"{paths[0].parent}: {name} has shape {arrays[name].shape}, that of {data.title} "
                f"is {shape}; the files are damaged or of another data set: get them again"
            )
    if layout.sha256 and (found := cache.digest(arrays)) != layout.sha256:
        raise MusterError(
            f"{paths[0].parent}: the arrays' sha256 is {found}, that of {data.title} is "
            f"{layout.sha256}; the files are damaged or of another data set: get them again"
        )
    return arrays


@contextmanager
def one_line(where: Path) -> Iterator[None]:
    """Whatever a reader stumbles over, as one line that names the place."""
    try:
        yield
    except MusterError:
        raise
    except (
        OSError,
        ValueError,
        KeyError,
        EOFError,
        SyntaxError,  # what pillow raises on a broken PNG
        zlib.error,
        zipfile.BadZipFile,
        tarfile.TarError,
        pl.exceptions.PolarsError,
    ) as error:
        raise MusterError(
            f"{where}: cannot be read ({first_line(error)}); the files are damaged: get them again"
        ) from error


def origin(paths: list[Path]) -> list[list[Any]]:
    """What tells files from changed ones without reading them: path, size, time."""
    return [[str(p.resolve()), (s := p.stat()).st_size, s.st_mtime_ns] for p in paths]


def obtain(data: DataSet, folder: str | Path | None = None, tick: Tick = quiet) -> Held:
    """The data set from the first place or source that has it, verified and in the cache."""
    for needed in data.needs:
        obtain(needed, tick=tick)
    for key in {data.key(layout) for layout in data.layouts}:
        cache.remove_damaged(key)
    held, reasons = None, []
    try:
        held = load_if_here(data, folder, must_store=True)
    except MusterError as error:
        if folder is not None or not data.sources:
            raise
        reasons = [str(error)]
    if held is None and (folder is not None or not data.sources):
        raise MusterError(absent(data, folder))
    if held is not None and (folder is not None or not data.sources or not held.layout.variant):
        return held
    with cache.workspace(data.name) as temporary:
        for i, source in enumerate(data.sources):
            into = temporary / str(i)
            into.mkdir()
            try:
                source.fetch(data.files, into, tick)
                for layout in data.layouts:
                    if paths := layout.find(into):
                        return convert(data, layout, paths, source.label, must_store=True)
                raise MusterError("it lacks the files")
            except (MusterError, OSError, http.HTTPException) as error:
                reasons.append(f"{source.label}: {first_line(error)}")
    used = "" if held is None else f"; meanwhile the {held.layout.variant} in {held.where} is used"
    files = "; or ".join(", ".join(x.files) for x in data.layouts)
    raise MusterError(
        f"{data.name} cannot be obtained ({'; '.join(reasons)}){used}; "
        f"put its files ({files}) in a folder and run `muster data get {data.name} --folder PATH`"
    )
