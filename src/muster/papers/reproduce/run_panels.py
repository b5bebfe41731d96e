"""Running an experiment: the tuning of its panels, the panels, and its studies of the theory.

The runs stay in the working folder, where finished ones are not run again. Results keep less of
them: some measures of some rounds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from ... import __version__
from ...base.errors import MusterError, nearest
from ...base.lazy import pl
from ...base.rng import as_seeds
from ...base.schema import Table
from ...base.untrusted_files import read_frame
from ...data.sources.catalogue import CATALOGUE
from ...data.sources.dataset import locate
from ...federation import Variation
from ...results.measures import MEASURES
from ...study.experiment_runs import without_solo
from ...study.sweep import plan_sweep, run_sweep
from ...study.tickets import Share
from ...study.tune import plan_tuning, run_tuning
from ...study.units import OnCell, Placement, SharesUnderWay
from ..theory import study
from .panel_results import Provenance, Results, record_tuning, stack
from .paper_experiment import KEEP, Panel, PaperExperiment, Size

POINTS = 50  # rounds of a run that results keep
# Called with a panel (or its tuning) and its number of seeds and cells; returns the callback that
# receives each finished one.
OnWork = Callable[[str, int], AbstractContextManager[OnCell | None]]


class DataMissing(MusterError):
    """None of an experiment's data is on this machine."""


def report_nothing(what: str, units: int) -> AbstractContextManager[None]:
    """Report no progress."""
    return nullcontext()


def data_state(panel: Panel) -> str:
    """Return the state of a panel's data: "here", "subset here", or empty."""
    entry = CATALOGUE.get(panel.data)
    if entry is None or not entry.layouts:
        return "here"
    found = locate(entry)
    return "" if found is None else f"{found.layout.variant} here".strip()


def missing_command(panel: Panel) -> str:
    """Return the command that gets a panel's data if it is missing; else empty."""
    return "" if data_state(panel) else CATALOGUE[panel.data].command


def run(
    experiment: PaperExperiment,
    folder: Path,
    size: Size = "full",
    seeds: int | None = None,
    jobs: int | None = None,
    on_work: OnWork = report_nothing,
    only: Sequence[str] = (),
    executor: Executor | None = None,
    share: Share | None = None,
) -> Results:
    """Run an experiment's panels, or only some; runs finished in the folder are not repeated. A
    panel whose data is missing is left out, and the results record it. Runs go to processes, or
    to an executor, as in `muster.sweep`, or are a share of those that several processes run; the
    theory's studies are computed here, once all runs are there. Where runs are left to other
    processes, `SharesUnderWay` is raised."""
    where = Placement(jobs, executor, share)
    for name in only:
        if name not in experiment.panel_tables:
            known = nearest(name, list(experiment.panel_tables))
            raise MusterError(f"{experiment.id}: no panel '{name}'; {known}")
    frames, keys = [], dict.fromkeys(["panel"])
    provenance: dict[str, Provenance] = {}
    chosen = [name for name in experiment.panel_tables if name in only or not only]
    skipped = [name for name in experiment.skipped_panels(size) if name in chosen]
    missing = dict.fromkeys(skipped, f"muster reproduce {experiment.id}")
    elsewhere: list[SharesUnderWay] = []
    for panel in (p for p in experiment.panels(size, seeds) if p.name in chosen):
        if command := missing_command(panel):
            missing[panel.name] = command
            continue
        place = folder / panel.name
        try:
            frame, provenance[panel.name] = run_panel(panel, place, size, where, on_work)
        except SharesUnderWay as left:
            elsewhere.append(left)
            continue
        keys |= dict.fromkeys(panel.over)
        few = thin_rounds(frame, experiment.keep, list(panel.over))
        frames.append(few.with_columns(panel=pl.lit(panel.name)))
    if elsewhere:
        raise SharesUnderWay(sum(e.left for e in elsewhere), sum(e.total for e in elsewhere))
    if not frames and missing:
        commands = "; ".join(dict.fromkeys(missing.values()))
        raise DataMissing(f"{experiment.id}: its data is not here; get it with {commands}")
    studies = {}
    for name in experiment.studies:
        began, code = time.monotonic(), study.digest(name)
        studies[name] = study.run_study(name, size == "quick", seeds)
        provenance[name] = Provenance(__version__, size, round(time.monotonic() - began, 1), code)
    return Results(stack(frames), list(keys)[1:], provenance, missing, studies)


