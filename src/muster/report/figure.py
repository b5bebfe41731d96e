"""The figure of a comparison: each measure over the rounds and, below it, what separates the other
methods from the first.

Curves are means over the seeds with their 95 % interval as a band. Seeds differ more from each
other than methods do, so bands overlap where a difference is clear; the points below are the
paired differences, seed by seed, with their own interval.

Drawn with matplotlib's own canvas for files: the user's backend and open figures stay as they are.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..base.errors import MusterError, plural
from ..base.lazy import pl
from ..results.measures import MEASURES, Measure, find_measures
from ..results.run import Run
from .ascii import sentence
from .curves import BANDED, curve_of, draw_curves
from .intervals import Runs, covered, for_everyone, summary
from .style import Look, as_written, folded, keep_figure, short, tidy

FORMATS = (".png", ".pdf", ".svg")
ACROSS = 3  # panels next to each other
WIDTH, HEIGHT = 3.9, 3.0  # inches of a panel's curves
NAMES = 26  # letters of a method's name in one line of the legend


def figure(runs: Runs, path: str | Path, panels: str | Iterable[str] = ()) -> Path:
    """Draw runs to a file, whose ending says the format: .png, .pdf or .svg.

    Args:
        runs: the runs of each method by its label, all in the same order of seeds
        panels: the measures to draw (`muster.results.measures`); by default each of the usual ones
            that has something to show
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    path = as_figure_path(path)
    shown = panels_of(runs, panels)
    many = len(runs) > 1
    down = math.ceil(len(shown) / ACROSS)
    across = math.ceil(len(shown) / down)
    below = 0.55 + 0.21 * (len(runs) - 1) if many else 0.0
    aside = 0.08 * min(max(map(len, runs)), NAMES) + 0.3 if many else 0.0
    # Names stand in the legend, and before the differences.
    size = (WIDTH * across + 2 * aside, (HEIGHT + below) * down + 0.7)
    fig = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(fig)
    heights = [HEIGHT, below] if many else [HEIGHT]
    grid = fig.add_gridspec(len(heights) * down, across, height_ratios=heights * down)
    looks = {label: Look.of(i) for i, label in enumerate(runs)}
    last = min(len(run.rounds) for mine in runs.values() for run in mine)
    gaps = summary(runs, (last,), [m.name for m in shown]) if many else pl.DataFrame()
    everyone = all(for_everyone(run) for mine in runs.values() for run in mine)
    for i, measure in enumerate(shown):
        row, column = len(heights) * (i // across), i % across
        ax = fig.add_subplot(grid[row, column])
        curves = {label: curve_of(mine, measure) for label, mine in runs.items()}
        draw_curves(ax, {n: c for n, c in curves.items() if c is not None}, looks, measure)
        ax.set_title(as_written(title_of(measure, everyone)), fontsize=10)
        if many:
            ax = fig.add_subplot(grid[row + 1, column])
            mine = gaps.filter(pl.col("measure") == measure.name)
            draw_gaps(ax, mine, looks, measure.scale, last, named=column == 0)
    if many:
        add_legend(fig, looks)
    fig.suptitle(as_written(heading(runs)), fontsize=10, x=0.01, ha="left", fontweight="bold")
    if said := caption(runs):
        lines = textwrap.wrap(said, int(fig.get_figwidth() * 16.5))
        fig.supxlabel(as_written("\n".join(lines)), fontsize=8, x=0.01, ha="left", color="0.3")
    keep_figure(fig, path, dpi=130)
    return path


def figures(
    runs: Runs, folder: Path, formats: str | Iterable[str], panels: str | Iterable[str] = ()
) -> list[Path]:
    """Draw runs to `figure.FORMAT` in a folder, once for each format."""
    return [figure(runs, folder / f"figure.{name}", panels) for name in as_formats(formats)]


def as_figure_path(path: str | Path, what: str = "figure") -> Path:
    """A path with an ending that says a format which can be drawn."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise MusterError(f"{what}: '{path}'; its ending says the format: {', '.join(FORMATS)}")
    return path


def as_formats(formats: str | Iterable[str]) -> tuple[str, ...]:
    """Formats by name, in the order given: a list, or text with commas between.

    >>> as_formats("png, pdf")
    ('png', 'pdf')
    """
    words = [w.strip() for w in formats.split(",")] if isinstance(formats, str) else list(formats)
    for word in words or [""]:
        if f".{word}" not in FORMATS:
            allowed = ", ".join(f.removeprefix(".") for f in FORMATS)
            raise MusterError(f"figures: '{word}'; allowed: {allowed}, with commas between")
    return tuple(dict.fromkeys(words))


def panels_of(runs: Runs, names: str | Iterable[str] = ()) -> list[Measure]:
    """The measures a figure shows: those named, or the usual ones that have some value that is not
    0; of measures that no run took, none. There is always one. Of a method whose clients keep
    models for themselves, those are what its clients use: they have panels of their own."""
    usual = [m for m in MEASURES.values() if m.panel or (m.compared and m.otherwise)]
    wanted = find_measures(names, "panel") if names else usual
    return [m for m in wanted if _has(runs, m.name, not names)] or list(wanted[:1])


def _has(runs: Runs, measure: str, unasked: bool) -> bool:
    columns = [
        run.rounds[measure].drop_nulls()
        for mine in runs.values()
        for run in mine
        if measure in run.rounds.columns
    ]
    return any((c != 0).any() if unasked else len(c) > 0 for c in columns)


def title_of(measure: Measure, everyone: bool) -> str:
    """What a panel is called: nobody is a priority client where everybody is.

    >>> title_of(MEASURES["loss"], everyone=True)
    'training loss'
    """
    return measure.title.removeprefix("priority ") if everyone else measure.title


def heading(runs: Runs) -> str:
    """Of what data, method and seeds these curves are."""
    every = [run for mine in runs.values() for run in mine]
    mine = next(iter(runs.values()))
    seeds = plural(len(mine), "seed") if len(mine) > 1 else f"seed {mine[0].seed}"
    whose = next(iter(runs)) if len(runs) == 1 else ""
    return ", ".join(filter(None, [*dict.fromkeys(map(data_of, every)), whose, seeds]))


def data_of(run: Run) -> str:
    """The name of the data a run was made with; empty where that is not known."""
    return str(run.facts.get("data") or run.config.get("data", {}).get("name", ""))


def caption(runs: Runs) -> str:
    """What the marks mean, and what these results must say of their data."""
    several = len(next(iter(runs.values()))) > 1
    said = []
    if several:
        band = "band: 95 % interval of the mean, for each round by itself"
        if len(runs) > BANDED:
            band = f"no bands, as those of more than {BANDED} methods hide each other"
        said.append(f"Line: mean over the seeds; {band}.")
    if len(runs) > 1 and several:
        said.append("Points: paired difference, seed by seed, with its 95 % interval; filled where "
                    "it excludes 0.")  # fmt: skip
    elif len(runs) > 1:
        said.append("One seed: differences have no interval.")
    said += map(sentence, covered(runs))
    notes = dict.fromkeys(run.note for mine in runs.values() for run in mine if run.note)
    return " ".join([*said, *(f"Data: {note}." for note in notes)])


def draw_gaps(
    ax: Any, gaps: pl.DataFrame, looks: dict[str, Look], scale: float, last: int, named: bool
) -> None:
    """Each method's paired difference to the first, with its interval, one below the other."""
    first, *others = looks
    rows = {row["method"]: row for row in gaps.iter_rows(named=True)}
    ax.axvline(0, color="0.5", linewidth=1)
    for at, label in enumerate(others):
        row, look = rows[label], looks[label]
        if row["difference"] is None:
            continue
        half = None if row["difference_half"] is None else row["difference_half"] * scale
        ax.errorbar(
            row["difference"] * scale, at, xerr=half, color=look.colour, marker=look.marker,
            markersize=5, capsize=2.5, linewidth=1.4,
            markerfacecolor=look.colour if row["clear"] else "white",
        )  # fmt: skip
    ax.set_yticks(range(len(others)), [folded(o, NAMES, 1) for o in others] if named else [])
    ax.tick_params(axis="y", length=0)
    ax.tick_params(labelsize=8)
    ax.set_ylim(len(others) - 0.4, -0.6)
    ax.set_xlabel(f"difference to {short(first, 20)}, round {last}", fontsize=8)
    ax.locator_params(axis="x", nbins=5)
    ax.margins(x=0.08)
    tidy(ax)


def add_legend(fig: Any, looks: dict[str, Look]) -> None:
    """Who is who, outside the panels."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=look.colour, linestyle=look.dashes, marker=look.marker, markersize=5)
        for look in looks.values()
    ]
    blank = [" "] * len(handles)  # matplotlib would leave out a name that begins with _
    legend = fig.legend(
        handles, blank, loc="outside right upper", frameon=False, fontsize=9, handlelength=3.4
    )
    for text, label in zip(legend.get_texts(), looks, strict=True):
        text.set_text(folded(label, NAMES))
