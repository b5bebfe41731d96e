"""Figures of an experiment, drawn from its small file of results.

A figure has one column per panel and one row per measure and value of what else is swept. Along x
are the rounds, a swept key, the panels themselves, the methods, or another measure. Lines and
points are means over the seeds with 95 % intervals; with `against`, paired differences to a method,
and zero as a line, or over two swept keys a map of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...base.lazy import pl
from ...report.curves import Curve, draw_curves
from ...report.intervals import Interval, correction_ratio, mean_and_half, read_variation
from ...report.style import LineStyle, add_legend, new_figure, save_figure, tidy
from ...report.sweep_report import draw_sweep_panel, error_bars
from ...report.text_format import escape_mathtext, format_value, name_keys, wrap_label
from ...results.measures import MEASURES, Measure
from .findings import average_rounds
from .paper_experiment import Drawing

WIDTH, HEIGHT = 3.1, 2.5  # inches of one panel


def draw_figure(
    drawing: Drawing, frame: pl.DataFrame, path: Path, keys: Sequence[str] = ()
) -> Path:
    """Draw one figure of an experiment to a file; `keys` are the swept ones."""
    columns = list_columns(drawing, frame)
    if drawing.panels:
        frame = frame.filter(pl.col("panel").is_in(list(drawing.panels)))
    measures = [m for m in drawing.measures if m in frame.columns]
    cells = list_cells(drawing, frame, keys)
    names = name_keys(keys, list_methods(frame))
    looks = assign_looks(frame, drawing.against)
    many = len(looks) > 1 and drawing.x != "method"
    rows = [(MEASURES[name], cell) for name in measures for cell in cells]
    aside = 1.6 if many else 0.3
    fig = new_figure(WIDTH * len(columns) + aside, HEIGHT * len(rows) + 0.4)
    axes = fig.subplots(len(rows), len(columns), squeeze=False)
    for row, (measure, cell) in enumerate(rows):
        for column, panel in enumerate(columns):
            ax = axes[row][column]
            here = frame.filter(
                *([pl.col("panel") == panel] if panel else []),
                *(pl.col(k) == v for k, v in cell.items()),
            )
            if here.is_empty():  # this panel was not run there
                ax.set_visible(False)
                continue
            draw_panel(ax, here, drawing, measure, looks)
            if panel and (row == 0 or not axes[row - 1][column].get_visible()):
                ax.set_title(escape_mathtext(panel), fontsize=9)
            if column == 0:
                places = [f"{names[k]} {format_value(v)}" for k, v in cell.items()]
                name = ", ".join([make_title(measure, drawing, looks), *places])
                ax.set_ylabel(wrap_label(name, 30), fontsize=8)
    if many:
        add_legend(fig, looks)
    save_figure(fig, path, dpi=90)
    return path


def make_title(measure: Measure, drawing: Drawing, looks: Mapping[str, LineStyle]) -> str:
    """Return the title: a measure, or the difference in it between methods."""
    if not drawing.against:
        return measure.title
    first = next(iter(looks)) if len(looks) == 1 else "each method"
    return f"{measure.title}: {first} - {drawing.against}"


def write_caption(drawing: Drawing, frame: pl.DataFrame) -> str:
    """Describe a figure in a sentence, also as its alternative text."""
    measures = [MEASURES[m] for m in drawing.measures if m in frame.columns]
    looks = assign_looks(frame, drawing.against)
    what = "; ".join(make_title(m, drawing, looks) for m in measures)
    along = MEASURES[drawing.x].title if drawing.x in MEASURES else drawing.label or drawing.x
    how = {"round": "over the rounds", "panel": "by panel", "method": "by method"}
    return f"{what[0].upper()}{what[1:]}, {how.get(drawing.x, f'by {along}')}."


def list_columns(drawing: Drawing, frame: pl.DataFrame) -> list[str]:
    """Return the panels side by side: those of the drawing that were run and have the key of x; one
    without a name where the panels are along x. Empty where there is nothing to draw."""
    if drawing.x not in (*frame.columns, "panel") or frame.is_empty():
        return []
    there = frame.filter(pl.col(drawing.x).is_not_null())["panel"].unique(maintain_order=True)
    panels = [p for p in there if p in drawing.panels or not drawing.panels]
    return [""] if panels and drawing.x == "panel" else panels


def list_cells(drawing: Drawing, frame: pl.DataFrame, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Return the values of the swept keys that are not along x, one row of panels each."""
    shown = (drawing.x, drawing.y)
    others = [k for k in keys if k not in shown and frame[k].drop_nulls().n_unique() > 1]
    if not others:
        return [{}]
    return frame.select(others).drop_nulls().unique(maintain_order=True).to_dicts()


