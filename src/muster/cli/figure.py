"""`muster figure`: the figure of results, drawn again or for a paper."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from ..base.errors import MusterError
from ..report.figure import check_figure_path, draw_figure
from ..report.paper_figure import draw_paper_figure
from ..results.run import Run
from ..study.load import load
from ..study.sweep_result import Sweep
from .arguments import CommandParser
from .console import print_line
from .options import add_flags


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help="such as runs/demo")
    text = "at a column's width, with paired differences: FOLDER/paper.pdf and .svg"
    parser.add_flag("--paper", action="store_true", help=text)
    parser.add_flag("--wide", action="store_true", help="with --paper: across both columns")
    add_flags(
        parser,
        ("--panels", "NAME,...", "measures to draw, such as loss,fairness"),
        ("--out", "FILE", "one file instead: a .png, .pdf or .svg"),
    )


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    if arguments.folder is None:
        raise MusterError("figure: of which results? give a folder, such as runs/demo")
    folder = Path(arguments.folder)
    found = load(folder)
    if arguments.wide and not arguments.paper:
        raise MusterError("--wide: is for --paper; give both, or neither")
    names = ("paper.pdf", "paper.svg") if arguments.paper else ("figure.png",)
    files = [folder / name for name in names]
    if arguments.out is not None:
        files = [check_figure_path(arguments.out, "--out")]
    paper, wide = bool(arguments.paper), bool(arguments.wide)
    for file in files:
        if isinstance(found, Sweep):
            found.figure(file, arguments.panels, paper=paper, wide=wide)
            continue
        runs = {found.label: [found]} if isinstance(found, Run) else found.matched
        usual = found.config.get("panels", ()) if isinstance(found, Run) else found.panels
        if paper:
            draw_paper_figure(runs, file, arguments.panels or usual, wide)
        else:
            draw_figure(runs, file, arguments.panels or usual)
    print_line(console, f"figure:  {', '.join(map(str, files))}")
    return 0
