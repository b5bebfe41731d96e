"""Data sets as files: find them on this machine or download them, verify, and cache them.

A `DataSet` has layouts (files that may hold it, and how they become arrays) and sources (where
those files can be downloaded from). `load_local` looks on this machine: in the cache, in a folder
the user names, among files in the cache's root, where a system package puts it. `obtain` also
downloads, from the sources in order. Files are read, verified by checksums and counts, and their
arrays stored once in the cache.
"""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import MusterError, first_line
from ...base.lazy import pl, pooch
from . import cache
from .cache import Arrays, CacheEntry
from .download import Progress, Source, no_progress


@dataclass(frozen=True)
class Layout:
    """Files that hold a data set, and how they become its arrays.

    Attributes:
        files: their names; each may also end in .gz
        read: reads the arrays from the files, in that order
        shapes: shapes of the arrays, which are always checked
        sha256: checksum of the arrays (`cache.digest`), where it is known
        file_digest: "md5:..." or "sha256:...", the checksum of a layout's only file
        variant: "" for the data set itself, "subset" for a part of it
        note: a remark that is shown with results on these files
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
        """The checksums and counts by which the files are verified, in words."""
        how = ["sha256 of the arrays"] if self.sha256 else []
        if self.file_digest:
            how.append(f"{self.file_digest.partition(':')[0]} of {self.files[0]}")
        return " and ".join([*how, "counts"])

    def find(self, folder: Path) -> list[Path] | None:
        """Find its files in a folder, gzipped or plain; None unless all are there."""
        found = [
            next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)
            for name in self.files
        ]
        whole = [path for path in found if path is not None]
        return whole if len(whole) == len(self.files) else None


@dataclass(frozen=True)
class DataSet:
    """A data set by name, the files that may hold it, and where to download them.

    Attributes:
        size: bytes that `muster data get` downloads
        installed: where a package, of the system or this one, puts the files
        needs: other data sets that are needed to read its files
        shown_by: its name for `muster data show` (and --data), where that is another
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
        """Return the cache key of a layout."""
        return f"{self.name}-{layout.variant}" if layout.variant else self.name

    @property
    def command(self) -> str:
        """The command that downloads it; "" if it is always there."""
        if not self.layouts:
            return ""
        return f"muster data get {self.name}" + ("" if self.sources else " --folder PATH")

    @property
    def files(self) -> frozenset[str]:
        """All names its files may have."""
        names = [name for layout in self.layouts for name in layout.files]
        return frozenset([*names, *(f"{name}.gz" for name in names)])

    def places(self, folder: str | Path | None = None) -> list[Path]:
        """Return the folders to look for files in: the given one, or else the default ones."""
        base = cache.root() if folder is None else Path(folder).expanduser()
        usual = [self.installed] if self.installed and folder is None else []
        return [base, base / self.name, *usual]


@dataclass(frozen=True)
class LocalData:
    """A data set on this machine: its arrays, where they are, and how they were verified.

    Attributes:
        fresh: True if it was read from files just now, False if it was in the cache
    """

    arrays: Arrays
    layout: Layout
    where: Path
    verified: str
    fresh: bool = False

    @property
    def note(self) -> str:
        """A remark that is shown with results on it."""
        return self.layout.note


def load_local(data: DataSet, folder: str | Path | None = None) -> LocalData:
    """Load a data set from this machine, and store it in the cache if that can be written."""
    found = find_local(data, folder)
    if found is None:
        raise MusterError(describe_absence(data, folder))
    return found


@dataclass(frozen=True)
class Location:
    """A place that has a data set: a cache entry, or files still to be read."""

    layout: Layout
    where: Path
    entry: CacheEntry | None
    paths: list[Path]


def search(data: DataSet, folder: str | Path | None = None) -> Iterator[Location]:
    """Yield every location of a data set on this machine, the whole one before a subset.

    A cache entry is used, also for a given folder, if it was read from that folder's files or has
    the checksum they must have.
    """
    for layout in data.layouts:
        key = data.key(layout)
        entry = cache.load(key)
        if entry and folder is None:
            yield Location(layout, cache.entry_path(key), entry, [])
        for place in data.places(folder):
            if paths := layout.find(place):
                if entry and (entry.sha256 == layout.sha256 or entry.origin == stat_files(paths)):
                    yield Location(layout, cache.entry_path(key), entry, paths)
                else:
                    yield Location(layout, place, None, paths)


def locate(data: DataSet) -> Location | None:
    """Return the first location of a data set, or None; its files are not read."""
    return next(search(data), None)


