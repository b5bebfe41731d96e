"""The content of a report: the runs of each method, and what is shown of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ...base.arrays import Float64
from ...base.errors import plural
from ...base.lazy import pl
from ...federation import Variation
from ...results.measures import Measure
from ...results.run import Run
from ..figure import data_name
from ..gains import Gains, measure_gains
from ..intervals import (
    Interval,
    Runs,
    all_priority,
    all_runs,
    choose_measures,
    correction_ratio,
    seed_variation,
    summary,
)

CLIENT_BYTES = 2**20  # most bytes of the data about single clients; further seeds are left out


class PageRoom:
    """Bytes for the data of runs in a page: the first run is in it in any case, others while there
    is room.

    >>> room = PageRoom(10)
    >>> [room.take(size) for size in (8, 2, 1)], PageRoom(10).take(20)
    ([True, True, False], True)
    """

    def __init__(self, left: int) -> None:
        self.left, self.empty = left, True

    def take(self, size: int) -> bool:
        """Take so many bytes for a run; return False if it is left out."""
        self.left -= size
        fits = self.empty or self.left >= 0
        self.empty = False
        return fits


@dataclass(frozen=True)
class Content:
    """The content of a report.

    Attributes:
        runs: the runs of each method by label, all in the same order of seeds
        report_at: the rounds whose numbers are shown; empty: the last
        measures: the names of the measures to compare; empty: the default ones
        title: the title; empty: built from the configuration's name, the methods and the data
        complete: True if these are all the runs that were requested
    """

    runs: Runs
    report_at: tuple[int, ...] = ()
    measures: tuple[str, ...] = ()
    title: str = ""
    complete: bool = True

    @cached_property
    def labels(self) -> list[str]:
        """The methods; the others are compared with the first."""
        return list(self.runs)

    @cached_property
    def all_runs(self) -> list[Run]:
        """All runs."""
        return all_runs(self.runs)

    @cached_property
    def seeds(self) -> list[int]:
        """The seeds of every method."""
        return [run.seed for run in self.runs[self.labels[0]]]

    @cached_property
    def last(self) -> int:
        """The last round that all runs have."""
        return min(len(run.rounds) for run in self.all_runs)

    @cached_property
    def rounds(self) -> tuple[int, ...]:
        """The rounds whose numbers are shown."""
        return tuple(t for t in self.report_at if t <= self.last) or (self.last,)

    @cached_property
    def compared_measures(self) -> tuple[Measure, ...]:
        """The measures by which methods are compared."""
        return choose_measures(self.runs, self.measures)

    @cached_property
    def summary(self) -> pl.DataFrame:
        """Means and paired differences of these measures after these rounds."""
        return summary(self.runs, self.rounds, [m.name for m in self.compared_measures])

    @cached_property
    def variation(self) -> Variation:
        """The variation between the seeds of these runs."""
        return seed_variation(self.all_runs)

    def interval(self, values: Float64, measure: Measure) -> Interval:
        """Return the interval of a measure with these values, one per seed."""
        return Interval.of(values, ratio=correction_ratio(self.variation, measure))

    @cached_property
    def gains(self) -> dict[str, Gains | str]:
        """The gain of each client over training alone, by method; text where it is not known."""
        return {label: measure_gains(self.runs, label) for label in self.labels}

    @cached_property
    def all_priority(self) -> bool:
        """True if all participating clients are priority clients."""
        return all(map(all_priority, self.all_runs))

    @cached_property
    def data(self) -> list[str]:
        """The names of the data."""
        return [name for name in dict.fromkeys(map(data_name, self.all_runs)) if name]

    @cached_property
    def heading(self) -> str:
        """The heading of the page."""
        name = str(self.all_runs[0].config.get("name", ""))
        what = self.labels[0] if len(self.runs) == 1 else plural(len(self.runs), "method")
        about = f"{what} on {', '.join(self.data)}" if self.data else what
        return self.title or (f"{name}: {about}" if name else about)

    def enumerate_runs(self) -> Iterator[tuple[int, int, Run]]:
        """Yield (method, seed, run) by position: the first seed of all methods first."""
        for s in range(len(self.seeds)):
            for m, mine in enumerate(self.runs.values()):
                yield m, s, mine[s]


def client_names(run: Run) -> list[str]:
    """Return the names of the clients, or their numbers."""
    column = "name" if "name" in run.final.columns else "client"
    return [str(value) for value in run.final[column].to_list()]
