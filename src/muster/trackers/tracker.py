"""Tracker: the base class of trackers, which logs one run after another, one call a round.

A tracker is an `on_round` callback. Its `start` is an `on_start`, which names the run that follows:

    tracker = muster.trackers.tensorboard("logs")
    muster.compare(fed, methods, model, rounds=50, on_start=tracker.start, on_round=tracker)

Without `start`, a round that does not follow the last one begins another run. Another tracker is a
subclass with `begin`, `log` and `end`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np


class Tracker:
    """Base class of trackers: use one as `on_round`, or as a context manager, which closes it."""

    def __init__(self) -> None:
        self.last = 0
        self.open = False
        self.runs = 0
        self.next: tuple[str, dict[str, Any]] | None = None

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        """Begin a run of this name."""
        raise NotImplementedError

    def log(self, values: Mapping[str, float], round: int) -> None:
        """Log the numbers of a round."""
        raise NotImplementedError

    def end(self) -> None:
        """End the run."""
        raise NotImplementedError

    def start(self, label: str, seed: int, already: int = 0) -> None:
        """Announce the run of a method and seed, of whose rounds `already` are done. A run without
        further rounds is not begun."""
        self.close()
        self.next, self.last = (f"{label}-seed{seed}", {"method": label, "seed": seed}), already

    def __call__(self, row: Mapping[str, Any]) -> None:
        t = int(row["round"])
        if self.open and t <= self.last:
            self.close()
        if not self.open:
            self.runs += 1
            self.begin(*(self.next or (f"run-{self.runs}", {})))
            self.open, self.next = True, None
        self.log(numbers(row), t)
        self.last = t

    def close(self) -> None:
        """End the current run, if there is one."""
        if self.open:
            self.open, self.last = False, 0
            self.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a round's row.

    >>> numbers({"round": 3, "loss": 0.5, "eps": float("nan"), "skipped": False, "note": "x"})
    {'loss': 0.5, 'skipped': 0.0}
    """
    found = {}
    for name, value in row.items():
        if name == "round" or not isinstance(value, (bool, int, float, np.generic)):
            continue
        if math.isfinite(value):
            found[name] = float(value)
    return found
