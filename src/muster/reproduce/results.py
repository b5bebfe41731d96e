"""Results of an experiment: one small file that the claims are judged by and the figures drawn of.

`ID.parquet` has one row per panel, swept cell, method, seed and round (of long runs, some of the
rounds), `ID.toml` says what it was made with. The runs themselves stay in the working folder, where
finished ones are not run again.
"""

from __future__ import annotations

import inspect
import math
import time
import tomllib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from .. import __version__, durable
from ..config.sweeps import sweep
from ..config.tuning import planned as planned_tuning
from ..config.tuning import tune
from ..config.units import OnCell
from ..data.sources.catalogue import CATALOGUE
from ..data.sources.obtain import first_found
from ..errors import MusterError
from ..lazy import pl
from ..run.measures import MEASURES
from ..schema import Table
from ..study.compare import as_seeds
from ..theory.study import bound, corollary2, rate, toy, weights
from .plan import KEEP, Panel, Plan, Size, find
from .tuned import kept

STUDIES: dict[str, Callable[..., pl.DataFrame]] = {
    "bound": bound,
    "corollary2": corollary2,
    "toy": toy,
    "weights": weights,
    "rate": rate,
}
POINTS = 50  # rounds of a run that are kept
# Called with what is at work (a panel, or its tuning) and how many seeds of cells it has; gives
# what is told of each of them.
OnWork = Callable[[str, int], AbstractContextManager[OnCell | None]]


class NotHere(MusterError):
    """None of an experiment's data is here."""


def silently(what: str, units: int) -> AbstractContextManager[None]:
    """Say nothing about what is at work."""
    return nullcontext()


@dataclass(frozen=True, eq=False)
class Results:
    """What came out of an experiment.

    frame    one row per panel, swept cell, method, seed and round
    facts    what it was made with: version, size, digest of the file, swept keys, seconds of work
             (of all runs and tunings together, whenever they were run), the candidates of a
             tuning with their scores, which panels could not be run, and which of the experiments
             it uses were run by an earlier version of their file
    studies  the frame of each study of the theory
    """

    frame: pl.DataFrame
    facts: dict[str, Any] = field(default_factory=dict)
    studies: dict[str, pl.DataFrame] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        """The swept keys."""
        return list(self.facts.get("keys", []))


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
) -> Results:
    """Run an experiment's panels; what is finished in the folder is not run again. A panel whose
    data is not here is left out, and the facts say so."""
    work, frames, keys, tried = 0.0, [], dict.fromkeys(["panel"]), {}
    missing = dict.fromkeys(plan.skipped(size), f"muster reproduce {plan.id}")
    for panel in plan.panels(size, seeds):
        if command := absent(panel):
            missing[panel.name] = command
            continue
        table, where = panel.config, folder / panel.name
        if panel.tune and size != "quick":
            table, tried[panel.name], took = tuned(panel, where / "tuning", jobs, on_work)
            work += took
        # A panel that sweeps nothing is a sweep of one cell.
        over = panel.over or {"rounds": [table["rounds"]]}
        units = math.prod(map(len, over.values())) * len(as_seeds(table["seeds"]))
        with on_work(f"{panel.name}: {panel.data}", units) as on_cell:
            swept = sweep(table, over=over, folder=where / "runs", jobs=jobs, on_cell=on_cell)
        work += float(swept.frame["seconds"].sum())
        keys |= dict.fromkeys(panel.over)
        few = thinned(swept.frame, plan.keep, list(panel.over))
        frames.append(few.with_columns(panel=pl.lit(panel.name)))
    if not frames and missing:
        commands = "; ".join(dict.fromkeys(missing.values()))
        raise NotHere(f"{plan.id}: its data is not here; get it with {commands}")
    began = time.monotonic()
    studies = {name: studied(name, size, seeds) for name in plan.studies}
    work += time.monotonic() - began
    facts: Table = {
        "version": __version__,
        "size": size,
        "digest": plan.digest,
        "seconds": round(work, 1),
        "keys": list(keys)[1:],
        "missing": missing,
        "subsets": [p.name for p in plan.panels(size) if "subset" in present(p)],
        "tuning": tried,
        "studies": list(studies),
    }
    return Results(stacked(frames), facts, studies)