def find_local(
    data: DataSet, folder: str | Path | None = None, must_store: bool = False
) -> LocalData | None:
    """Return the data set on this machine, read and cached if it was not yet, or None.

    Files of these names may be another data set's (MNIST and Fashion-MNIST share theirs), so all
    places are tried before wrong files are an error; but a subset never replaces a whole data set
    whose files are wrong.
    """
    wrong: MusterError | None = None
    variant = ""
    for found in search(data, folder):
        if wrong and found.layout.variant != variant:
            break
        if entry := found.entry:
            return LocalData(entry.arrays, found.layout, found.where, entry.verified)
        try:
            return convert(data, found.layout, found.paths, str(found.where), must_store)
        except MusterError as error:
            wrong, variant = wrong or error, found.layout.variant
    if wrong is not None:
        raise wrong
    return None


def describe_absence(data: DataSet, folder: str | Path | None) -> str:
    """Return the line about a data set that is not here: where it was looked for, what to do."""
    usual = [] if folder is not None else [cache.entry_path(data.name)]
    places = " or ".join(str(place) for place in [*usual, *data.places(folder)])
    files = " or ".join(abbreviate(layout.files) for layout in data.layouts)
    return f"{data.title} ({files}) is not in {places}; run `{data.command}`"


def abbreviate(files: Sequence[str]) -> str:
    """Name the first of some files, and count the others."""
    return files[0] + (f" and {len(files) - 1} more" if len(files) > 1 else "")


def convert(
    data: DataSet, layout: Layout, paths: list[Path], source: str, must_store: bool
) -> LocalData:
    """Read files, verify them, and store their arrays in the cache."""
    arrays = read_and_verify(data, layout, paths)
    where = paths[0].parent
    try:
        sha256 = layout.sha256 or cache.digest(arrays)
        entry = CacheEntry(arrays, sha256, layout.verified, source, stat_files(paths))
        where = cache.store(data.key(layout), entry)
    except OSError:
        # A cache that cannot be written only costs time, unless it was to be written.
        if must_store:
            raise
    return LocalData(arrays, layout, where, layout.verified, fresh=True)


def read_and_verify(data: DataSet, layout: Layout, paths: list[Path]) -> Arrays:
    """Read a layout's arrays and verify them by checksums and counts."""
    if layout.file_digest:
        kind, _, expected = layout.file_digest.partition(":")
        found = pooch.file_hash(str(paths[0]), alg=kind)
        if found != expected:
            raise MusterError(
                f"{paths[0]}: its {kind} is {found}, that of {data.title} is {expected}; "
                "the file is damaged or another one: get it again"
            )
    with reader_errors(paths[0].parent):
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
def reader_errors(where: Path) -> Iterator[None]:
    """Turn any error of a reader into one line that names the place."""
    try:
        yield
    except MusterError:
        raise
    except (
        OSError,
        ValueError,
        KeyError,
        EOFError,
        SyntaxError,  # which pillow raises on a broken PNG
        zlib.error,
        zipfile.BadZipFile,
        tarfile.TarError,
        pl.exceptions.PolarsError,
    ) as error:
        raise MusterError(
            f"{where}: cannot be read ({first_line(error)}); the files are damaged: get them again"
        ) from error


def stat_files(paths: list[Path]) -> list[list[Any]]:
    """Return path, size and time of files, by which a changed file is noticed."""
    return [[str(p.resolve()), (s := p.stat()).st_size, s.st_mtime_ns] for p in paths]


def obtain(
    data: DataSet, folder: str | Path | None = None, report: Progress = no_progress
) -> LocalData:
    """Get a data set from this machine or by download, verified and in the cache."""
    for needed in data.needs:
        obtain(needed, report=report)
    for key in {data.key(layout) for layout in data.layouts}:
        cache.remove_corrupt(key)
    found, reasons = None, []
    try:
        found = find_local(data, folder, must_store=True)
    except MusterError as error:
        if folder is not None or not data.sources:
            raise
        reasons = [str(error)]
    if found is None and (folder is not None or not data.sources):
        raise MusterError(describe_absence(data, folder))
    if found is not None and (folder is not None or not data.sources or not found.layout.variant):
        return found
    with cache.workspace(data.name) as temporary:
        for i, source in enumerate(data.sources):
            into = temporary / str(i)
            into.mkdir()
            try:
                source.fetch(data.files, into, report)
                for layout in data.layouts:
                    if paths := layout.find(into):
                        return convert(data, layout, paths, source.label, must_store=True)
                raise MusterError("it lacks the files")
            except (MusterError, OSError) as error:  # errors of requests are OSErrors
                reasons.append(f"{source.label}: {first_line(error)}")
    used = ""
    if found is not None:
        used = f"; meanwhile the {found.layout.variant} in {found.where} is used"
    files = "; or ".join(", ".join(x.files) for x in data.layouts)
    raise MusterError(
        f"{data.name} cannot be obtained ({'; '.join(reasons)}){used}; "
        f"put its files ({files}) in a folder and run `muster data get {data.name} --folder PATH`"
    )
