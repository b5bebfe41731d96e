"""`muster data`: every data set, whether it is here, and the one command that gets it."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from ..base.errors import MusterError, format_known, unknown_name
from ..data.sources import cache
from ..data.sources.catalogue import CATALOGUE
from ..data.sources.dataset import DataSet, Layout, LocalData, locate, obtain
from .console import say


def data(words: argparse.Namespace, console: Console) -> int:
    """`muster data`, or `muster data --markdown`."""
    if words.markdown:
        print(markdown())
    else:
        listing(console)
    return 0


def listing(console: Console) -> None:
    """A row for each data set; then where they were looked for."""
    table = Table(box=SIMPLE_HEAD, show_lines=True, pad_edge=False)
    for head in ("name", "here", "size", "what it is, where, licence, how to get it"):
        table.add_column(head, overflow="fold")
    for entry in CATALOGUE.values():
        here, size, where = state(entry)
        what = [f"{entry.title}: {entry.about}", where, f"licence: {entry.licence}", entry.command]
        table.add_row(entry.name, here, size, Text("\n".join(line for line in what if line)))
    console.print(table)
    installed = [entry.installed for entry in CATALOGUE.values() if entry.installed]
    places = [cache.entry_path("NAME"), *CATALOGUE["mnist"].places()[:1], cache.root() / "NAME"]
    looked = ", ".join(str(place) for place in [*places, *installed])
    say(console, f"looked for in {looked}; set MUSTER_DATA to keep data elsewhere")


def markdown() -> str:
    """Every data set, its rows, where it comes from and how it is verified, for docs/data.md."""
    lines = ["| name | what it is | rows | comes from | verified by | licence |", "|---" * 6 + "|"]
    for entry in CATALOGUE.values():
        own = "a folder of yours" if entry.layouts else "always there"
        came = "<br>".join([own, *(f"`{source.label}`" for source in entry.sources)])
        rows = "<br>".join(dict.fromkeys(counts(layout) for layout in entry.layouts)) or "-"
        how = "<br>".join(
            dict.fromkeys(f"{said(layout)}{layout.verified}" for layout in entry.layouts)
        )
        cells = (f"`{entry.name}`", f"{entry.title}: {entry.about}", rows, came, how or "-")
        lines.append(f"| {' | '.join(cells)} | {entry.licence} |")
    return "\n".join(lines)


def said(layout: Layout) -> str:
    """The name of a layout that is not the data set itself."""
    return f"{layout.variant}: " if layout.variant else ""


def counts(layout: Layout) -> str:
    """How many rows files of a layout hold: to train and to test, or of each client."""
    halves = [name for name in ("x", "test_x", "vectors") if name in layout.shapes]
    rows = [f"{layout.shapes[name][0]:,}" for name in halves or layout.shapes]
    return said(layout) + " + ".join(rows)


def state(entry: DataSet) -> tuple[str, str, str]:
    """Whether a data set is here; its size, on disk or still to be fetched; and where it is."""
    if not entry.layouts:
        return "always", "-", ""
    try:
        found = locate(entry)
    except cache.CacheError as error:
        return "damaged", decimal(entry.size), str(error)
    if found is None:
        return "no", decimal(entry.size), ""
    files = list(found.where.iterdir()) if found.entry else found.paths
    size = decimal(sum(path.stat().st_size for path in files))
    return found.layout.variant or "yes", size, f"in {found.where}"


def get(words: argparse.Namespace, console: Console) -> int:
    """`muster data get NAME [--folder PATH]`."""
    if len(words.names) != 1:
        raise MusterError(f"data get: give one data set; {format_known(CATALOGUE)}")
    (name,), folder = words.names, words.folder
    if folder is not None and not Path(folder).expanduser().is_dir():
        raise MusterError(f"--folder: {folder} is no folder; give the one with the files")
    if parts := [key for key in CATALOGUE if key.startswith(f"{name}_")]:
        raise MusterError(
            f"data get: {name} has parts, which are got one by one: {', '.join(parts)}"
        )
    if name not in CATALOGUE:
        raise unknown_name("data set", name, CATALOGUE)
    entry = CATALOGUE[name]
    if not entry.layouts:
        console.print(f"{name} is always there; nothing to get")
        return 0
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(name, total=None, amount="")

        def report(what: str, done: int, total: int | None) -> None:
            said = f"{name}: {what}"
            progress.update(
                task, description=said, completed=done, total=total, amount=amount(done, total)
            )

        held = obtain(entry, folder, report)
    say(console, summary(entry, held))
    return 0


def amount(done: int, total: int | None) -> str:
    """How much has come; nothing where what fetches it (npm, apt, pip) does not say.

    >>> amount(0, None), amount(2_500_000, None), amount(2_500_000, 30_000_000)
    ('', '2.5 MB', '2.5 MB of 30.0 MB')
    """
    if not done and total is None:
        return ""
    return decimal(done) if total is None else f"{decimal(done)} of {decimal(total)}"


def summary(entry: DataSet, held: LocalData) -> str:
    """What there is now, where, and how it was verified."""
    done = "verified" if held.fresh else "already there"
    lines = [
        f"{entry.name}: {done}, {counts(held.layout)} rows ({held.verified})",
        f"in {held.where}",
    ]
    return "\n".join([*lines, *([f"note: {held.note}"] if held.note else [])])
