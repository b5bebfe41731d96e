"""The error rates of `muster advise`, for docs/advise.md: verdicts on federations of known truth.

    python benchmarks/advise.py            run it all (an hour); rows go to docs/advise.parquet
    python benchmarks/advise.py --write    and put the table into docs/advise.md
    python benchmarks/advise.py --again    the table from the file, without running

One core. Federations that are in the file already are not run again; remove it to begin again. What
counts as a gain (5 % of the loss alone), rows as the units of intervals, and how many rows outside
its most frequent class a client needs were chosen on federations below 20,000: these are others.
"""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl

from muster.base.durable import atomic_file
from muster.study.advise_errors import WORLDS, measure_errors, summarise
from page import format_table, replace_block

DOCS = Path(__file__).parents[1] / "docs"
PAGE, ROWS = DOCS / "advise.md", DOCS / "advise.parquet"
FIRST = 20_000  # the first federation that is reported
CLOSED = 5_000  # federations of a world in closed form
TRAINED = {"trained": 200, "synth": 250}
PORTION = 500  # federations between two writes; a training takes longer
PORTIONS = dict.fromkeys(TRAINED, 10)
HEAD = [
    *("world", "federations", "clients", "join", "wrong", "help", "wrong", "stay out", "wrong"),
    *("wrong joins at most", "federations with a wrong join", "join found"),
]


def run() -> None:
    """Run the federations that are missing, some of each world in turn."""
    while missing := {world: some for world in WORLDS if (some := find_missing(world))}:
        for world, some in missing.items():
            some = some[: PORTIONS.get(world, PORTION)]
            done = [pl.read_parquet(ROWS)] if ROWS.exists() else []
            frame = pl.concat([*done, measure_errors(world, some)])
            with atomic_file(ROWS) as place:
                frame.write_parquet(place)
            print(f"{world}: federations up to {some[-1]}", flush=True)


def find_missing(world: str) -> list[int]:
    """Return the federations of a world that are not in the file yet."""
    wanted = range(FIRST, FIRST + TRAINED.get(world, CLOSED))
    if not ROWS.exists():
        return list(wanted)
    done = pl.read_parquet(ROWS).filter(pl.col("world") == world)["federation"]
    return sorted(set(wanted) - set(done))


def table(frame: pl.DataFrame) -> str:
    ordered = pl.concat([frame.filter(pl.col("world") == world) for world in WORLDS])
    return format_table([HEAD, *summarise(ordered)])


def page(text: str) -> str:
    """Return the page with the table that the rows give."""
    return replace_block(text, "errors", table(pl.read_parquet(ROWS)))


if __name__ == "__main__":
    if "--again" not in sys.argv:
        run()
    if {"--again", "--write"} & set(sys.argv):
        PAGE.write_text(page(PAGE.read_text()))
