"""The figure of a comparison: each measure over the rounds, and paired differences below.

Curves are means over the seeds with their 95 % interval as a band. Seeds differ more from each
other than methods do, so bands overlap where a difference is clear; the points below are the
paired differences to the first method, seed by seed, with their own interval.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..base.errors import MusterError, plural
from ..base.lazy import pl
from ..results.measures import MEASURES, Measure, find_measures, lead_with_held_out
from ..results.run import Run
from .curves import MAX_BANDS, draw_curves, mean_curve
from .intervals import Runs, all_priority, all_runs, coverage_notes, summary
from .style import LEGEND_WIDTH, LineStyle, add_legend, new_figure, save_figure, tidy
from .text_format import escape_mathtext, sentence, shorten, wrap_label

FORMATS = (".png", ".pdf", ".svg")
ACROSS = 3  # panels next to each other
WIDTH, HEIGHT = 3.9, 3.0  # inches of a panel's curves


def draw_figure(runs: Runs, path: str | Path, panels: str | Iterable[str] = ()) -> Path:
    """Draw runs to a file in the format of its ending: .png, .pdf or .svg.

    Args:
        runs: the runs of each method by label, all in the same order of seeds
        path: the file
        panels: the measures to draw (`muster.results.measures`); by default the usual ones that
            have values other than 0
    """
    path = check_figure_path(path)
    shown = choose_panels(runs, panels)
    many = len(runs) > 1
    down = math.ceil(len(shown) / ACROSS)
    across = math.ceil(len(shown) / down)
    below = 0.55 + 0.21 * (len(runs) - 1) if many else 0.0
    aside = 0.08 * min(max(map(len, runs)), LEGEND_WIDTH) + 0.3 if many else 0.0
    # Names are in the legend, and before the differences.
    size = (WIDTH * across + 2 * aside, (HEIGHT + below) * down + 0.7)
    fig = new_figure(*size)
    heights = [HEIGHT, below] if many else [HEIGHT]
    grid = fig.add_gridspec(len(heights) * down, across, height_ratios=heights * down)
    styles = {label: LineStyle.of(i) for i, label in enumerate(runs)}
    last = min(len(run.rounds) for run in all_runs(runs))
    gaps = summary(runs, (last,), [m.name for m in shown]) if many else pl.DataFrame()
    everyone = all(map(all_priority, all_runs(runs)))
    for i, measure in enumerate(shown):
        row, column = len(heights) * (i // across), i % across
        ax = fig.add_subplot(grid[row, column])
        curves = {label: mean_curve(mine, measure) for label, mine in runs.items()}
        draw_curves(ax, {n: c for n, c in curves.items() if c is not None}, styles, measure)
        ax.set_title(escape_mathtext(panel_title(measure, everyone)), fontsize=10)
        if many:
            ax = fig.add_subplot(grid[row + 1, column])
            mine = gaps.filter(pl.col("measure") == measure.name)
            draw_differences(ax, mine, styles, measure.scale, last, named=column == 0)
    if many:
        add_legend(fig, styles)
    fig.suptitle(
        escape_mathtext(figure_heading(runs)), fontsize=10, x=0.01, ha="left", fontweight="bold"
    )
    if caption := figure_caption(runs):
        lines = textwrap.wrap(caption, int(fig.get_figwidth() * 16.5))
        fig.supxlabel(escape_mathtext("\n".join(lines)), fontsize=8, x=0.01, ha="left", color="0.3")
    save_figure(fig, path, dpi=130)
    return path


def draw_figures(
    runs: Runs, folder: Path, formats: str | Iterable[str], panels: str | Iterable[str] = ()
) -> list[Path]:
    """Draw runs to `figure.FORMAT` in a folder, once for each format."""
    return [draw_figure(runs, folder / f"figure.{name}", panels) for name in parse_formats(formats)]


def check_figure_path(path: str | Path, what: str = "figure") -> Path:
    """Return a path whose ending is a format that can be drawn."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise MusterError(f"{what}: '{path}'; the file ending must be one of {', '.join(FORMATS)}")
    return path


