"""`muster sweep` and `muster tune`: keys of a configuration over lists of values."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from ..base import durable
from ..base.errors import INTERRUPTED, MusterError, plural
from ..config.experiment import load_table
from ..config.settings import Settings
from ..report.figure import parse_formats
from ..report.table_files import write_tables
from ..study import tune as tuning
from ..study.sweep import SweepInterrupted, planned, run_plan
from ..study.sweep_result import Sweep, is_sweep
from .console import say
from .progress_bar import Cells
from .run import FRUITLESS, configured, resumed, whole_number


def sweep(words: argparse.Namespace, console: Console) -> int:
    """`muster sweep`: every method on matched seeds in every cell of a grid."""
    going_on = resumed(words)
    if going_on is not None and not is_sweep(going_on):
        raise MusterError(f"--resume {going_on}: holds no sweep")
    table = configured(words) if going_on is None else load_table(going_on / "config.toml", False)
    jobs = whole_number(words.jobs, "--jobs")
    plan = planned(table, None, trusted=going_on is None or words.trust_code)
    s = plan.first.settings
    folder = going_on or durable.new_folder(Path(s.out) / s.name)
    code = 0
    with kept(folder, "sweep"):
        try:
            with Cells(sum(len(one.seeds) for one in plan.cells), console) as progress:
                result = run_plan(plan, folder, jobs, progress.seen)
        except SweepInterrupted as stop:
            result, code = stop.sweep, INTERRUPTED
    if code:
        say(console, interrupted(folder, "sweep"))
    if len(result.frame):
        shown(result, folder, s, console)
    if code or not result.idle:
        return code
    say(console, f"no success: in {plural(result.idle, 'run')} every round was skipped, so nothing "
                 "was learned; clients.parquet of each says why")  # fmt: skip
    return FRUITLESS


def shown(result: Sweep, folder: Path, s: Settings, console: Console) -> None:
    """Print what a sweep came to, and leave it in its folder."""
    console.print(result)
    with durable.atomic_file(folder / "sweep.parquet") as new:
        result.frame.write_parquet(new)
    write_tables(result.summary(), folder, result.keys)
    cells = plural(len([p for p in folder.iterdir() if p.is_dir()]), "cell")
    say(console, f"results: {folder} ({cells}; every round in sweep.parquet)")
    try:
        panels = s.panels or None
        drawn = [
            result.figure(folder / f"figure.{name}", panels) for name in parse_formats(s.figures)
        ]
        say(console, f"figure:  {', '.join(map(str, drawn))}")
    except MusterError as error:  # a grid may be too large for one: all else is there
        say(console, f"figure:  none: {error}")
    say(console, f"report:  {result.report(folder / 'report.html')}")


def tune(words: argparse.Namespace, console: Console) -> int:
    """`muster tune`: a grid for each method, the same budget for all."""
    going_on = resumed(words)
    table = configured(words) if going_on is None else load_table(going_on / "config.toml", False)
    if going_on is not None and "tune" not in table:
        raise MusterError(f"--resume {going_on}: holds no tuning")
    jobs = whole_number(words.jobs, "--jobs")
    plan = tuning.planned(table, None, trusted=going_on is None or words.trust_code)
    s = next(iter(plan.cells.values()))[0].chosen.settings
    folder = going_on or durable.new_folder(Path(s.out) / s.name)
    every = sum(len(one.seeds) for mine in plan.cells.values() for one in mine)
    with kept(folder, "tune"):
        try:
            with Cells(every, console) as progress:
                result = tuning.run_plan(plan, folder, jobs, progress.seen)
        except tuning.TuningInterrupted:
            say(console, interrupted(folder, "tune"))
            return INTERRUPTED
    console.print(result)
    say(console, f"results: {folder} (every score in tuning.parquet)")
    say(console, f"chosen:  {folder / tuning.MARKER}; run it with: muster compare "
                 f"{folder / tuning.MARKER}")  # fmt: skip
    return 0


@contextmanager
def kept(folder: Path, command: str) -> Iterator[None]:
    """Say of an error how to go on from what is finished; leave no folder behind in which nothing
    was run."""
    try:
        yield
    except MusterError as error:
        if any(folder.rglob("rounds.parquet")):
            again = f"what is finished is kept; go on with: muster {command} --resume {folder}"
            raise MusterError(f"{error}; {again}") from None
        clear(folder)
        raise


def interrupted(folder: Path, command: str) -> str:
    """What to do after Ctrl-C."""
    if (folder / "config.toml").exists():
        return f"interrupted; go on with: muster {command} --resume {folder}"
    clear(folder)
    return "interrupted before anything was run"


def clear(folder: Path) -> None:
    """Remove a folder in which nothing was begun."""
    if not (folder / "config.toml").exists():
        shutil.rmtree(folder, ignore_errors=True)
