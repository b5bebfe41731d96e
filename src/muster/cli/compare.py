"""`muster compare`: several methods on matched seeds, with paired intervals."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from rich.console import Console

from ..base import durable
from ..base.errors import INTERRUPTED, MusterError, command_line, plural
from ..base.lazy import load_module
from ..config.experiment import Experiment
from ..report.figure import draw_figures
from ..report.table_files import write_tables
from ..study.compare import ComparisonInterrupted
from ..study.comparison import Comparison
from ..study.experiment_runs import check_experiment, collect_experiment, compare_experiment
from ..study.grid import Cell
from ..study.sweep_result import has_all_runs
from ..study.tickets import has_tickets
from ..study.units import CellPlan, Placement, SharesUnderWay, lock_units, run_cells
from .arguments import CommandParser
from .console import print_line
from .options import add_configuration, load_experiment
from .placement import add_placement, describe_shares, open_placement
from .progress_bar import Progress, add_track, check_trackers, open_trackers
from .result_folder import NewResults, list_files, open_folder, report_idle

USUAL = ("fedalign", "fedavg_priority", "fedavg", "local")  # compared where no method is named
DRAWING = ("polars", "matplotlib.figure", "matplotlib.backends.backend_agg", "scipy.special")
WORTH = 500  # rounds of small clients that take as long as the start of a process


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    add_configuration(parser, several=True)
    add_placement(parser)
    add_track(parser)


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    trackers = check_trackers(arguments.track)
    experiment, resumed = load_experiment(arguments, "comparison", several=USUAL)
    s = experiment.settings
    with open_placement(arguments) as where:
        where = place_seeds(experiment, where, bool(trackers))
        # What a share left is taken by tickets, as others may be at work on it.
        left = resumed is not None and has_tickets(resumed, s.all_seeds) and not trackers
        if where.jobs == 1 and where.share is None and where.executor is None and not left:
            result, folder, code = run_here(experiment, resumed, trackers, console)
        else:
            trusted = resumed is None or arguments.trust_code
            try:
                result, folder, code = run_side_by_side(
                    experiment, resumed, where, trusted, console
                )
            except SharesUnderWay as others:
                place = resumed or Path(s.out) / s.name
                again = command_line("muster", "compare", "--resume", place)
                print_line(console, describe_shares(where.share, others, again))
                return 0
    if code:
        done = f"{len(result.seeds)} of {plural(len(s.all_seeds), 'seed')} complete"
        again = command_line("muster", "compare", "--resume", folder)
        print_line(console, f"interrupted with {done}; continue with: {again}")
    if result.seeds:
        console.print(result)
        write_tables(result.summary(), folder)
        drawn = draw_figures(result.matched, folder, s.figures, s.shown_in_figure)
        print_line(console, list_files(folder, drawn, result.report(folder / "report.html")))
    return code or report_idle(chain.from_iterable(result.runs.values()), console)


def place_seeds(experiment: Experiment, where: Placement, tracked: bool) -> Placement:
    """Return the place of a comparison's seeds with its number of processes. Few rounds run in
    this process, sooner than others would start; so do those that a tracker follows."""
    if tracked:
        if where != Placement(where.jobs) or where.jobs not in (None, 1):
            raise MusterError(
                "--track: follows runs of this process; leave out --jobs, --on, --share"
            )
        return replace(where, jobs=1)
    if where.jobs is not None or where.executor is not None or where.share is not None:
        return where
    s = experiment.settings
    rounds = s.rounds * len(experiment.methods) * len(s.all_seeds)
    return replace(where, jobs=max(1, min(s.compute.workers(), len(s.all_seeds), rounds // WORTH)))


def describe_results(experiment: Experiment) -> NewResults:
    """Return what a comparison is about to make."""
    s = experiment.settings

    def is_done(folder: Path) -> bool:
        return all(has_all_runs(folder, experiment.methods, seed) for seed in s.all_seeds)

    return NewResults("compare", s, experiment.resolve(), is_done)


def run_here(
    experiment: Experiment, resumed: Path | None, trackers: Sequence[str], console: Console
) -> tuple[Comparison, Path, int]:
    """Run the seeds one after another in this process; return the comparison, its folder and the
    exit code."""
    s = experiment.settings
    seeds = s.all_seeds
    first = experiment.federation(seeds[0])  # before anything is written: the data may be missing
    check_experiment(experiment, first, seeds[0])
    code = 0
    rounds = s.rounds * len(seeds) * len(experiment.methods)
    with (
        open_folder(describe_results(experiment), resumed, console) as folder,
        durable.lock_folder(folder),
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
    return result, folder, code


def run_side_by_side(
    experiment: Experiment, resumed: Path | None, where: Placement, trusted: bool, console: Console
) -> tuple[Comparison, Path, int]:
    """Run the seeds in other processes, or share them with other processes; return the comparison,
    its folder and the exit code."""
    s = experiment.settings
    rounds = s.rounds * len(s.all_seeds) * len(experiment.methods)
    plan = CellPlan(Cell({}), experiment.resolve(), experiment, trusted)
    code, shared = 0, where.share is not None
    with (
        open_folder(describe_results(experiment), resumed, console, shared) as folder,
        lock_units(folder, where),
        Progress(rounds, console) as progress,
    ):
        follow = progress.follow(folder, experiment.methods, s.all_seeds, s.rounds)
        where = replace(where, on_wait=follow)
        # Results are drawn here, as soon as the others are done with them.
        threading.Thread(target=lambda: [*map(load_module, DRAWING)]).start()
        try:
            run_cells([plan], folder, where, lambda _: follow(), lambda: None)
        except KeyboardInterrupt:
            code = INTERRUPTED
        return collect_experiment(experiment, folder), folder, code
