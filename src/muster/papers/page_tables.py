"""Tables of pages in Markdown: the last rounds of a study's runs, differences in points with their
intervals, and the place between a page's markers where a table goes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from ..base.lazy import pl
from ..report.intervals import Interval, correction_ratio, read_variation
from ..results.measures import MEASURES


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def last_rounds(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the last round of every run."""
    keys = [k for k in frame.columns if k.startswith(("data.", "local."))]
    run = ["panel", *keys, "method", "seed"]
    return frame.filter(pl.col("round") == pl.col("round").max().over(run))


def points(
    frame: pl.DataFrame, left: str, right: str, measure: str = "test_accuracy"
) -> Interval | None:
    """Return the paired difference between two methods of a cell, in points: of a measure of the
    first and the test accuracy of the second."""
    sides = [
        frame.filter(pl.col("method") == name).select("seed", pl.col(of).alias("value"))
        for name, of in ((left, measure), (right, "test_accuracy"))
    ]
    both = sides[0].join(sides[1], on="seed", suffix="_right").sort("seed").drop_nulls()
    if len(both) < 2:
        return None
    ratio = correction_ratio(read_variation(frame), MEASURES[measure])
    gap = (both["value"] - both["value_right"]).to_numpy().astype(np.float64)
    return Interval.of(100 * gap, ratio=ratio)


def format_points(value: Interval | None) -> str:
    """Return a difference in points with its interval, bold where that excludes 0."""
    if value is None:
        return ""
    text = f"{value.mean:+.1f} ± {value.half:.1f}"
    return f"**{text}**" if value.excludes_zero else text


def fill(page: str, tables: dict[str, str]) -> str:
    """Return a page with tables between its markers `<!-- table NAME -->` and `<!-- end -->`."""
    for name, table in tables.items():
        found = re.search(rf"<!-- table {name} -->\n(.*?)<!-- end -->", page, re.DOTALL)
        if found is None:
            raise ValueError(f"the page has no place for the table {name}")
        page = page[: found.start(1)] + table + "\n" + page[found.end(1) :]
    return page