def run_panel(
    panel: Panel, folder: Path, size: Size, where: Placement, on_work: OnWork
) -> tuple[pl.DataFrame, Provenance]:
    """Run one panel: every round of every run, and its provenance."""
    table, work = panel.config, 0.0
    tried: list[Table] = []
    if panel.tune and size != "quick":
        table, tried, work = tune_panel(panel, folder / "tuning", where, on_work)
    # A panel that sweeps nothing is a sweep of one cell.
    over = panel.over or {"rounds": [table["rounds"]]}
    units = math.prod(map(len, over.values())) * len(as_seeds(table["seeds"]))
    with on_work(f"{panel.name}: {panel.data}", units) as on_cell:
        swept = run_sweep(plan_sweep(table, over, trusted=True), folder / "runs", where, on_cell)
    work += float(swept.frame["seconds"].sum())
    data = describe_data(panel)
    return swept.frame, Provenance(__version__, size, round(work, 1), panel.digest, data, tried)


def describe_data(panel: Panel) -> str:
    """Describe a panel's data: its clients' mean number of training rows, and the note on its data
    set."""
    over = panel.over or {"rounds": [panel.config["rounds"]]}
    cells = plan_sweep(panel.config, over, trusted=False).cells
    rows: dict[str, int] = {}
    for cell in cells:
        chosen = without_solo(cell.chosen)
        key = repr(chosen.data)
        if key not in rows:
            rows[key] = round(float(chosen.federation(cell.seeds[0]).train.sizes.mean()))
    few, many = min(rows.values()), max(rows.values())
    span = f"{few:,} to {many:,}" if few < many else f"{many:,}"
    text = f"{span} training rows a client (in seed {cells[0].seeds[0]})"
    entry = CATALOGUE.get(panel.data)
    found = None if entry is None else locate(entry)
    return f"{text}; {found.layout.note}" if found is not None and found.layout.note else text


def tune_panel(
    panel: Panel, folder: Path, where: Placement, on_work: OnWork
) -> tuple[Table, list[Table], float]:
    """Tune a panel: return its configuration with the settings chosen for each method, every
    candidate with its score, and the seconds of work."""
    table = {**panel.config, "tune": panel.tune}
    plan = plan_tuning(table, None, trusted=True)
    units = sum(len(cell.seeds) for mine in plan.cells.values() for cell in mine)
    with on_work(f"{panel.name}: tuning", units) as on_cell:
        found = run_tuning(plan, folder, where, on_cell)
    work = sum(
        float(read_frame(path, ["seconds"])["seconds"].sum())
        for path in folder.rglob("rounds.parquet")
    )
    return found.table, record_tuning(found), work


def thin_rounds(frame: pl.DataFrame, keep: tuple[str, ...], keys: list[str]) -> pl.DataFrame:
    """Select the measures to keep of every run, in at most `POINTS` rounds in which models were
    measured, the last among them."""
    measures = [m for m in dict.fromkeys((*KEEP, *keep)) if m in frame.columns]
    # Counts of the round itself exist in every round.
    measured = [pl.col(m).is_not_null() for m in measures if MEASURES[m].of is not None]
    run = [*keys, "method", "seed"]
    # A round in which one run was measured is kept of all: a run that diverged has no number there.
    varies = [name for name in Variation().table if name in frame.columns]
    some = frame.select(*run, "round", *measures, *varies).filter(
        pl.any_horizontal(measured).any().over([*keys, "round"])
    )
    place, of = pl.int_range(pl.len()).over(run), pl.len().over(run)
    # Evenly spread, counted from the end so that the last is kept.
    step = (of / POINTS).ceil().cast(pl.Int64).clip(1)
    chosen = some.filter((of - 1 - place) % step == 0)
    return chosen.with_columns(pl.col(m).cast(pl.Float32) for m in measures)
