"""What all trackers share: one run after another, one call a round.

A tracker is an `on_round`. Its `start` is an `on_start`, which says whose rounds come next:

    tracker = muster.trackers.tensorboard("logs")
    muster.compare(fed, methods, model, rounds=50, on_start=tracker.start, on_round=tracker)

Without `start` a round that is not after the one before begins another run. A tracker of another
kind is a class with `begin`, `log` and `end`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from types import ModuleType, TracebackType
from typing import Any, Self

import numpy as np

from ..base.errors import MusterError


class Tracker:
    """Sends the numbers of every round somewhere. Use it as `on_round`, or as a context manager,
    which closes it in the end."""

    def __init__(self) -> None:
        self.last = 0
        self.open = False
        self.runs = 0
        self.next: tuple[str, dict[str, Any]] | None = None

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        """A run of this name begins."""
        raise NotImplementedError

    def log(self, values: Mapping[str, float], round: int) -> None:
        """The numbers of a round."""
        raise NotImplementedError

    def end(self) -> None:
        """The run is over."""
        raise NotImplementedError

    def start(self, label: str, seed: int, already: int = 0) -> None:
        """The rounds of this method and seed come next, `already` of which were done before. A run
        whose rounds were all done before is not begun."""
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
        """End the run under way, if there is one."""
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
    """The numbers of a round that there are; what was not measured is left out.

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


def needed(module: str, extra: str) -> ModuleType:
    """A package that a tracker needs; one clear line where it is not there."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MusterError(
            f"{extra}: not installed ({error.name}); get it with: pip install 'muster-fl[{extra}]'"
        ) from None
