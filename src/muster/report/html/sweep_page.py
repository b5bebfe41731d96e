"""The report of a sweep: each measure against the swept key, and the cells each method wins.

The details of a single cell are in its own report: its folder is a comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base import durable
from ...base.errors import plural
from ...base.lazy import pl
from ...results.measures import MEASURES, Measure
from ..intervals import cell_coverage_notes
from ..text_format import format_value, name_keys, sentence
from .markup import Section, paragraph, round_numbers, table
from .measure_sections import render_panels
from .page import assemble

PANELS = 24  # most charts in one page


def write_sweep_report(
    summary: pl.DataFrame,
    over: dict[str, list[Any]],
    labels: Sequence[str],
    seeds: Sequence[int],
    path: str | Path,
    title: str = "",
    warnings: Sequence[str] = (),
) -> Path:
    """Write the page of a sweep to a file.

    Args:
        summary: one row per cell, method and measure
        over: the swept keys, each with its values
    """
    path = Path(path)
    keys = list(over)
    names = name_keys(keys, labels)
    along = max(keys, key=lambda key: len(over[key]))
    cells = summary.select(keys).unique(maintain_order=True)
    setup = (
        f"{plural(len(labels), 'method')} over {', '.join(keys)}: {plural(len(cells), 'cell')}, "
        f"{plural(len(seeds), 'seed')}."
    )
    measures = [MEASURES[name] for name in summary["measure"].unique(maintain_order=True)]
    chance = (
        "Each interval is for one cell and one pair of methods: among many, some look clear by "
        "chance."
        if len(labels) > 1
        else ""
    )
    result = [
        paragraph(setup, kind="setup"),
        *(paragraph(line) for m in measures for line in count_wins(summary, m, labels)),
        *(paragraph(f"Warning: {line}", kind="attention") for line in warnings),
        *(paragraph(sentence(line)) for line in cell_coverage_notes(summary)),
        paragraph(chance),
    ]
    panels = make_sweep_panels(summary, names, along, labels)
    switches = '<div class="switches" role="group" aria-label="methods shown"></div>'
    curves = switches + render_panels(list(labels), panels, "curves")
    parts = {
        "Result": Section("result", "Result", "".join(result)),
        "Curves": Section("curves", f"Against {names[along]}", curves, panels),
        "Numbers": Section("numbers-of-cells", "All cells", cells_table(summary, names, labels[0])),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    heading = title or f"sweep over {', '.join(keys)}"
    durable.write(path, assemble(heading, parts, list(labels), list(seeds)))
    return path


def count_wins(summary: pl.DataFrame, measure: Measure, labels: Sequence[str]) -> list[str]:
    """Describe in how many cells each method is better or worse than the first by a measure."""
    sentences = []
    first, *others = labels
    for label in others:
        mine = summary.filter(pl.col("method") == label, pl.col("measure") == measure.name)
        gap = pl.col("difference") * (-1 if measure.lower else 1)
        clear = mine.filter("clear")
        better, worse = len(clear.filter(gap > 0)), len(clear.filter(gap < 0))
        sentences.append(
            f"{measure.title}: {label} is clearly better than {first} in {better} of "
            f"{plural(len(mine), 'cell')}, clearly worse in {worse}; in the other "
            f"{len(mine) - better - worse} the interval covers 0, or there is none."
        )
    return sentences


def make_sweep_panels(
    summary: pl.DataFrame, names: Mapping[str, str], along: str, labels: Sequence[str]
) -> dict[str, Any]:
    """Return the data of one chart per measure and combination of the other keys.

    `names` are the display names of the swept keys.
    """
    rest = [key for key in names if key != along]
    ticks = summary[along].unique(maintain_order=True).to_list()
    panels: dict[str, Any] = {}
    groups = summary.group_by(["measure", *rest], maintain_order=True)
    for i, (at, here) in enumerate(groups):
        if i == PANELS:
            break
        measure = MEASURES[str(at[0])]
        where = ", ".join(
            f"{names[key]} {format_value(value)}" for key, value in zip(rest, at[1:], strict=True)
        )
        series: list[dict[str, Any]] = []
        for label in labels:
            mine = here.filter(pl.col("method") == label)
            half = mine["half"].cast(pl.Float64) * measure.scale
            series.append(
                {
                    "method": labels.index(label),
                    "x": [ticks.index(value) for value in mine[along].to_list()],
                    "y": round_numbers((mine["mean"] * measure.scale).to_numpy()),
                    "half": round_numbers(half.to_numpy(), 3),
                }
            )
        values = [y for s in series for y in s["y"] if y is not None]
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        room = 0.15 * (high - low) or 0.05 * abs(high) or 0.05
        panels[f"p{i}"] = {
            "title": f"{measure.title}{f' ({where})' if where else ''}",
            "name": f"{measure.name} {where}".strip(),
            "limits": round_numbers([low - room, high + room]),
            "log": False,
            "share": measure.share,
            "along": names[along],
            "ticks": [format_value(tick) for tick in ticks],
            "series": series,
        }
    return panels


def cells_table(summary: pl.DataFrame, names: Mapping[str, str], first: str) -> str:
    """Return a table of the means and paired differences of all cells."""
    rows = []
    for row in summary.iter_rows(named=True):
        gap = (
            (None, None) if row["method"] == first else (row["difference"], row["difference_half"])
        )
        cell = [format_value(row[key]) for key in names]
        values = [None if v is None else f"{v:.4f}" for v in (row["mean"], row["half"], *gap)]
        clear = "yes" if row["clear"] else "no"
        rows.append([*cell, row["method"], row["measure"], *values, clear])
    head = [*names.values(), "method", "measure", "mean", "± 95 %", f"difference to {first}"]
    caption = "Means, and paired differences to the first method"
    return table("sweep", [*head, "± 95 %", "excludes 0"], rows, caption, len(names) + 2)
