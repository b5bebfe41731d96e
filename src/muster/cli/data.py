"""`muster data`: every data set, if it is here, and the command that gets it."""

from __future__ import annotations

import argparse

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from ..data.sources import cache
from ..data.sources.catalogue import CATALOGUE, EMBEDDED
from ..data.sources.dataset import DataSet, Layout, locate
from .arguments import CommandParser
from .console import print_line

DESCRIPTION = """\
Every data set, if it is here, and the command that gets it.

muster data                            list them
muster data get NAME [--folder PATH]   obtain it, verify it, store it once
muster data show NAME ...              look at a federation built from it
muster data check FOLDER               find every problem of your own files; write a manifest
"""


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    parser.description = DESCRIPTION.rstrip()
    parser.add_flag("--markdown", action="store_true", help="print the table of docs/data.md")
    parser.add_commands(
        {
            "get": "obtain a data set, verify it, store it once",
            "check": "find every problem of your own files, and write a manifest",
            "show": "show the clients and rows of a federation, as a table and a picture",
        }
    )


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    if arguments.markdown:
        print(format_markdown())
    else:
        list_data(console)
    return 0


def list_data(console: Console) -> None:
    """Print a row for each data set, then the folders that were searched."""
    table = Table(box=SIMPLE_HEAD, show_lines=True, pad_edge=False)
    for head in ("name", "here", "size", "what it is, where, licence, how to get it"):
        table.add_column(head, overflow="fold")
    for entry in CATALOGUE.values():
        here, size, where = find_state(entry)
        lines = [f"{entry.title}: {entry.about}", where, f"licence: {entry.licence}", entry.command]
        table.add_row(entry.name, here, size, Text("\n".join(line for line in lines if line)))
    console.print(table)
    installed = [entry.installed for entry in CATALOGUE.values() if entry.installed]
    places = [cache.entry_path("NAME"), *CATALOGUE["mnist"].places()[:1], cache.root() / "NAME"]
    searched = ", ".join(str(place) for place in [*places, *installed])
    print_line(console, f"looked for in {searched}; set MUSTER_DATA to store data elsewhere")


def format_markdown() -> str:
    """Return the table of docs/data.md: data sets with rows, sources and how they are verified."""
    lines = ["| name | what it is | rows | comes from | verified by | licence |", "|---" * 6 + "|"]
    for entry in CATALOGUE.values():
        own = "comes with muster" if entry.installed == EMBEDDED else "a folder of yours"
        own = own if entry.layouts else "always there"
        sources = "<br>".join([own, *(f"`{source.label}`" for source in entry.sources)])
        rows = "<br>".join(dict.fromkeys(count_rows(layout) for layout in entry.layouts)) or "-"
        how = "<br>".join(
            dict.fromkeys(f"{format_variant(layout)}{layout.verified}" for layout in entry.layouts)
        )
        cells = (f"`{entry.name}`", f"{entry.title}: {entry.about}", rows, sources, how or "-")
        lines.append(f"| {' | '.join(cells)} | {entry.licence} |")
    return "\n".join(lines)


def format_variant(layout: Layout) -> str:
    """Return the name of a layout that is a variant of its data set."""
    return f"{layout.variant}: " if layout.variant else ""


def count_rows(layout: Layout) -> str:
    """Return the numbers of rows in files of a layout: training and test, or of each client."""
    halves = [name for name in ("x", "test_x", "vectors") if name in layout.shapes]
    rows = [f"{layout.shapes[name][0]:,}" for name in halves or layout.shapes]
    return format_variant(layout) + " + ".join(rows)


def find_state(entry: DataSet) -> tuple[str, str, str]:
    """Return if a data set is here, its size on disk or to download, and its folder."""
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
