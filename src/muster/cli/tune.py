"""`muster tune`: a grid of settings for each method, with the same budget for all."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from ..base import durable
from ..base.errors import INTERRUPTED, MusterError
from ..config.experiment import load_table
from ..study import tune
from .arguments import CommandParser
from .console import print_line
from .options import (
    add_configuration,
    add_flags,
    find_resume_folder,
    parse_whole,
    read_configuration,
)
from .progress_bar import Cells
from .result_folder import explain_errors, explain_interrupt


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    add_configuration(parser, several=True)
    add_flags(parser, ("--jobs", "N", "cells at once; default: as many as cores"))


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    resumed = find_resume_folder(arguments)
    if resumed is None:
        table = read_configuration(arguments)
    else:
        table = load_table(resumed / "config.toml", follow=False)
    if resumed is not None and "tune" not in table:
        raise MusterError(f"--resume {resumed}: holds no tuning")
    jobs = parse_whole(arguments.jobs, "--jobs")
    plan = tune.plan_tuning(table, None, trusted=resumed is None or arguments.trust_code)
    s = next(iter(plan.cells.values()))[0].chosen.settings
    folder = resumed or durable.new_folder(Path(s.out) / s.name)
    total = sum(len(cell.seeds) for cells in plan.cells.values() for cell in cells)
    with explain_errors(folder, "tune"):
        try:
            with Cells(total, console) as progress:
                result = tune.run_tuning(plan, folder, jobs, progress.count)
        except tune.TuningInterrupted:
            print_line(console, explain_interrupt(folder, "tune"))
            return INTERRUPTED
    console.print(result)
    chosen = folder / tune.MARKER
    print_line(console, f"results: {folder} (every score in tuning.parquet)")
    print_line(console, f"chosen:  {chosen}; run it with: muster compare {chosen}")
    return 0
