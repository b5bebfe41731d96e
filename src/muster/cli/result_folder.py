"""Folders of results: created by a command, removed when nothing was run, listed at the end."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import tomli_w
from rich.console import Console

from ..base import durable
from ..base.errors import MusterError, command_line
from ..base.schema import Table
from ..config.experiment import load_table
from ..config.settings import Settings
from ..results.run import Run
from ..study.load import find_kind
from .console import print_line

KINDS = {"run": "run", "compare": "comparison", "sweep": "sweep", "tune": "tuning"}  # by command
FRUITLESS = 1  # exit code of a run that ended and learned nothing


@dataclass(frozen=True)
class NewResults:
    """Results that a command is about to make.

    Attributes:
        command: name of the command
        settings: where they go
        config: their configuration, as it is in their folder
        is_done: returns True if a folder of them is finished
    """

    command: str
    settings: Settings
    config: Table
    is_done: Callable[[Path], bool]

    @property
    def place(self) -> Path:
        """The folder, unless that exists."""
        return Path(self.settings.out) / self.settings.name

    def find_shared(self) -> Path:
        """Return the folder that several processes share; one of other results is refused."""
        found = find_kind(self.place)
        if found not in ("", KINDS[self.command]):
            raise MusterError(f"--share: {self.place} holds a {found}; give another --name")
        return self.place

    def create(self, console: Console) -> Path:
        """Create a folder for them. Where an earlier one is unfinished, with the same
        configuration, print how to continue that."""
        folder = durable.new_folder(self.place)
        for earlier in takewhile(lambda path: path != folder, durable.numbered_paths(self.place)):
            if self.is_unfinished(earlier):
                again = command_line("muster", self.command, "--resume", earlier)
                print_line(
                    console,
                    f"{earlier} is unfinished with these settings; to go on: {again} "
                    f"(writing to {folder})",
                )
                break
        return folder

    def is_unfinished(self, folder: Path) -> bool:
        """Return True if a folder has the same configuration, and no process finished it or is at
        work in it; False if it cannot be read."""
        try:
            kept = load_table(folder / "config.toml", follow=False)
            now = tomllib.loads(tomli_w.dumps(self.config))
            held = (lock.parent for lock in folder.rglob(durable.LOCK))
            if find_kind(folder) not in ("", KINDS[self.command]):
                return False
            return kept == now and not self.is_done(folder) and not any(map(durable.in_use, held))
        except (MusterError, OSError):
            return False


@contextmanager
def open_folder(
    new: NewResults, resumed: Path | None, console: Console, shared: bool = False
) -> Iterator[Path]:
    """Provide the folder of a run or comparison, with its configuration. After an error, a new
    folder without results is removed. One that is shared with other processes is left to them."""
    if shared:
        yield resumed or new.find_shared()
        return
    folder = resumed or new.create(console)
    durable.write(folder / "config.toml", tomli_w.dumps(new.config))
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
            again = command_line("muster", command, "--resume", folder)
            raise MusterError(f"{error}; finished runs are saved; continue with: {again}") from None
        if not shared:
            remove_empty(folder)
        raise


def explain_interrupt(folder: Path, command: str, shared: bool = False) -> str:
    """Return how to continue a sweep or tuning after Ctrl-C; remove a folder without results,
    unless it is shared with other processes."""
    if (folder / "config.toml").exists():
        return f"interrupted; continue with: {command_line('muster', command, '--resume', folder)}"
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
