"""`muster sweep` and `muster tune`: keys of a configuration over lists of values."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from rich.console import Console

from .. import durable
from ..config import tuning
from ..config.experiments import load_table
from ..config.settings import Settings
from ..config.sweeps import SweepInterrupted, planned, run_plan
from ..errors import INTERRUPTED, MusterError, plural
from ..report.figure import as_formats
from ..report.written import write_tables
from ..study.sweep import Sweep, is_sweep
from .console import say
from .progress import Cells
from .runs import configured, resumed, whole_number


def sweep(words: argparse.Namespace, console: Console) -> int:
    """`muster sweep`: every method on matched seeds in every cell of a grid."""
    going_on = resumed(words)
    if going_on is not None and not is_sweep(going_on):
        raise MusterError(f"--resume {going_on}: holds no sweep")
    table = configured(words) if going_on is None else load_table(going_on / "config.toml")
    jobs = whole_number(words.jobs, "--jobs")
    plan = planned(table, None)
    s = plan.first.settings
    folder = going_on or durable.fresh(Path(s.out) / s.name)
    code = 0
    try:
        with Cells(sum(len(one.seeds) for one in plan.cells), console) as progress:
            result = run_plan(plan, folder, jobs, progress.seen)
    except SweepInterrupted as stop:
        result, code = stop.sweep, INTERRUPTED
    except MusterError:
        clear(folder, going_on)
        raise
    if code:
        again = f"muster sweep --resume {folder}"
        say(console, f"interrupted; go on with: {again}")
    if len(result.frame):
        shown(result, folder, s, console)
    return code


def shown(result: Sweep, folder: Path, s: Settings, console: Console) -> None:
    """Print what a sweep came to, and leave it in its folder."""
    console.print(result)
    with durable.replacing(folder / "sweep.parquet") as new:
        result.frame.write_parquet(new)
    write_tables(result.summary(), folder, result.keys)
    panels = s.panels or None
    drawn = [result.figure(folder / f"figure.{name}", panels) for name in as_formats(s.figures)]
    cells = plural(len([p for p in folder.iterdir() if p.is_dir()]), "cell")
    say(console, f"results: {folder} ({cells}; every round in sweep.parquet)")
    say(console, f"figure:  {', '.join(map(str, drawn))}")
    say(console, f"report:  {result.report(folder / 'report.html')}")


def tune(words: argparse.Namespace, console: Console) -> int:
    """`muster tune`: a grid for each method, the same budget for all."""
    going_on = resumed(words)
    table = configured(words) if going_on is None else load_table(going_on / "config.toml")
    if going_on is not None and "tune" not in table:
        raise MusterError(f"--resume {going_on}: holds no tuning")
    jobs = whole_number(words.jobs, "--jobs")
    plan = tuning.planned(table, None)
    s = next(iter(plan.cells.values()))[0].chosen.settings
    folder = going_on or durable.fresh(Path(s.out) / s.name)
    every = sum(len(one.seeds) for mine in plan.cells.values() for one in mine)
    try:
        with Cells(every, console) as progress:
            result = tuning.run_plan(plan, folder, jobs, progress.seen)
    except tuning.TuningInterrupted:
        say(console, f"interrupted; go on with: muster tune --resume {folder}")
        return INTERRUPTED
    except MusterError:
        clear(folder, going_on)
        raise
    console.print(result)
    say(console, f"results: {folder} (every score in tuning.parquet)")
    say(console, f"chosen:  {folder / tuning.MARKER}; run it with: muster compare "
                 f"{folder / tuning.MARKER}")  # fmt: skip
    return 0


def clear(folder: Path, going_on: Path | None) -> None:
    """Leave no new folder behind in which nothing was run."""
    if going_on is None and not (folder / "config.toml").exists():
        shutil.rmtree(folder, ignore_errors=True)
