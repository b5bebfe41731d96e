"""`muster sweep`: every method on matched seeds in every cell of a grid of settings."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from ..base import durable
from ..base.errors import INTERRUPTED, MusterError, command_line, plural
from ..config.experiment import load_table
from ..config.settings import Settings
from ..report.figure import parse_formats
from ..report.table_files import write_tables
from ..study.sweep import SweepInterrupted, plan_sweep, run_sweep
from ..study.sweep_result import Sweep, is_sweep
from ..study.units import SharesUnderWay
from .arguments import CommandParser
from .console import print_line
from .options import add_configuration, check_kind, find_resume_folder, read_configuration
from .placement import add_placement, describe_shares, find_folder, open_placement
from .progress_bar import Cells
from .result_folder import FRUITLESS, NewResults, explain_errors, explain_interrupt


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    add_configuration(parser, several=True)
    add_placement(parser)


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    resumed = find_resume_folder(arguments)
    if resumed is None:
        table = read_configuration(arguments)
    else:
        check_kind(resumed, "sweep")
        if not is_sweep(resumed):
            raise MusterError(f"--resume {resumed}: holds no sweep")
        table = load_table(resumed / "config.toml", follow=False)
    plan = plan_sweep(table, None, trusted=resumed is None or arguments.trust_code)
    s = plan.first.settings
    code = 0
    with open_placement(arguments) as where:
        shared = where.share is not None
        new = NewResults("sweep", s, plan.config, plan.is_done)
        folder = find_folder(new, resumed, where, console)
        with explain_errors(folder, "sweep", shared):
            try:
                with Cells(sum(len(cell.seeds) for cell in plan.cells), console) as progress:
                    result = run_sweep(plan, folder, where, progress.count)
            except SweepInterrupted as stop:
                result, code = stop.sweep, INTERRUPTED
            except SharesUnderWay as left:
                again = command_line("muster", "sweep", "--resume", folder)
                print_line(console, describe_shares(where.share, left, again))
                return 0
    if code:
        print_line(console, explain_interrupt(folder, "sweep", shared))
    if len(result.frame):
        show_sweep(result, folder, s, console)
    if code or not result.idle:
        return code
    print_line(
        console,
        f"no success: in {plural(result.idle, 'run')} every round was skipped, so nothing was "
        "learned; clients.parquet of each has the reasons",
    )
    return FRUITLESS


def show_sweep(result: Sweep, folder: Path, s: Settings, console: Console) -> None:
    """Print a sweep, and write its tables, figure and report to its folder."""
    console.print(result)
    with durable.atomic_file(folder / "sweep.parquet") as new:
        result.frame.write_parquet(new)
    write_tables(result.summary(), folder, result.keys)
    cells = plural(len([p for p in folder.iterdir() if p.is_dir()]), "cell")
    print_line(console, f"results: {folder} ({cells}; every round in sweep.parquet)")
    try:
        panels = s.panels or None
        drawn = [
            result.figure(folder / f"figure.{name}", panels) for name in parse_formats(s.figures)
        ]
        print_line(console, f"figure:  {', '.join(map(str, drawn))}")
    except MusterError as error:  # a grid may be too large for one: everything else is written
        print_line(console, f"figure:  none: {error}")
    print_line(console, f"report:  {result.report(folder / 'report.html')}")