def assign_looks(frame: pl.DataFrame, against: str) -> dict[str, LineStyle]:
    """Return a look for each method, the same in every figure of an experiment."""
    return {m: LineStyle.of(i) for i, m in enumerate(list_methods(frame)) if m != against}


def list_methods(frame: pl.DataFrame) -> list[str]:
    """Return the methods of an experiment, in their order."""
    return frame["method"].unique(maintain_order=True).to_list()


def draw_panel(
    ax: Any, frame: pl.DataFrame, drawing: Drawing, measure: Measure, looks: dict[str, LineStyle]
) -> None:
    """Draw one measure of one panel."""
    if drawing.x == "round":
        curves = {m: compute_curve(frame, m, measure, drawing.against) for m in looks}
        drawn = {m: c for m, c in curves.items() if c is not None}
        if drawing.against:
            ax.axhline(0, color="0.5", linewidth=1)
            draw_curves(ax, drawn, looks, measure.difference)
        else:
            draw_curves(ax, drawn, looks, measure)
        return
    if drawing.x == "method":
        draw_methods(ax, frame, measure, looks)
        return
    if drawing.x in MEASURES:
        draw_scatter(ax, frame, MEASURES[drawing.x], measure, looks)
        return
    if drawing.y:
        draw_map(ax, frame, drawing, measure, looks)
        return
    draw_swept(ax, frame, drawing, measure, looks)


def compute_curve(frame: pl.DataFrame, method: str, measure: Measure, against: str) -> Curve | None:
    """Return a method's mean over the seeds after each round, or its paired difference to
    another."""
    name = measure.name
    wide = values_by_seed(frame, method, name)
    if against and wide is not None:
        other = values_by_seed(frame, against, name)
        if other is None:
            return None
        rounds, seeds = (sorted(set(a) & set(b)) for a, b in zip(wide[:2], other[:2], strict=True))
        values = np.array([[wide[2][r, s] - other[2][r, s] for r in rounds] for s in seeds])
    elif wide is not None:
        rounds, seeds = sorted(wide[0]), sorted(wide[1])
        values = np.array([[wide[2][r, s] for r in rounds] for s in seeds])
    else:
        return None
    ratio = correction_ratio(read_variation(frame), measure)
    return Curve(np.array(rounds, np.float64), *mean_and_half(values * measure.scale, ratio=ratio))


def values_by_seed(
    frame: pl.DataFrame, method: str, measure: str
) -> tuple[set[int], set[int], dict[tuple[int, int], float]] | None:
    """Return the rounds that every seed has, the seeds, and the value of each pair of them."""
    mine = frame.filter(pl.col("method") == method, pl.col(measure).is_not_null())
    if mine.is_empty():
        return None
    values = {(r, s): v for r, s, v in mine.select("round", "seed", measure).iter_rows()}
    seeds = {s for _, s in values}
    rounds = {r for r, _ in values if all((r, s) in values for s in seeds)}
    return rounds, seeds, values


def final_interval(
    frame: pl.DataFrame, method: str, measure: Measure, against: str = ""
) -> Interval | None:
    """Return a method's interval after the last round, or its paired difference to another."""
    side = {"measure": measure.name}
    mine = average_rounds(frame.filter(pl.col("method") == method), side)
    if against:
        less = average_rounds(frame.filter(pl.col("method") == against), side)
        mine = {seed: mine[seed] - less[seed] for seed in mine.keys() & less.keys()}
    ratio = correction_ratio(read_variation(frame), measure)
    return Interval.of(list(mine.values()), ratio=ratio) if mine else None


