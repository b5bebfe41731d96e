"""`muster report`: results as one HTML file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ..base.errors import MusterError, command_line
from ..report.html.advice import write_page, write_site_page
from ..report.html.page import report_public
from ..results.run import Run
from ..study.advice_store import is_advice, load_advice
from ..study.comparison import Comparison
from ..study.load import combine, load
from ..study.sweep_result import Sweep
from .arguments import CommandParser
from .console import print_line
from .options import add_flags, split_names

REPORT = "report.html"


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    text = "such as runs/demo; several are compared on the seeds they share"
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help=text)
    add_flags(
        parser,
        ("--out", "FILE", "file to write (FOLDER/report.html)"),
        ("--title", "TEXT", "title of the page"),
        ("--for", "NAME,...", "with advice: pages of these clients alone, next to --out"),
    )
    text = "released numbers of private runs alone (docs/privacy.md)"
    parser.add_flag("--public", action="store_true", help=text)


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    if not arguments.folders:
        raise MusterError("report: of which results? give a folder, such as runs/demo")
    folders = [Path(folder) for folder in arguments.folders]
    out = arguments.out or (folders[0] / REPORT if len(folders) == 1 else REPORT)
    if Path(out).suffix.lower() not in (".html", ".htm"):
        raise MusterError(f"--out: '{out}'; give the name of an .html file")
    sites = split_names(arguments)
    if len(folders) == 1 and is_advice(folders[0]):
        if arguments.public:
            raise MusterError(f"--public: {folders[0]} is advice, about single clients' rows")
        return report_advice(folders[0], Path(out), arguments.title or "", sites, console)
    found = load(folders[0]) if len(folders) == 1 else combine(folders)
    if sites:
        raise MusterError(
            "--for: only advice has pages for single clients; get it with muster advise"
        )
    if isinstance(found, Comparison) and not found.seeds:
        again = command_line("muster", "compare", "--resume", folders[0])
        raise MusterError(f"{folders[0]}: no seed is complete yet; continue with: {again}")
    title = arguments.title or ""
    if not arguments.public:
        print_line(console, f"report:  {found.report(out, title)}")
        return 0
    if isinstance(found, Sweep):
        raise MusterError(f"--public: {folders[0]} is a sweep; give one of its cells")
    runs = {found.label: [found]} if isinstance(found, Run) else found.matched
    print_line(console, f"report:  {report_public(runs, out, title)}")
    return 0


def report_advice(
    folder: Path, out: Path, title: str, sites: Sequence[str], console: Console
) -> int:
    """Write the page of advice again, or those of single clients."""
    found = load_advice(folder)
    pages = [write_site_page(found, name, out.parent, title) for name in sites]
    pages = pages or [write_page(found, out, title)]
    print_line(console, f"report:  {', '.join(str(path) for path in pages)}")
    return 0
