"""`muster report`: results as one HTML file."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from ..base.errors import MusterError
from ..report.html.page import report_public
from ..results.run import Run
from ..study.comparison import Comparison
from ..study.load import combine, load
from ..study.sweep_result import Sweep
from .arguments import CommandParser
from .console import print_line
from .options import add_flags

REPORT = "report.html"


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    text = "such as runs/demo; several are compared on the seeds they share"
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help=text)
    add_flags(
        parser,
        ("--out", "FILE", "file to write (FOLDER/report.html)"),
        ("--title", "TEXT", "title of the page"),
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
    found = load(folders[0]) if len(folders) == 1 else combine(folders)
    if isinstance(found, Comparison) and not found.seeds:
        again = f"muster compare --resume {folders[0]}"
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