def stacked(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """One frame after another; what some do not have is null there."""
    some = [frame for frame in frames if frame.width]
    return pl.concat(some, how="diagonal_relaxed") if some else pl.DataFrame()


def studied(name: str, size: Size, seeds: int | None) -> pl.DataFrame:
    """A study of the theory, whose runs are seconds and not kept."""
    make = STUDIES[name]
    takes = inspect.signature(make).parameters
    given = {"quick": size == "quick", **({} if seeds is None else {"seeds": seeds})}
    return make(**{key: value for key, value in given.items() if key in takes})


def tuned(
    panel: Panel, folder: Path, jobs: int | None, on_work: OnWork
) -> tuple[Table, list[Table], float]:
    """A panel's configuration with what tuning chose for each method, every candidate with its
    score, and the seconds of work."""
    table = {**panel.config, "tune": panel.tune}
    plan = planned_tuning(table, None)
    units = sum(len(cell.seeds) for mine in plan.cells.values() for cell in mine)
    with on_work(f"{panel.name}: tuning", units) as on_cell:
        found = tune(table, folder=folder, jobs=jobs, on_cell=on_cell)
    work = sum(
        float(pl.read_parquet(path, columns=["seconds"], glob=False)["seconds"].sum())
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
    some = frame.select(*run, "round", *measures).filter(
        pl.any_horizontal(taken).any().over([*keys, "round"])
    )
    place, of = pl.int_range(pl.len()).over(run), pl.len().over(run)
    # Evenly spread, counted from the end so that the last is kept.
    step = (of / POINTS).ceil().cast(pl.Int64).clip(1)
    chosen = some.filter((of - 1 - place) % step == 0)
    return chosen.with_columns(pl.col(m).cast(pl.Float32) for m in measures)


def save(results: Results, folder: Path, id: str) -> Path:
    """Keep results as `ID.parquet` and `ID.toml`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{id}.parquet"
    with durable.replacing(path) as new:
        results.frame.write_parquet(new, compression="zstd")
    for name, frame in results.studies.items():
        with durable.replacing(folder / f"{id}-{name}.parquet") as new:
            frame.write_parquet(new, compression="zstd")
    durable.write(path.with_suffix(".toml"), tomli_w.dumps(results.facts))
    return path


def load(folder: Path, id: str) -> Results | None:
    """Results that were kept, or None."""
    path = folder / f"{id}.parquet"
    if not path.exists():
        return None
    facts = tomllib.loads(path.with_suffix(".toml").read_text())
    studies = {
        name: pl.read_parquet(folder / f"{id}-{name}.parquet") for name in facts.get("studies", [])
    }
    return Results(pl.read_parquet(path), facts, studies)


def together(plan: Plan, folder: Path) -> Results | None:
    """An experiment's results with those it uses; None where there are none at all."""
    used = {id: found for id in plan.uses if (found := load(folder, id)) is not None}
    own = load(folder, plan.id)
    if own is None and not used:
        return None
    every = [*used.values(), *([] if own is None else [own])]
    renamed = [apart(r.frame, plan, id) for id, r in used.items()]
    frame = stacked([*renamed, *([] if own is None else [own.frame])])
    keys = dict.fromkeys(key for r in every for key in r.keys)
    studies = {name: frame for r in every for name, frame in r.studies.items()}
    facts = {"digest": plan.digest, "size": "full"} if own is None else own.facts
    earlier = [id for id, r in used.items() if r.facts["digest"] != find(id).digest]
    return Results(frame, {**facts, "keys": list(keys), "earlier": earlier}, studies)


def apart(frame: pl.DataFrame, plan: Plan, id: str) -> pl.DataFrame:
    """The results of an experiment that a plan uses, panels of a name that it has too by `ID/`."""
    if not frame.width:
        return frame
    names = {name: f"{id}/{name}" for name in plan.own}
    return frame.with_columns(pl.col("panel").replace(names))
