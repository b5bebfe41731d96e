"""`--track NAME`: every round is sent to an experiment tracker as well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from ..base.errors import unknown_name
from ..trackers import TRACKERS, Tracker
from .arguments import CommandParser
from .console import print_line
from .progress_bar import Progress


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
