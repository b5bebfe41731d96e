"""`muster run`: one method, its results in a folder, its table on the screen."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from ..base.errors import INTERRUPTED, MusterError, MusterWarning, command_line
from ..base.lazy import nn
from ..base.untrusted_files import safe_path
from ..config.experiment import Experiment
from ..engines.compute import Compute
from ..engines.rank_group import read_numbers
from ..engines.ranks import SPREAD
from ..federation import Federation
from ..report.figure import draw_figures
from ..report.tables import run_table
from ..results import store
from ..results.run import Interrupted
from ..run.phase_times import PHASES, PhaseTimes
from ..run.simulate import run_job
from ..study.experiment_runs import check_experiment
from .arguments import CommandParser
from .console import print_line
from .options import add_configuration, load_experiment, refuse_several_methods
from .progress_bar import Progress, add_track, check_trackers, open_trackers
from .result_folder import NewResults, list_files, open_folder, report_idle

ONE = "`muster run` runs one; use `muster compare` for several"


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    add_configuration(parser)
    add_track(parser)
    text = "print where the time went, by phase"
    parser.add_flag("--profile", action="store_true", help=text)


def check_ranks(compute: Compute, resumed: bool = False) -> int:
    """Return this process's rank among those that share the run. Refuse several processes that
    would each run everything."""
    numbers = read_numbers()
    if compute.engine == SPREAD or numbers.size == 1:
        return numbers.rank
    advice = "" if resumed else "add --engine spread, or "  # --resume takes no settings
    raise MusterError(
        f"engine: '{compute.engine}', and torchrun started {numbers.size} processes, each of which "
        f"would run everything; {advice}run muster without torchrun"
    )


def silence(console: Console) -> None:
    """Leave it to rank 0 to print, except for a warning about a process of this rank."""
    console.quiet = True
    warnings.simplefilter("ignore", MusterWarning)
    warnings.filterwarnings("always", "a worker process", MusterWarning)


def follow(experiment: Experiment, fed: Federation, module: nn.Module, console: Console) -> int:
    """Do this rank's share of a run that rank 0 stores and prints."""
    try:
        run = run_job(
            fed,
            experiment.job,
            compute=experiment.settings.compute,
            keep=experiment.keep,
            module=module,
        )
    except Interrupted:
        return INTERRUPTED
    return report_idle([run], console)


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    times = PhaseTimes() if arguments.profile else None
    code = run_experiment(arguments, console, times)
    if times is not None:
        console.print(phase_table(times.seconds))
    return code


def phase_table(seconds: Mapping[str, float]) -> Table:
    """Return the table of --profile: seconds of each phase, and its share."""
    table = Table("phase", Column("seconds", justify="right"), Column("share", justify="right"), "")
    total = sum(seconds.values())
    for phase, took in seconds.items():
        table.add_row(phase, f"{took:.3f}", f"{took / total:.1%}", PHASES[phase])
    table.add_row("total", f"{total:.3f}", "", "")
    return table


def is_complete(folder: Path) -> bool:
    """Return True if a folder holds a run with all its rounds."""
    return store.is_run(folder) and bool(store.read_marker(folder)["complete"])


def run_experiment(
    arguments: argparse.Namespace, console: Console, times: PhaseTimes | None
) -> int:
    """Run the experiment of a command line."""
    phase = (lambda name: nullcontext()) if times is None else times.phase
    trackers = check_trackers(arguments.track)
    if arguments.resume is None:
        refuse_several_methods(arguments, ONE)
    experiment, resumed = load_experiment(arguments, "run")
    if len(experiment.methods) != 1:
        raise MusterError(f"methods: {ONE}")
    (label,) = experiment.methods
    s = experiment.settings
    follows = check_ranks(s.compute, resumed is not None) > 0
    if follows:
        silence(console)
    if resumed is not None and store.is_run(resumed):
        before = store.load(resumed)
        if before.complete:
            console.print(run_table(before, s.measures))
            print_line(console, f"{resumed} is complete; there is nothing to continue")
            return report_idle([before], console)
    with phase("data"):
        fed = experiment.federation(s.seed)  # before anything is written: the data may be missing
        modules = check_experiment(experiment, fed, s.seed)
    if follows:
        return follow(experiment, fed, modules[label], console)
    code = 0
    new = NewResults("run", s, experiment.resolve(), is_complete)
    with (
        open_folder(new, resumed, console) as folder,
        Progress(s.rounds, console) as progress,
        open_trackers(trackers, s.name, folder, progress, console) as listeners,
    ):
        checkpoints = safe_path(folder, "checkpoints")
        keep = replace(experiment.keep, checkpoint=checkpoints, resume=True)
        listeners.start(label, s.seed, store.get_last_checkpoint_round(checkpoints))
        try:
            result = run_job(
                fed,
                experiment.job,
                compute=s.compute,
                keep=keep,
                on_round=listeners,
                module=modules[label],
                times=times,
            )
        except Interrupted as stop:
            result, code = stop.run, INTERRUPTED
    if len(result.rounds) == 0:
        print_line(console, "interrupted before the first round was done; nothing to save")
        return code
    result = replace(result, config=experiment.resolve())
    if "epsilon" in result.facts:  # chosen: with the number the run is the same, and quicker
        result.config["methods"][0]["epsilon"] = result.facts["epsilon"]
    with phase("store"):
        store.save(result, folder)
    drawn = draw_figures({label: [result]}, folder, s.figures, s.shown_in_figure)
    console.print(run_table(result, s.measures))
    if code:
        again = command_line("muster", "run", "--resume", folder)
        print_line(console, f"interrupted; continue with: {again}")
    else:
        store.delete_checkpoints(folder / "checkpoints")
    print_line(console, list_files(folder, drawn))
    return code or report_idle([result], console)
