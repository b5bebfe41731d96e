"""`--track NAME`: every round goes to a tracker as well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from ..base.errors import unknown_name
from ..trackers import TRACKERS, Tracker
from .console import say
from .progress_bar import Progress


def as_trackers(names: Iterable[str] | None) -> list[str]:
    """The trackers a line names, each once."""
    found = list(dict.fromkeys(names or ()))
    for name in found:
        if name not in TRACKERS:
            raise unknown_name("tracker", name, TRACKERS)
    return found


class Told:
    """Tells progress and trackers of every run that begins and every round."""

    def __init__(self, progress: Progress, trackers: Sequence[Tracker]) -> None:
        self.all: list[Progress | Tracker] = [progress, *trackers]

    def start(self, label: str, seed: int, already: int = 0) -> None:
        """A run begins."""
        for each in self.all:
            each.start(label, seed, already)

    def __call__(self, row: dict[str, Any]) -> None:
        for each in self.all:
            each(row)


@contextmanager
def told(
    names: Sequence[str], name: str, folder: Path, progress: Progress, console: Console
) -> Iterator[Told]:
    """Progress with these trackers, closed in the end: TensorBoard's files in the folder of the
    results, the others' runs under the name of the results."""
    with ExitStack() as stack:
        made: list[Tracker] = []
        for each in names:
            where = str(folder / each) if each == "tensorboard" else name
            made.append(stack.enter_context(TRACKERS[each](where)))
            say(console, f"tracked: {each}, in {where}")
        yield Told(progress, made)
