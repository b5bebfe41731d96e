"""`muster tune`: a grid of settings for each method, with the same budget for all."""

from __future__ import annotations

import argparse

from rich.console import Console

from ..base.errors import INTERRUPTED, MusterError, command_line
from ..config.experiment import load_table
from ..study import tune
from ..study.units import SharesUnderWay
from .arguments import CommandParser
from .console import print_line
from .options import add_configuration, check_kind, find_resume_folder, read_configuration
from .placement import add_placement, describe_shares, find_folder, open_placement
from .progress_bar import Cells
from .result_folder import NewResults, explain_errors, explain_interrupt


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
        check_kind(resumed, "tuning")
        table = load_table(resumed / "config.toml", follow=False)
        if "tune" not in table:
            raise MusterError(f"--resume {resumed}: holds no tuning")
    plan = tune.plan_tuning(table, None, trusted=resumed is None or arguments.trust_code)
    s = next(iter(plan.cells.values()))[0].chosen.settings
    total = sum(len(cell.seeds) for cells in plan.cells.values() for cell in cells)
    with open_placement(arguments) as where:
        shared = where.share is not None
        new = NewResults("tune", s, plan.config, lambda folder: (folder / tune.MARKER).exists())
        folder = find_folder(new, resumed, where, console)
        with explain_errors(folder, "tune", shared):
            try:
                with Cells(total, console) as progress:
                    result = tune.run_tuning(plan, folder, where, progress.count)
            except tune.TuningInterrupted:
                print_line(console, explain_interrupt(folder, "tune", shared))
                return INTERRUPTED
            except SharesUnderWay as left:
                again = command_line("muster", "tune", "--resume", folder)
                print_line(console, describe_shares(where.share, left, again))
                return 0
    console.print(result)
    chosen = folder / tune.MARKER
    print_line(console, f"results: {folder} (every score in tuning.parquet)")
    again = command_line("muster", "compare", chosen)
    print_line(console, f"chosen:  {chosen}; run it with: {again}")
    return 0
