"""The error rates of `muster advise`, for docs/advise.md: verdicts on federations of known truth.

    python benchmarks/advise.py            run it all (ten minutes); rows go to docs/advise.parquet
    python benchmarks/advise.py --write    and put the table into docs/advise.md
    python benchmarks/advise.py --again    the table from the file, without running

One core. Worlds that are in the file already are not run again; remove it to begin again. What
counts as a gain (5 % of the loss alone), rows as the units of intervals, and how many rows outside
its most frequent class a client needs were chosen on federations below 20,000: these are others.
"""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl

from muster.base.durable import atomic_file
from muster.study.advise_errors import WORLDS, measure_errors, summarise

DOCS = Path(__file__).parents[1] / "docs"
PAGE, ROWS = DOCS / "advise.md", DOCS / "advise.parquet"
FIRST = 20_000  # the first federation that is reported
CLOSED = 5_000  # federations of a world in closed form
TRAINED = {"trained": 60, "synth": 100}
HEAD = [
    *("world", "federations", "clients", "join", "wrong", "help", "wrong", "stay out", "wrong"),
    *("federations with a wrong join", "join found"),
]
BEGIN, END = "<!-- errors -->\n", "<!-- end errors -->"


def run() -> None:
    for world in WORLDS:
        done = [pl.read_parquet(ROWS)] if ROWS.exists() else []
        if done and world in done[0]["world"]:
            continue
        count = TRAINED.get(world, CLOSED)
        frame = pl.concat([*done, measure_errors(world, range(FIRST, FIRST + count))])
        with atomic_file(ROWS) as place:
            frame.write_parquet(place)
        print(f"{world}: {count} federations", flush=True)


def table(frame: pl.DataFrame) -> str:
    ordered = pl.concat([frame.filter(pl.col("world") == world) for world in WORLDS])
    lines = [HEAD, ["---"] * len(HEAD), *summarise(ordered)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def page(text: str) -> str:
    """Return the page with the table that the rows give."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table(pl.read_parquet(ROWS)) + END + rest.partition(END)[2]


if __name__ == "__main__":
    if "--again" not in sys.argv:
        run()
    if {"--again", "--write"} & set(sys.argv):
        PAGE.write_text(page(PAGE.read_text()))