def parse_formats(formats: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of formats from a list, or from a text with commas between them.

    >>> parse_formats("png, pdf")
    ('png', 'pdf')
    """
    names = [n.strip() for n in formats.split(",")] if isinstance(formats, str) else list(formats)
    for name in names or [""]:
        if f".{name}" not in FORMATS:
            allowed = ", ".join(f.removeprefix(".") for f in FORMATS)
            raise MusterError(f"figures: '{name}'; allowed: {allowed}, with commas between")
    return tuple(dict.fromkeys(names))


def choose_panels(runs: Runs, names: str | Iterable[str] = ()) -> list[Measure]:
    """Return the measures of a figure: those named, or the usual ones with a value other than 0.

    Measures that no run has are left out; there is always at least one. Methods whose clients have
    personal models get separate panels for those, since they are the models the clients use.
    """
    usual = [m for m in MEASURES.values() if m.panel or (m.compared and m.otherwise)]
    wanted = find_measures(names, "panel") if names else lead_with_held_out(usual)
    return [m for m in wanted if _has_values(runs, m.name, not names)] or list(wanted[:1])


def _has_values(runs: Runs, measure: str, nonzero: bool) -> bool:
    columns = [
        run.rounds[measure].drop_nulls() for run in all_runs(runs) if measure in run.rounds.columns
    ]
    return any((c != 0).any() if nonzero else len(c) > 0 for c in columns)


def panel_title(measure: Measure, everyone: bool) -> str:
    """Return the title of a panel, without "priority" where all clients are priority clients.

    >>> panel_title(MEASURES["loss"], everyone=True)
    'training loss'
    """
    return measure.title.removeprefix("priority ") if everyone else measure.title


def figure_heading(runs: Runs) -> str:
    """Return the data, the method (if there is one) and the seeds of these curves."""
    mine = next(iter(runs.values()))
    seeds = plural(len(mine), "seed") if len(mine) > 1 else f"seed {mine[0].seed}"
    method = next(iter(runs)) if len(runs) == 1 else ""
    return ", ".join(filter(None, [*dict.fromkeys(map(data_name, all_runs(runs))), method, seeds]))


def data_name(run: Run) -> str:
    """Return the name of the data of a run; empty where it is not known."""
    return str(run.facts.get("data") or run.config.get("data", {}).get("name", ""))


def figure_caption(runs: Runs) -> str:
    """Return what lines, bands and points mean, and the notes about the data."""
    several = len(next(iter(runs.values()))) > 1
    parts = []
    if several:
        band = "band: 95 % interval of the mean, separately for each round"
        if len(runs) > MAX_BANDS:
            band = f"no bands: those of more than {MAX_BANDS} methods hide each other"
        parts.append(f"Line: mean over the seeds; {band}.")
    if len(runs) > 1 and several:
        parts.append(
            "Points: paired difference, seed by seed, with its 95 % interval; filled where it "
            "excludes 0."
        )
    elif len(runs) > 1:
        parts.append("One seed: differences have no interval.")
    parts += map(sentence, coverage_notes(runs))
    notes = dict.fromkeys(run.note for run in all_runs(runs) if run.note)
    return " ".join([*parts, *(f"Data: {note}." for note in notes)])


def draw_differences(
    ax: Any, gaps: pl.DataFrame, styles: dict[str, LineStyle], scale: float, last: int, named: bool
) -> None:
    """Draw each method's paired difference to the first, with its interval, one below the other."""
    first, *others = styles
    rows = {row["method"]: row for row in gaps.iter_rows(named=True)}
    ax.axvline(0, color="0.5", linewidth=1)
    for at, label in enumerate(others):
        row, style = rows[label], styles[label]
        if row["difference"] is None:
            continue
        half = None if row["difference_half"] is None else row["difference_half"] * scale
        face = style.colour if row["clear"] else "white"
        point = {**style.error_bar, "markerfacecolor": face}
        ax.errorbar(row["difference"] * scale, at, xerr=half, **point)
    ax.set_yticks(
        range(len(others)), [wrap_label(o, LEGEND_WIDTH, 1) for o in others] if named else []
    )
    ax.tick_params(axis="y", length=0)
    ax.tick_params(labelsize=8)
    ax.set_ylim(len(others) - 0.4, -0.6)
    ax.set_xlabel(f"difference to {shorten(first, 20)}, round {last}", fontsize=8)
    ax.locator_params(axis="x", nbins=5)
    ax.margins(x=0.08)
    tidy(ax)
