"""`muster data get`: a data set, obtained, verified and stored once."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn

from ..base.errors import MusterError, list_names, unknown_name
from ..data.sources.catalogue import CATALOGUE
from ..data.sources.dataset import DataSet, LocalData, obtain
from .arguments import CommandParser
from .console import print_line
from .data import count_rows
from .options import add_flags


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="as `muster data` lists it")
    add_flags(parser, ("--folder", "PATH", "take the files from here, download nothing"))


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    if len(arguments.names) != 1:
        raise MusterError(f"data get: give one data set; {list_names(CATALOGUE)}")
    (name,), folder = arguments.names, arguments.folder
    if folder is not None and not Path(folder).expanduser().is_dir():
        raise MusterError(f"--folder: {folder} is no folder; give the one with the files")
    if parts := [key for key in CATALOGUE if key.startswith(f"{name}_")]:
        raise MusterError(f"data get: {name} has parts; get them one by one: {', '.join(parts)}")
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
            amount = format_amount(done, total)
            text = f"{name}: {what}"
            progress.update(task, description=text, completed=done, total=total, amount=amount)

        held = obtain(entry, folder, report)
    print_line(console, summarise(entry, held))
    return 0


def format_amount(done: int, total: int | None) -> str:
    """Return how much was downloaded; "" if the tool (npm, apt, pip) does not report it.

    >>> format_amount(0, None), format_amount(2_500_000, None), format_amount(2_500_000, 30_000_000)
    ('', '2.5 MB', '2.5 MB of 30.0 MB')
    """
    if not done and total is None:
        return ""
    return decimal(done) if total is None else f"{decimal(done)} of {decimal(total)}"


def summarise(entry: DataSet, held: LocalData) -> str:
    """Return the number of rows of a data set, how they were verified, and their folder."""
    done = "verified" if held.fresh else "already there"
    lines = [
        f"{entry.name}: {done}, {count_rows(held.layout)} rows ({held.verified})",
        f"in {held.where}",
    ]
    return "\n".join([*lines, *([f"note: {held.note}"] if held.note else [])])
