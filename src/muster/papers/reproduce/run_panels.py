"""Running an experiment: its panels, what is tuned before them, and its studies of the theory.

The runs stay in the working folder, where finished ones are not run again. What results keep of
them is less: some measures of some rounds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from ... import __version__
from ...base.errors import MusterError, nearest
from ...base.lazy import pl
from ...base.rng import as_seeds
from ...base.schema import Table
from ...base.untrusted_files import read_frame
from ...data.sources.catalogue import CATALOGUE
from ...data.sources.obtain import first_found
from ...federation import Variation
from ...results.measures import MEASURES
from ...study.experiment_runs import without_solo
from ...study.sweep import planned, sweep
from ...study.tune import planned as planned_tuning
from ...study.tune import tune
from ...study.units import OnCell
from .panel_results import Made, Results, stacked
from .plan import KEEP, Panel, Plan, Size
from .theory_studies import digest, studied
from .tuning_record import kept

POINTS = 50  # rounds of a run that are kept
# Called with what is at work (a panel, or its tuning) and how many seeds of cells it has; gives
# what is told of each of them.
OnWork = Callable[[str, int], AbstractContextManager[OnCell | None]]


class NotHere(MusterError):
    """None of an experiment's data is here."""


def silently(what: str, units: int) -> AbstractContextManager[None]:
    """Say nothing about what is at work."""
    return nullcontext()


def present(panel: Panel) -> str:
    """Whether a panel's data is here: "here", "subset here", or empty."""
    entry = CATALOGUE.get(panel.data)
    if entry is None or not entry.layouts:
        return "here"
    found = first_found(entry)
    return "" if found is None else f"{found.layout.variant} here".strip()


def absent(panel: Panel) -> str:
    """The command that gets a panel's data, where it is not here; else empty."""
    return "" if present(panel) else CATALOGUE[panel.data].command


def run(
    plan: Plan,
    folder: Path,
    size: Size = "full",
    seeds: int | None = None,
    jobs: int | None = None,
    on_work: OnWork = silently,
    only: Sequence[str] = (),
) -> Results:
    """Run an experiment's panels, or only some; what is finished in the folder is not run again. A
    panel whose data is not here is left out, and the results say so."""
    for name in only:
        if name not in plan.own:
            raise MusterError(f"{plan.id}: no panel '{name}'; {nearest(name, list(plan.own))}")
    frames, keys = [], dict.fromkeys(["panel"])
    made: dict[str, Made] = {}
    chosen = [name for name in plan.own if name in only or not only]
    skipped = [name for name in plan.skipped(size) if name in chosen]
    missing = dict.fromkeys(skipped, f"muster reproduce {plan.id}")
    for panel in (p for p in plan.panels(size, seeds) if p.name in chosen):
        if command := absent(panel):
            missing[panel.name] = command
            continue
        frame, made[panel.name] = run_panel(panel, folder / panel.name, size, jobs, on_work)
        keys |= dict.fromkeys(panel.over)
        few = thinned(frame, plan.keep, list(panel.over))
        frames.append(few.with_columns(panel=pl.lit(panel.name)))
    if not frames and missing:
        commands = "; ".join(dict.fromkeys(missing.values()))
        raise NotHere(f"{plan.id}: its data is not here; get it with {commands}")
    studies = {}
    for name in plan.studies:
        began, code = time.monotonic(), digest(name)
        studies[name] = studied(name, size, seeds)
        made[name] = Made(__version__, size, round(time.monotonic() - began, 1), code)
    return Results(stacked(frames), list(keys)[1:], made, missing, studies)


def run_panel(
    panel: Panel, folder: Path, size: Size, jobs: int | None, on_work: OnWork
) -> tuple[pl.DataFrame, Made]:
    """One panel: every round of every run, and what they were made with."""
    table, work = panel.config, 0.0
    tried: list[Table] = []
    if panel.tune and size != "quick":
        table, tried, work = tuned(panel, folder / "tuning", jobs, on_work)
    # A panel that sweeps nothing is a sweep of one cell.
    over = panel.over or {"rounds": [table["rounds"]]}
    units = math.prod(map(len, over.values())) * len(as_seeds(table["seeds"]))
    with on_work(f"{panel.name}: {panel.data}", units) as on_cell:
        swept = sweep(table, over=over, folder=folder / "runs", jobs=jobs, on_cell=on_cell)
    work += float(swept.frame["seconds"].sum())
    data = about_data(panel)
    return swept.frame, Made(__version__, size, round(work, 1), panel.digest, data, tried)


def about_data(panel: Panel) -> str:
    """How many training rows a client of a panel has on average, and what is to be known of its
    data set."""
    over = panel.over or {"rounds": [panel.config["rounds"]]}
    cells = planned(panel.config, over, trusted=False).cells
    rows: dict[str, int] = {}
    for cell in cells:
        chosen = without_solo(cell.chosen)
        key = repr(chosen.data)
        if key not in rows:
            rows[key] = round(float(chosen.federation(cell.seeds[0]).train.sizes.mean()))
    few, many = min(rows.values()), max(rows.values())
    span = f"{few:,} to {many:,}" if few < many else f"{many:,}"
    said = f"{span} training rows a client (in seed {cells[0].seeds[0]})"
    entry = CATALOGUE.get(panel.data)
    found = None if entry is None else first_found(entry)
    return f"{said}; {found.layout.note}" if found is not None and found.layout.note else said


def tuned(
    panel: Panel, folder: Path, jobs: int | None, on_work: OnWork
) -> tuple[Table, list[Table], float]:
    """A panel's configuration with what tuning chose for each method, every candidate with its
    score, and the seconds of work."""
    table = {**panel.config, "tune": panel.tune}
    plan = planned_tuning(table, None, trusted=False)
    units = sum(len(cell.seeds) for mine in plan.cells.values() for cell in mine)
    with on_work(f"{panel.name}: tuning", units) as on_cell:
        found = tune(table, folder=folder, jobs=jobs, on_cell=on_cell)
    work = sum(
        float(read_frame(path, ["seconds"])["seconds"].sum())
        for path in folder.rglob("rounds.parquet")
    )
    return found.table, kept(found), work


def thinned(frame: pl.DataFrame, keep: tuple[str, ...], keys: list[str]) -> pl.DataFrame:
    """Of every run the measures to keep, of at most `POINTS` rounds in which models were measured,
    the last among them."""
    measures = [m for m in dict.fromkeys((*KEEP, *keep)) if m in frame.columns]
    # What the round itself counts is there in every round.
    taken = [pl.col(m).is_not_null() for m in measures if MEASURES[m].of is not None]
    run = [*keys, "method", "seed"]
    # A round in which one run was measured is kept of all: a run that diverged has no number there.
    varies = [name for name in Variation().table if name in frame.columns]
    some = frame.select(*run, "round", *measures, *varies).filter(
        pl.any_horizontal(taken).any().over([*keys, "round"])
    )
    place, of = pl.int_range(pl.len()).over(run), pl.len().over(run)
    # Evenly spread, counted from the end so that the last is kept.
    step = (of / POINTS).ceil().cast(pl.Int64).clip(1)
    chosen = some.filter((of - 1 - place) % step == 0)
    return chosen.with_columns(pl.col(m).cast(pl.Float32) for m in measures)
