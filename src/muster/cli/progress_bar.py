"""Progress: a live bar with the time left on a terminal, plain lines anywhere else; and `--track`,
which sends every round to an experiment tracker as well."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as Bar

from ..base.errors import plural, unknown_name
from ..results import store
from ..run.progress import count_rounds
from ..study.comparison import get_run_folder
from ..study.units import CellProgress
from ..trackers import TRACKERS, Tracker
from .arguments import CommandParser
from .console import print_line

LINE_EVERY = 5.0  # seconds between plain lines


class Progress:
    """A counter of rounds over all runs of a command, used as a context manager."""

    what = "round"

    def __init__(self, total: int, console: Console) -> None:
        self.total, self.console, self.done, self.resumed = total, console, 0, 0
        self.label = ""
        self.began = self.printed = time.monotonic()
        self.bar: Bar | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.bar = Bar(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}", markup=False),
                TextColumn("{task.fields[note]}", markup=False),
                console=self.console,
            )
            self.task = self.bar.add_task("", total=self.total, note="", left="")
            self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def start(self, label: str, seed: int, already: int = 0) -> None:
        """Start a run, `already` of whose rounds are done."""
        self.label = f"{label}, seed {seed}"
        self.done += already
        self.resumed += already
        if self.bar is not None:
            self.bar.update(
                self.task, description=self.label, completed=self.done, note="", left=self.left()
            )
        else:
            print_line(self.console, f"{self.label}: {self._so_far()}")

    def __call__(self, row: dict[str, Any]) -> None:
        """Count a round."""
        self.done += 1
        loss = row.get("loss")
        note = "" if loss is None else f"loss {loss:.4f}"
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done, note=note, left=self.left())
            return
        now = time.monotonic()
        if now - self.printed >= LINE_EVERY:
            self.printed = now
            pieces = (f"round {row['round']}", note, self._so_far())
            print_line(self.console, f"{self.label}: {', '.join(filter(None, pieces))}")

    def follow(
        self, folder: Path, labels: Iterable[str], seeds: Iterable[int], rounds: int
    ) -> Callable[[], None]:
        """Return a function that counts the rounds that other processes have done, by what they
        have written."""
        places = [get_run_folder(folder, label, seed) for seed in seeds for label in labels]
        waiting = dict.fromkeys(places, 0)
        for place in places:
            if store.is_run(place):
                self.resumed += rounds
                del waiting[place]
        whole = [self.resumed]

        def look() -> None:
            if self.done <= self.resumed:  # the others are starting: no time of a round
                self.began = time.monotonic()
            for place in list(waiting):
                waiting[place] = count_rounds(place)
                if store.is_run(place):
                    whole[0] += rounds
                    del waiting[place]
            self.done = whole[0] + sum(waiting.values())
            ready = f"{len(places) - len(waiting)} of {plural(len(places), 'run')}"
            if self.bar is not None:
                self.bar.update(self.task, description=ready, completed=self.done, left=self.left())
            elif time.monotonic() - self.printed >= LINE_EVERY:
                self.printed = time.monotonic()
                print_line(self.console, f"{ready}: {self._so_far()}")

        return look

    def left(self) -> str:
        """Return `about 14 s left`; empty before the first round. The time of a round is that of
        this session's rounds: earlier ones took no time."""
        run = self.done - self.resumed
        if run == 0:
            return ""
        rate = (time.monotonic() - self.began) / run
        return f"about {format_duration(rate * (self.total - self.done))} left"

    def _so_far(self) -> str:
        """Return `120 of 600 rounds in all, about 14 s left`."""
        head = f"{self.done} of {plural(self.total, self.what)} in all"
        return f"{head}, {self.left()}" if self.left() else head


class Seeds(Progress):
    """A counter of seeds, each of which is one unit of work."""

    what = "seed"

    def count(self, done: int, total: int) -> None:
        """Count a seed."""
        self.done = done
        if self.bar is not None:
            self.bar.update(self.task, completed=done, left=self.left())
        elif time.monotonic() - self.printed >= LINE_EVERY:
            self.printed = time.monotonic()
            print_line(self.console, self._so_far())


class Cells(Progress):
    """A counter of runs over all cells and seeds of a sweep."""

    what = "run"

    def count(self, done: CellProgress) -> None:
        """Count a seed of a cell."""
        self.done, self.resumed = done.done, done.kept
        self.label = f"{done.whole} of {plural(done.cells, 'cell')}"
        if self.bar is not None:
            note = f"{done.cell}, seed {done.seed}"
            self.bar.update(
                self.task, description=self.label, completed=self.done, note=note, left=self.left()
            )
            return
        now = time.monotonic()
        if now - self.printed >= LINE_EVERY or done.done == done.total:
            self.printed = now
            print_line(self.console, f"{self.label}: {self._so_far()}")


def format_duration(seconds: float) -> str:
    """Return a time as a person writes it.

    >>> format_duration(14.2), format_duration(200), format_duration(7500)
    ('14 s', '3 min', '2 h 5 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def add_track(parser: CommandParser) -> None:
    """Add --track."""
    text = "send every round to tensorboard, mlflow, wandb or trackio as well"
    parser.add_flag("--track", action="append", metavar="NAME", help=text)


def check_trackers(names: Iterable[str] | None) -> list[str]:
    """Return the trackers of a command line, each once."""
    found = list(dict.fromkeys(names or ()))
    for name in found:
        if name not in TRACKERS:
            raise unknown_name("tracker", name, TRACKERS)
    return found


class Listeners:
    """The progress bar and the trackers, called when a run starts and after every round."""

    def __init__(self, progress: Progress, trackers: Sequence[Tracker]) -> None:
        self.all: list[Progress | Tracker] = [progress, *trackers]

    def start(self, label: str, seed: int, already: int = 0) -> None:
        """Report the start of a run, `already` of whose rounds are done."""
        for listener in self.all:
            listener.start(label, seed, already)

    def __call__(self, row: dict[str, Any]) -> None:
        for listener in self.all:
            listener(row)


@contextmanager
def open_trackers(
    names: Sequence[str], name: str, folder: Path, progress: Progress, console: Console
) -> Iterator[Listeners]:
    """Provide progress and trackers, closed at the end. TensorBoard writes to the folder of the
    results; the others name their run after the results."""
    with ExitStack() as stack:
        trackers: list[Tracker] = []
        for each in names:
            where = str(folder / each) if each == "tensorboard" else name
            trackers.append(stack.enter_context(TRACKERS[each](where)))
            print_line(console, f"tracked: {each}, in {where}")
        yield Listeners(progress, trackers)
