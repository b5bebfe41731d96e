"""`muster compare`: several methods on matched seeds, with paired intervals."""

from __future__ import annotations

import argparse
from itertools import chain

from rich.console import Console

from ..base.errors import INTERRUPTED, plural
from ..report.figure import draw_figures
from ..report.table_files import write_tables
from ..study.compare import ComparisonInterrupted
from ..study.experiment_runs import check_experiment, compare_experiment
from .arguments import CommandParser
from .console import print_line
from .options import add_configuration, load_experiment
from .progress_bar import Progress
from .result_folder import list_files, open_folder, report_idle
from .tracking import add_track, check_trackers, open_trackers

USUAL = ("fedalign", "fedavg_priority", "fedavg", "local")  # compared where no method is named


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    add_configuration(parser, several=True)
    add_track(parser)


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    trackers = check_trackers(arguments.track)
    experiment, resumed = load_experiment(arguments, "comparison", several=USUAL)
    s = experiment.settings
    seeds = s.all_seeds
    first = experiment.federation(seeds[0])  # before anything is written: the data may be missing
    check_experiment(experiment, first, seeds[0])
    code = 0
    rounds = s.rounds * len(seeds) * len(experiment.methods)
    with (
        open_folder(experiment, resumed) as folder,
        Progress(rounds, console) as progress,
        open_trackers(trackers, s.name, folder, progress, console) as listeners,
    ):
        try:
            result = compare_experiment(
                experiment,
                folder,
                lambda seed: first if seed == seeds[0] else experiment.federation(seed),
                on_start=listeners.start,
                on_round=listeners,
            )
        except ComparisonInterrupted as stop:
            result, code = stop.comparison, INTERRUPTED
    if code:
        done = f"{len(result.seeds)} of {plural(len(seeds), 'seed')} complete"
        again = f"muster compare --resume {folder}"
        print_line(console, f"interrupted with {done}; continue with: {again}")
    if result.seeds:
        console.print(result)
        write_tables(result.summary(), folder)
        drawn = draw_figures(result.matched, folder, s.figures, s.shown_in_figure)
        print_line(console, list_files(folder, drawn, result.report(folder / "report.html")))
    return code or report_idle(chain.from_iterable(result.runs.values()), console)
