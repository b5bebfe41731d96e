"""The story a report tells: the runs of each method, and what of them is shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...base.arrays import Float64
from ...base.errors import plural
from ...base.lazy import pl
from ...federation import Variation
from ...results.measures import Measure
from ...results.run import Run
from ..figure import data_of
from ..intervals import (
    Interval,
    Runs,
    compared,
    every,
    for_everyone,
    ratio_of,
    summary,
    variation_of,
)

POINTS = 400  # of a curve; more rounds than that are thinned
CLIENTS = 2**20  # bytes that everything about single clients may take, before seeds are left out


@dataclass(frozen=True)
class Story:
    """What a report is about.

    Attributes:
        runs: the runs of each method by its label, all in the same order of seeds
        report_at: the rounds whose numbers are said; empty: the last
        measures: what is compared; empty: the usual
        title: what it is called; empty: by its configuration, methods and data
        complete: whether these are all the runs that were asked for
    """

    runs: Runs
    report_at: tuple[int, ...] = ()
    measures: tuple[str, ...] = ()
    title: str = ""
    complete: bool = True

    @cached_property
    def labels(self) -> list[str]:
        """The methods, the first of which the others are compared with."""
        return list(self.runs)

    @cached_property
    def every(self) -> list[Run]:
        """All runs."""
        return every(self.runs)

    @cached_property
    def seeds(self) -> list[int]:
        """The seeds they share."""
        return [run.seed for run in self.runs[self.labels[0]]]

    @cached_property
    def last(self) -> int:
        """The last round that all of them have."""
        return min(len(run.rounds) for run in self.every)

    @cached_property
    def rounds(self) -> tuple[int, ...]:
        """The rounds whose numbers are said."""
        return tuple(t for t in self.report_at if t <= self.last) or (self.last,)

    @cached_property
    def compared(self) -> tuple[Measure, ...]:
        """The measures that methods are compared by."""
        return compared(self.runs, self.measures)

    @cached_property
    def summary(self) -> pl.DataFrame:
        """Means and paired differences of these measures after these rounds."""
        return summary(self.runs, self.rounds, [m.name for m in self.compared])

    @cached_property
    def variation(self) -> Variation:
        """The variation between the seeds of these runs."""
        return variation_of(self.every)

    def interval(self, values: Float64, measure: Measure) -> Interval:
        """The interval of a measure that has these values in the seeds."""
        return Interval.of(values, ratio=ratio_of(self.variation, measure))

    @cached_property
    def everyone(self) -> bool:
        """Whether all clients that take part are priority clients."""
        return all(map(for_everyone, self.every))

    @cached_property
    def data(self) -> list[str]:
        """The names of the data."""
        return [name for name in dict.fromkeys(map(data_of, self.every)) if name]

    @cached_property
    def heading(self) -> str:
        """What the page is called."""
        name = str(self.every[0].config.get("name", ""))
        what = self.labels[0] if len(self.runs) == 1 else plural(len(self.runs), "method")
        about = f"{what} on {', '.join(self.data)}" if self.data else what
        return self.title or (f"{name}: {about}" if name else about)

    def numbered(self) -> Iterator[tuple[int, int, Run]]:
        """(method, seed, run) by their positions: the first seed of all methods first."""
        for s in range(len(self.seeds)):
            for m, mine in enumerate(self.runs.values()):
                yield m, s, mine[s]


def names_of(run: Run) -> list[str]:
    """What each client is called."""
    column = "name" if "name" in run.final.columns else "client"
    return [str(value) for value in run.final[column].to_list()]


def thinned(n: int, most: int = POINTS) -> list[int]:
    """Which of n points are kept: all, or every so many, the first and the last always.

    >>> thinned(4), thinned(10, most=4)
    ([0, 1, 2, 3], [0, 3, 6, 9])
    """
    if n <= most:
        return list(range(n))
    return sorted({*range(0, n, -(-n // most)), n - 1})


def numbers(values: ArrayLike, digits: int = 5) -> list[float | None]:
    """Numbers as short as they may be; None where there is none.

    >>> numbers([0.123456789, float("nan"), 2])
    [0.12346, None, 2.0]
    """
    flat = np.asarray(values, np.float64).tolist()
    return [float(f"{x:.{digits}g}") if np.isfinite(x) else None for x in flat]


def column(frame: pl.DataFrame, name: str) -> list[Any]:
    """A column as short numbers; Nones where a frame has none of that name."""
    if name not in frame.columns:
        return [None] * len(frame)
    return numbers(frame[name].cast(pl.Float64).to_numpy())
