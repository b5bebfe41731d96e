"""A sweep: comparisons over a grid of settings, and their joint tables and figures.

On disk it is a folder with one comparison for each cell (`data.priority=2,local.lr=0.1`), and
`sweep.toml`, which lists the swept keys and values, the methods and the seeds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w
from rich.console import Group, RenderableType

from ..base import durable
from ..base.checks import check_whole, is_whole
from ..base.errors import MusterError, command_line, plural
from ..base.lazy import lazy_module, pl
from ..base.untrusted_files import read_toml, safe_path
from ..report.intervals import seed_variation
from ..report.sweep_report import draw_sweep_figure, summarize_sweep, sweep_tables
from ..results import store
from ..results.run_warnings import strip_numbers
from .comparison import MOST, check_lists, get_run_folder
from .grid import Over, as_column, format_value, grid, parse_lists

if TYPE_CHECKING:
    from ..report.html import sweep_page as html
else:  # only what is shown needs it
    html = lazy_module("muster.report.html.sweep_page")

MARKER = "sweep.toml"  # a folder that has it holds a sweep

FIRST = ("method", "seed", "round")  # the columns between the swept keys and the measures


@dataclass(frozen=True, eq=False)
class Sweep:
    """Runs of several methods on the same seeds in every cell of a grid.

    Attributes:
        frame: one row for each cell, method, seed and round: the swept keys, `method`, `seed`,
            `round`, every column of `run.rounds`, and what its seeds vary (`Variation`)
        over: the swept keys, each with its values
        methods: the labels of the methods
        seeds: the seeds of every cell
        complete: True if it has every run that was asked for
        measures: measures of tables and figure; empty: the usual (see `muster.results.measures`)
        warnings: warnings about runs, with the number of runs
        folder: folder of the cells; each is a comparison: `muster.load(sweep.folder / name)`
    """

    frame: pl.DataFrame
    over: dict[str, list[Any]]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    complete: bool = True
    measures: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    folder: Path | None = None

    @property
    def keys(self) -> list[str]:
        """The swept keys."""
        return list(self.over)

    @property
    def rounds(self) -> int:
        """The number of rounds that every run has."""
        runs = self.frame.group_by(*self.keys, "method", "seed").agg(pl.col("round").max())
        return int(runs["round"].to_numpy().min())

    def summary(
        self, measures: str | Iterable[str] | None = None, round: int | None = None
    ) -> pl.DataFrame:
        """Return one row for each cell, method and measure: the mean over the seeds that every
        method of the cell finished, with its 95 % interval, and the paired difference to the first
        method with its interval, after `round` (by default the last)."""
        if not len(self.frame):
            raise MusterError("sweep: nothing is finished yet; continue it")
        if round is not None:
            check_whole("round", round, 1, self.rounds)
        chosen = self.measures if measures is None else measures
        return summarize_sweep(self.frame, self.keys, self.methods, chosen, round)

    def figure(
        self,
        path: str | Path,
        measures: str | Iterable[str] | None = None,
        key: str | None = None,
        round: int | None = None,
        paper: bool = False,
        wide: bool = False,
    ) -> Path:
        """Draw measures against a swept key (by default the one with most values) to a file whose
        ending says the format: .png, .pdf or .svg. The other keys make rows of panels; `paper`
        draws them for a paper, at the width of a column or (`wide`) of both."""
        along = max(self.over, key=lambda k: len(self.over[k])) if key is None else key
        if along not in self.over:
            raise MusterError(f"figure: '{along}' was not swept; one of {', '.join(self.over)}")
        frame = self.summary(measures, round)
        return draw_sweep_figure(frame, self.keys, along, path, paper, wide)

    def report(self, path: str | Path, title: str = "") -> Path:
        """Write the sweep as one HTML file that opens anywhere. Each cell is a comparison with a
        separate report: `muster report FOLDER/CELL`."""
        over = {key: [format_value(value) for value in values] for key, values in self.over.items()}
        return html.write_sweep_report(
            self.summary(), over, self.methods, self.seeds, path, title, self.attention
        )

    @property
    def idle(self) -> int:
        """The number of runs in which every round was skipped, so that nothing was learned."""
        if not len(self.frame):
            return 0
        each = self.frame.group_by(*self.keys, "method", "seed").agg(pl.col("skipped").all())
        return int(each["skipped"].sum())

    @property
    def attention(self) -> tuple[str, ...]:
        """Warnings to read before the tables: missing runs, and warnings about runs."""
        if self.complete:
            return self.warnings
        asked = len(grid(self.over)) * len(self.methods) * len(self.seeds)
        done = self.frame.select(*self.keys, "method", "seed").n_unique() if len(self.frame) else 0
        line = f"not finished: {done} of {plural(asked, 'run')}"
        if self.folder:
            again = command_line("muster", "sweep", "--resume", self.folder)
            line += f"; continue with: {again}"
        return (line, *self.warnings)

    def __rich__(self) -> RenderableType:
        return Group(*sweep_tables(self.summary(), self.keys, self.attention))

    def __repr__(self) -> str:
        cells = plural(len(grid(self.over)), "cell")
        state = "" if self.complete else ", interrupted"
        methods, seeds = plural(len(self.methods), "method"), plural(len(self.seeds), "seed")
        return f"Sweep({', '.join(self.over)}: {cells}, {methods}, {seeds}{state})"


def is_sweep(folder: Path) -> bool:
    """Return True if a folder holds a sweep, finished or not."""
    return (folder / MARKER).exists()


def write_marker(folder: Path, over: Over, **listed: Any) -> None:
    """Write the marker file: keys with their values, `labels`, `seeds` and `measures`."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = [{"key": key, "values": list(values)} for key, values in over.items()]
    durable.write(folder / MARKER, tomli_w.dumps({**listed, "over": keys}))


