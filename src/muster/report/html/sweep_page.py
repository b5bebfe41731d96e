"""The report of a sweep: each measure against the swept key, and where which method is ahead.

What every single cell came to is in the cell's own report: its folder holds a comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base import durable
from ...base.errors import plural
from ...base.lazy import pl
from ...results.measures import MEASURES, Measure
from ..ascii import sentence
from ..intervals import covered_cells
from ..key_names import key_names, value_text
from .content import numbers
from .learning_curves import drawn
from .markup import Section, paragraph, table
from .page import assembled

PANELS = 24  # charts in one page


def swept_report(
    summary: pl.DataFrame, over: dict[str, list[Any]], labels: Sequence[str], seeds: Sequence[int],
    path: str | Path, title: str = "", concerns: Sequence[str] = (),
) -> Path:  # fmt: skip
    """Write the page of a sweep to a file. `summary` has one row for each cell, method and
    measure; `over` the swept keys, each with its values as they are written."""
    path = Path(path)
    keys = list(over)
    names = key_names(keys, labels)
    along = max(keys, key=lambda key: len(over[key]))
    cells = summary.select(keys).unique(maintain_order=True)
    asked = (
        f"{plural(len(labels), 'method')} over {', '.join(keys)}: {plural(len(cells), 'cell')}, "
        f"{plural(len(seeds), 'seed')}."
    )
    said = [sentence for name in summary["measure"].unique(maintain_order=True).to_list()
            for sentence in standing(summary, MEASURES[name], labels)]  # fmt: skip
    panels = charts(summary, names, along, labels)
    parts = {
        "Answer": Section(
            "answer", "What was asked, and the answer",
            paragraph(asked, kind="asked")
            + "".join(paragraph(sentence) for sentence in said)
            + "".join(paragraph(line, kind="attention") for line in concerns)
            + "".join(paragraph(sentence(line)) for line in covered_cells(summary))
            + paragraph("Each interval is for its own cell and pair of methods: among many, some "
                        "look clear by chance." if len(labels) > 1 else ""),
        ),
        "Curves": Section(
            "curves", f"Against {names[along]}",
            '<div class="switches" role="group" aria-label="methods shown"></div>'
            + drawn(list(labels), panels, "curves"), panels,
        ),
        "Numbers": Section("numbers-of-cells", "Every cell", whole(summary, names, labels[0])),
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    heading = title or f"sweep over {', '.join(keys)}"
    durable.write(path, assembled(heading, parts, list(labels), list(seeds)))
    return path


def standing(summary: pl.DataFrame, measure: Measure, labels: Sequence[str]) -> list[str]:
    """In how many cells each method is ahead of the first, or behind it, by a measure."""
    sentences = []
    first, *others = labels
    for label in others:
        mine = summary.filter(pl.col("method") == label, pl.col("measure") == measure.name)
        gap = pl.col("difference") * (-1 if measure.lower else 1)
        clear = mine.filter("clear")
        ahead, behind = len(clear.filter(gap > 0)), len(clear.filter(gap < 0))
        sentences.append(
            f"{measure.title}: {label} is clearly better than {first} in {ahead} of "
            f"{plural(len(mine), 'cell')}, clearly worse in {behind}; in the other "
            f"{len(mine) - ahead - behind} the interval covers 0, or there is none."
        )
    return sentences


def charts(
    summary: pl.DataFrame, names: Mapping[str, str], along: str, labels: Sequence[str]
) -> dict[str, Any]:
    """A panel for each measure, and for each combination of the other keys; `names` are what the
    swept keys are called."""
    rest = [key for key in names if key != along]
    ticks = summary[along].unique(maintain_order=True).to_list()
    panels: dict[str, Any] = {}
    groups = summary.group_by(["measure", *rest], maintain_order=True)
    for i, (at, here) in enumerate(groups):
        if i == PANELS:
            break
        measure = MEASURES[str(at[0])]
        where = ", ".join(
            f"{names[key]} {value_text(value)}" for key, value in zip(rest, at[1:], strict=True)
        )
        series: list[dict[str, Any]] = []
        for label in labels:
            mine = here.filter(pl.col("method") == label)
            series.append({
                "method": labels.index(label),
                "x": [ticks.index(value) for value in mine[along].to_list()],
                "y": numbers((mine["mean"] * measure.scale).to_numpy()),
                "half": numbers((mine["half"].cast(pl.Float64) * measure.scale).to_numpy(), 3),
            })  # fmt: skip
        values = [y for s in series for y in s["y"] if y is not None]
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        room = 0.15 * (high - low) or 0.05 * abs(high) or 0.05
        panels[f"p{i}"] = {
            "title": f"{measure.title}{f' ({where})' if where else ''}",
            "name": f"{measure.name} {where}".strip(),
            "limits": numbers([low - room, high + room]),
            "log": False,
            "share": measure.share,
            "along": names[along],
            "ticks": [value_text(tick) for tick in ticks],
            "series": series,
        }
    return panels


def whole(summary: pl.DataFrame, names: Mapping[str, str], first: str) -> str:
    """Every cell's means and paired differences."""
    rows = []
    for row in summary.iter_rows(named=True):
        gap = (
            (None, None) if row["method"] == first else (row["difference"], row["difference_half"])
        )
        told = [None if v is None else f"{v:.4f}" for v in (row["mean"], row["half"], *gap)]
        rows.append([*(value_text(row[key]) for key in names), row["method"], row["measure"], *told,
                     "yes" if row["clear"] else "no"])  # fmt: skip
    head = [*names.values(), "method", "measure", "mean", "± 95 %", f"difference to {first}",
            "± 95 %", "excludes 0"]  # fmt: skip
    return table("sweep", head, rows, "Means, and paired differences to the first method",
                 len(names) + 2)  # fmt: skip
