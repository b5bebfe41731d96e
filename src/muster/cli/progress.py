"""Progress: a live bar with an ETA on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from .console import say

LINE_EVERY = 5.0  # seconds between plain lines


class Progress:
    """Counts rounds over all runs of a command. Use as a context manager."""

    def __init__(self, total: int, console: Console) -> None:
        self.total, self.console, self.done, self.resumed = total, console, 0, 0
        self.label = ""
        self.began = self.said = time.monotonic()
        self.bar: Bar | None = None

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self.bar = Bar(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("ETA"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=self.console,
            )
            self.task = self.bar.add_task("", total=self.total, note="")
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
        """A run begins, `already` of whose rounds need not be run again."""
        self.label = f"{label}, seed {seed}"
        self.done += already
        self.resumed += already
        if self.bar is not None:
            self.bar.update(self.task, description=self.label, completed=self.done, note="")
        else:
            say(self.console, f"{self.label}: {self._left()}")

    def __call__(self, row: dict[str, Any]) -> None:
        """A round is done."""
        self.done += 1
        loss = row.get("loss")
        note = "" if loss is None else f"loss {loss:.4f}"
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done, note=note)
            return
        now = time.monotonic()
        if now - self.said >= LINE_EVERY:
            self.said = now
            say(self.console, f"{self.label}: round {row['round']}, {note}, {self._left()}")

    def _left(self) -> str:
        """`120 of 600 rounds in all, about 14 s left`."""
        run = self.done - self.resumed
        head = f"{self.done} of {self.total} rounds in all"
        if run == 0:
            return head
        rate = (time.monotonic() - self.began) / run
        return f"{head}, about {rate * (self.total - self.done):.0f} s left"