def load_sweep(folder: str | Path) -> Sweep:
    """Read a sweep, finished or not."""
    folder = Path(folder)
    with store.reading(folder / MARKER):
        listed = read_toml(folder / MARKER)
        check_lists(listed)
        over = parse_lists({str(entry["key"]): entry["values"] for entry in listed["over"]})
        labels, seeds = tuple(listed["labels"]), tuple(listed["seeds"])
        if math.prod(map(len, (*over.values(), labels, seeds))) > MOST:
            raise ValueError(f"more than {MOST} runs")
    return collect_sweep(folder, over, labels, seeds, tuple(listed.get("measures", ())))


@dataclass
class WarningCounter:
    """Warnings about runs, each once for each method, with the number of runs that have it."""

    found: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    runs: Counter[str] = field(default_factory=Counter)

    def add(self, label: str, cell: str, sentences: Sequence[str]) -> None:
        """Count a run and its warnings."""
        self.runs[label] += 1
        for sentence in sentences:
            self.found.setdefault((label, strip_numbers(sentence)), []).append(
                f"{cell}: {sentence}"
            )

    def lines(self) -> tuple[str, ...]:
        """Return a sentence for each warning."""
        return tuple(
            f"{label}, {len(cells)} of {plural(self.runs[label], 'run')}, the first in {cells[0]}"
            for (label, _), cells in self.found.items()
        )


def collect_sweep(
    folder: Path,
    over: Over,
    labels: Sequence[str],
    seeds: Sequence[int],
    measures: tuple[str, ...] = (),
) -> Sweep:
    """Return the sweep of the runs in a folder. Only the rounds of each run are kept in memory."""
    cells = grid(over)
    columns = {
        key: dict(zip(map(format_value, v), as_column(v), strict=True)) for key, v in over.items()
    }
    frames: list[pl.DataFrame] = []
    wrong = WarningCounter()
    for cell in cells:
        here = {key: columns[key][format_value(value)] for key, value in cell.values.items()}
        for label in labels:
            for seed in seeds:
                place = get_run_folder(safe_path(folder, cell.name), label, seed)
                if not store.is_run(place):
                    continue
                run = store.load(place)
                wrong.add(label, cell.name, run.warnings)
                rounds = run.rounds.with_columns(
                    pl.lit(value).alias(name) for name, value in seed_variation([run]).table.items()
                )
                frames.append(add_cell_columns(rounds, here, label, seed))
    frame = pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame()
    return Sweep(
        frame,
        {key: list(values) for key, values in over.items()},
        tuple(labels),
        tuple(seeds),
        len(frames) == len(cells) * len(labels) * len(seeds),
        measures,
        wrong.lines(),
        folder,
    )


def add_cell_columns(
    rounds: pl.DataFrame, values: Mapping[str, Any], label: str, seed: int
) -> pl.DataFrame:
    """Return a run's rounds with its cell, method and seed in the first columns."""
    head = [pl.lit(v, pl.Int64 if is_whole(v) else None).alias(key) for key, v in values.items()]
    rest = [name for name in rounds.columns if name not in (*values, *FIRST)]
    return rounds.select(
        *head, pl.lit(label).alias("method"), pl.lit(seed, pl.Int64).alias("seed"), "round", *rest
    )


def has_all_runs(cell: Path, labels: Iterable[str], seed: int) -> bool:
    """Return True if every method has its run of this seed in a cell's folder."""
    return all(store.is_run(get_run_folder(cell, label, seed)) for label in labels)
