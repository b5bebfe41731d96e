"""`muster show`: the tables of saved results, and their figure."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ..base import durable
from ..base.errors import MusterError, command_line
from ..report.figure import check_figure_path, draw_figure
from ..report.intervals import summary as summarise
from ..report.table_files import check_table_path, write_table
from ..report.tables import run_table
from ..results import store
from ..results.measures import find_measures
from ..study.comparison import Comparison, is_comparison, load_comparison
from ..study.load import describe_tuning, get_resume_command, is_tuning
from ..study.sweep_result import is_sweep, load_sweep
from .arguments import CommandParser
from .console import print_line
from .options import add_flags


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help="such as runs/demo")
    add_flags(parser, ("--measures", "NAME,...", "measures to print, such as loss,fairness"))
    parser.add_flag("--measure", dest="measures", metavar="NAME,...", help="the same")
    add_flags(
        parser,
        ("--figure", "FILE", "draw them as well: a .png, .pdf or .svg"),
        ("--panels", "NAME,...", "measures to draw, such as loss,fairness"),
        ("--against", "KEY", "key of a sweep that is the figure's x-axis"),
        ("--table", "FILE", "write the table too: a .csv, .tex or .parquet"),
    )


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    if arguments.folder is None:
        raise MusterError("show: give one folder of results, such as runs/demo")
    if arguments.against and not (arguments.figure and is_sweep(Path(arguments.folder))):
        raise MusterError("--against: of which figure? give a sweep, and --figure FILE.png")
    if arguments.panels and not arguments.figure:
        raise MusterError("--panels: of which figure? give --figure FILE.png as well")
    out = None if arguments.figure is None else check_figure_path(arguments.figure, "--figure")
    table = None if arguments.table is None else check_table_path(arguments.table, "--table")
    folder = Path(arguments.folder)
    keys: Sequence[str]
    if store.is_run(folder):
        run = store.load(folder)
        measures = arguments.measures or run.config.get("measures", ())
        panels = arguments.panels or arguments.measures or run.config.get("panels") or measures
        console.print(run_table(run, measures))
        drawn = None if out is None else draw_figure({run.label: [run]}, out, panels)
        summary, keys = summarise({run.label: [run]}, (len(run.rounds),), measures), ()
    elif is_sweep(folder):
        sweep = load_sweep(folder)
        if arguments.measures:
            sweep = replace(
                sweep, measures=tuple(m.name for m in find_measures(arguments.measures))
            )
        console.print(sweep)
        drawn = None if out is None else sweep.figure(out, arguments.panels, arguments.against)
        summary, keys = sweep.summary(), sweep.keys
    elif is_comparison(folder):
        result: Comparison = load_comparison(folder)
        if not result.seeds:
            again = command_line("muster", "compare", "--resume", folder)
            raise MusterError(f"{folder}: no seed is complete yet; continue with: {again}")
        if arguments.measures:
            result = replace(result, measures=arguments.measures, panels=())
        console.print(result)
        drawn = None if out is None else result.figure(out, arguments.panels)
        summary, keys = result.summary(), ["round"]
    else:
        raise MusterError(f"{folder}: {explain_missing(folder)}")
    if table is not None:
        print_line(console, f"table:   {write_table(summary, table, keys)}")
    if drawn is not None:
        print_line(console, f"figure:  {drawn}")
    return 0


def explain_missing(folder: Path) -> str:
    """Return why a folder has no results to show, and what to do."""
    if durable.in_use(folder / "checkpoints"):
        return f"under way; follow it with: {command_line('muster', 'watch', folder)}"
    if (folder / "checkpoints").exists():
        return f"not done yet; continue with: {get_resume_command(folder)}"
    if is_tuning(folder):
        return describe_tuning(folder)
    return "no results here; give a folder such as runs/demo"