def draw_swept(
    ax: Any, frame: pl.DataFrame, drawing: Drawing, measure: Measure, looks: dict[str, LineStyle]
) -> None:
    """Draw the methods after the last round along a swept key."""
    key = drawing.x
    rows = [
        {key: value, "method": method, "mean": end.mean, "half": end.half}
        for value in frame[key].drop_nulls().unique(maintain_order=True)
        for method in looks
        if (
            end := final_interval(
                frame.filter(pl.col(key) == value), method, measure, drawing.against
            )
        )
    ]
    if drawing.against:
        ax.axhline(0, color="0.5", linewidth=1)
    shown = measure.difference if drawing.against else measure
    label = drawing.label or name_keys([key], list_methods(frame))[key]
    draw_sweep_panel(ax, pl.DataFrame(rows), key, looks, shown, label)


def draw_methods(
    ax: Any, frame: pl.DataFrame, measure: Measure, looks: dict[str, LineStyle]
) -> None:
    """Draw the methods after the last round, one below the other."""
    shown: Sequence[str] = [m for m in looks if final_interval(frame, m, measure) is not None]
    for at, method in enumerate(shown):
        end, look = final_interval(frame, method, measure), looks[method]
        if end is not None:
            mean, half = (np.array([x]) * measure.scale for x in (end.mean, end.half))
            ax.errorbar(
                mean,
                [at],
                xerr=error_bars(mean, half, measure),
                color=look.colour,
                marker=look.marker,
                capsize=2.5,
                markersize=5,
            )
    ax.set_yticks(range(len(shown)), [escape_mathtext(m) for m in shown])
    ax.set_ylim(len(shown) - 0.5, -0.5)
    ax.tick_params(labelsize=8)
    tidy(ax)


def draw_scatter(
    ax: Any, frame: pl.DataFrame, across: Measure, up: Measure, looks: dict[str, LineStyle]
) -> None:
    """Draw the methods after the last round by two measures, each a point with both intervals."""
    for method, look in looks.items():
        x, y = final_interval(frame, method, across), final_interval(frame, method, up)
        if x is None or y is None:
            continue
        (mx, hx), (my, hy) = (
            (np.array([end.mean]) * m.scale, np.array([end.half]) * m.scale)
            for end, m in ((x, across), (y, up))
        )
        ax.errorbar(
            mx,
            my,
            xerr=error_bars(mx, hx, across),
            yerr=error_bars(my, hy, up),
            color=look.colour,
            marker=look.marker,
            capsize=2,
            markersize=6,
            linewidth=1,
        )
    ax.set_xlabel(wrap_label(across.title, 30), fontsize=8)
    ax.tick_params(labelsize=8)
    tidy(ax)


def draw_map(
    ax: Any, frame: pl.DataFrame, drawing: Drawing, measure: Measure, looks: dict[str, LineStyle]
) -> None:
    """Draw the paired difference between two methods over two swept keys: blue where the first is
    better, red where it is worse, a star where the interval excludes 0."""
    (method,) = looks
    columns, rows = (
        frame[k].drop_nulls().unique().sort().to_list() for k in (drawing.x, drawing.y)
    )
    found = [
        [
            final_interval(
                frame.filter(pl.col(drawing.x) == x, pl.col(drawing.y) == y),
                method,
                measure,
                drawing.against,
            )
            for x in columns
        ]
        for y in rows
    ]
    means = np.array(
        [[np.nan if e is None else e.mean * measure.scale for e in line] for line in found]
    )
    most = float(np.nanmax(np.abs(means))) or 1.0
    colours = "RdBu_r" if measure.lower else "RdBu"
    ax.imshow(means, cmap=colours, vmin=-most, vmax=most, origin="lower", aspect="auto")
    for i, line in enumerate(found):
        for j, end in enumerate(line):
            if end is not None:
                star = "*" if end.excludes_zero else ""
                text = f"{end.mean * measure.scale:+z.3f}{star}"
                dark = abs(means[i, j]) > 0.6 * most
                ax.text(
                    j,
                    i,
                    text,
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if dark else "black",
                )
    ax.set_xticks(range(len(columns)), [f"{v:g}" for v in columns], fontsize=8)
    ax.set_yticks(range(len(rows)), [f"{v:g}" for v in rows], fontsize=8)
    x, _, y = (drawing.label or f"{drawing.x} by {drawing.y}").partition(" by ")
    ax.set_xlabel(f"{x} (across), {y} (up)", fontsize=8)
