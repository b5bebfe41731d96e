"""A comparison: runs of several methods on matched seeds, and their joint tables and figures.

On disk it is a folder with one run per method and seed (`LABEL-seedN`) and `comparison.toml`, which
lists its methods and seeds in order, and the settings of its runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w
from rich.console import Group, RenderableType
from rich.text import Text

from ..base import durable
from ..base.checks import check_whole, is_whole
from ..base.errors import MusterError, unknown_name
from ..base.lazy import lazy_module, pl
from ..base.untrusted_files import read_toml, safe_path
from ..report.figure import draw_figure
from ..report.intervals import (
    Interval,
    all_runs,
    choose_measures,
    correction_ratio,
    seed_variation,
    summary,
    value_at,
)
from ..report.paper_figure import draw_paper_figure
from ..report.tables import comparison_tables
from ..results import store
from ..results.run import Run
from .tickets import TicketName, hold

if TYPE_CHECKING:
    from ..report.html import page
else:  # only what is shown needs it
    page = lazy_module("muster.report.html.page")

MARKER = "comparison.toml"  # file that marks the folder of a comparison

TEXTS, NUMBERS = ("labels", "measures", "panels"), ("seeds", "report_at")  # lists of a marker file

MOST = 10**6  # largest number of runs

Made = Mapping[str, Mapping[str, str]]  # settings of runs, by kind and name


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs of several methods on the same seeds.

    Attributes:
        runs: the runs of each method by its label, in the order of `seeds`
        seeds: the seeds that every method finished
        complete: True if these are all that were asked for
        report_at: rounds to print; empty: the last
        measures: measures of tables and figure; empty: the usual (see `muster.results.measures`)
        panels: measures of the figure; empty: those of the tables
    """

    runs: dict[str, list[Run]]
    seeds: tuple[int, ...]
    complete: bool = True
    report_at: tuple[int, ...] = ()
    measures: tuple[str, ...] = ()
    panels: tuple[str, ...] = ()

    def __getitem__(self, label: str) -> list[Run]:
        if label not in self.runs:
            raise unknown_name("method", label, self.runs)
        return self.runs[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def matched(self) -> dict[str, list[Run]]:
        """The runs; an error where there are none to compare."""
        if not self.seeds:
            raise MusterError("comparison: no seed was finished by every method; continue it")
        return self.runs

    @property
    def rounds(self) -> int:
        """The number of rounds that every run has."""
        return min(len(run.rounds) for mine in self.matched.values() for run in mine)

    @property
    def rounds_shown(self) -> tuple[int, ...]:
        """The rounds to print."""
        return self.report_at or (self.rounds,)

    def summary(
        self, rounds: int | Sequence[int] | None = None, measures: str | Iterable[str] | None = None
    ) -> pl.DataFrame:
        """Return one row for each method, round and measure: the mean with its 95 % interval, and
        the paired difference to the first method with its own."""
        chosen = [rounds] if isinstance(rounds, int) else rounds
        for round in () if chosen is None else chosen:
            check_whole("rounds", round, 1, self.rounds)
        chosen = self.rounds_shown if chosen is None else chosen
        return summary(self.matched, chosen, self.measures if measures is None else measures)

    def figure(
        self,
        path: str | Path,
        panels: str | Iterable[str] | None = None,
        paper: bool = False,
        wide: bool = False,
    ) -> Path:
        """Draw measures over the rounds, and the paired differences to the first method, to a file
        whose ending says the format: .png, .pdf or .svg. `panels="loss, fairness"` chooses;
        `paper` draws them for a paper, at the width of a column or (`wide`) of both."""
        chosen = self.panels or self.measures if panels is None else panels
        if paper:
            return draw_paper_figure(self.matched, path, chosen, wide)
        return draw_figure(self.matched, path, chosen)

    def report(self, path: str | Path, title: str = "") -> Path:
        """Write everything about these runs to one HTML file that opens anywhere."""
        return page.report(self.matched, path, self.report_at, self.measures, title, self.complete)

    def _repr_html_(self) -> str:
        return page.render_inline(self.matched, self.report_at, self.measures)

    def __rich__(self) -> RenderableType:
        tables = comparison_tables(self.matched, self.rounds_shown, self.measures)
        several = len(self.runs) > 1 and len(self.seeds) > 1
        said = page.describe(self.matched, self.report_at, self.measures) if several else []
        return Group(*map(Text, [*said, ""] if said else []), *tables)

    def __repr__(self) -> str:
        state = "" if self.complete else ", interrupted"
        if not self.seeds:
            return f"Comparison({', '.join(self.runs)}; 0 seeds{state})"
        measure, last = choose_measures(self.runs, self.measures)[0], self.rounds
        variation = seed_variation(all_runs(self.runs))
        ratio = correction_ratio(variation, measure)
        values = {
            label: [value_at(run, measure.name, last) for run in mine]
            for label, mine in self.runs.items()
        }
        ends = ", ".join(f"{label} {Interval.of(v, ratio=ratio)}" for label, v in values.items())
        seeds = variation.scope(len(self.seeds))
        return f"Comparison({measure.name} after round {last}: {ends}; {seeds}{state})"


def collect_comparison(
    found: Mapping[tuple[str, int], Run], labels: Iterable[str], seeds: Iterable[int], **shown: Any
) -> Comparison:
    """Return the comparison of runs, with only the seeds that every method finished."""
    labels, seeds = tuple(labels), tuple(seeds)
    whole = tuple(seed for seed in seeds if all((label, seed) in found for label in labels))
    runs = {label: [found[label, seed] for seed in whole] for label in labels}
    return Comparison(runs, whole, whole == seeds, **shown)


def get_run_folder(folder: Path, label: str, seed: int) -> Path:
    """Return the folder of a run in a comparison."""
    return safe_path(folder, f"{label}-seed{seed}")


def is_comparison(folder: Path) -> bool:
    """Return True if a folder holds a comparison, finished or not."""
    return (folder / MARKER).exists()


def write_marker(folder: Path, made: Made, **listed: Any) -> None:
    """Write the marker file of a comparison: its methods and seeds, and the settings of its runs.

    A folder whose runs have other settings is refused. Several processes may add to one comparison.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with hold(TicketName(folder, "marker")):
        _note(folder, made, listed)


def _note(folder: Path, made: Made, listed: Mapping[str, Any]) -> None:
    before: dict[str, dict[str, str]] = {}
    if is_comparison(folder):
        before = read_marker(folder)["made"]
    elif next(folder.glob(f"*/{store.MARKER}"), None):
        raise MusterError(f"{folder}: holds runs of something else; give another folder")
    for kind, values in made.items():
        for name, value in values.items():
            was = before.get(kind, {}).get(name, value)
            if was != value:
                raise MusterError(
                    f"{folder}: its runs were made with {kind} {name} = {was}, this comparison has "
                    f"{value}; give another folder"
                )
    all_runs = {kind: {**before.get(kind, {}), **values} for kind, values in made.items()}
    durable.write(folder / MARKER, tomli_w.dumps({**listed, "made": {**before, **all_runs}}))


def read_marker(folder: Path) -> dict[str, Any]:
    """Read the marker file of a comparison."""
    with store.reading(folder / MARKER):
        listed = read_toml(folder / MARKER)
        check_lists(listed)
        made = listed["made"]
        if not isinstance(made, dict) or not all(isinstance(v, dict) for v in made.values()):
            raise ValueError("made: no tables of texts")
        return listed


def check_lists(listed: Mapping[str, Any]) -> None:
    """Refuse a marker whose lists are not of names and numbers, or that lacks those of runs."""
    for name in (*TEXTS, *NUMBERS):
        values = listed.get(name, None if name in ("labels", "seeds") else [])
        kind = (lambda value: isinstance(value, str)) if name in TEXTS else is_whole
        if not isinstance(values, list) or not all(map(kind, values)):
            what = "texts" if name in TEXTS else "whole numbers"
            raise ValueError(f"{name}: a list of {what} belongs there")
        if len(set(values)) < len(values):
            raise ValueError(f"{name}: the same twice")
    if len(listed["labels"]) * len(listed["seeds"]) > MOST:
        raise ValueError(f"more than {MOST} runs")


def load_comparison(folder: str | Path) -> Comparison:
    """Read a comparison, finished or not."""
    folder = Path(folder)
    listed = read_marker(folder)
    found = {
        (label, seed): store.load(place)
        for label in listed["labels"]
        for seed in listed["seeds"]
        if store.is_run(place := get_run_folder(folder, label, seed))
    }
    shown = {name: tuple(listed.get(name, ())) for name in ("report_at", "measures", "panels")}
    return collect_comparison(found, listed["labels"], listed["seeds"], **shown)
