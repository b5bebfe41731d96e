"""Folders of results: created by a command, removed when nothing was run, listed at the end."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import tomli_w
from rich.console import Console

from ..base import durable
from ..base.errors import MusterError
from ..config.experiment import Experiment
from ..results.run import Run
from .console import print_line

FRUITLESS = 1  # exit code of a run that ended and learned nothing


@contextmanager
def open_folder(
    experiment: Experiment, resumed: Path | None, shared: bool = False
) -> Iterator[Path]:
    """Provide the folder of a run or comparison, with its configuration. After an error, a new
    folder without results is removed. One that is shared with other processes is left to them."""
    settings = experiment.settings
    if shared:
        yield resumed or Path(settings.out) / settings.name
        return
    folder = resumed or durable.new_folder(Path(settings.out) / settings.name)
    durable.write(folder / "config.toml", tomli_w.dumps(experiment.resolve()))
    try:
        yield folder
    except MusterError:
        results = (p for p in folder.rglob("*") if p.suffix in (".safetensors", ".parquet"))
        if resumed is None and next(results, None) is None:
            shutil.rmtree(folder)
        raise


@contextmanager
def explain_errors(folder: Path, command: str, shared: bool = False) -> Iterator[None]:
    """Add to an error in a sweep or tuning how to continue it; remove a folder without results,
    unless it is shared with other processes."""
    try:
        yield
    except MusterError as error:
        if any(folder.rglob("rounds.parquet")):
            advice = f"finished runs are saved; continue with: muster {command} --resume {folder}"
            raise MusterError(f"{error}; {advice}") from None
        if not shared:
            remove_empty(folder)
        raise


def explain_interrupt(folder: Path, command: str, shared: bool = False) -> str:
    """Return how to continue a sweep or tuning after Ctrl-C; remove a folder without results,
    unless it is shared with other processes."""
    if (folder / "config.toml").exists():
        return f"interrupted; continue with: muster {command} --resume {folder}"
    if not shared:
        remove_empty(folder)
    return "interrupted before anything was run"


def remove_empty(folder: Path) -> None:
    """Remove a folder in which nothing was begun."""
    if not (folder / "config.toml").exists():
        shutil.rmtree(folder, ignore_errors=True)


def list_files(folder: Path, figures: Iterable[Path], report: Path | None = None) -> str:
    """Return the lines that name a folder of results, its figures and its report."""
    lines = [f"results: {folder}", f"figure:  {', '.join(str(path) for path in figures)}"]
    return "\n".join([*lines, *([f"report:  {report}"] if report else [])])


def report_idle(runs: Iterable[Run], console: Console) -> int:
    """Return the exit code of finished runs; report those in which every round was skipped."""
    idle = [run for run in runs if run.idle]
    for run in idle:
        print_line(
            console,
            f"{run.method}, seed {run.seed}: no success: every round was skipped, so nothing was "
            "learned; clients.parquet has the reason why each reply did not count",
        )
    return FRUITLESS if idle else 0
