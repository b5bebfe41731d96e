"""Tune: a grid of settings for each method, the same number of candidates for all, chosen without
a look at the reported seeds or at any test row.

    [tune]
    seeds = [100, 101, 102]
    "local.lr" = [0.03, 0.1, 0.3]
    "methods.fedalign.epsilon" = [0.1, 0.2, 0.4]

`local.KEY` is tuned for each method by itself, `method.KEY` for each method that takes it. Every
candidate fits on some rows and is scored on others (`data.for_tuning`): on a part of the training
rows; or, where every seed divides training and test rows anew, on rows that are the same in all
seeds and that no run of the configuration that comes out has (`left_out`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import tomli_w

from ..base import durable
from ..base.checks import check_whole, require
from ..base.errors import MusterError, MusterWarning
from ..base.registry import Catalogue, catalogue
from ..base.rng import as_seeds
from ..base.schema import Table, as_table, build, to_table
from ..config.dotted_keys import addressed, label_of, listed_methods, put, takes
from ..config.experiment import Experiment, load, load_table
from ..config.settings import Settings
from ..data.split.tuning_rows import splits_differ
from ..federation import Variation
from ..report.intervals import find_column
from ..results import store
from ..results.measures import find_measures
from ..results.run import Run
from ..tasks.base import Scoring
from .comparison import place_of
from .grid import Cell, as_over
from .sweep import as_base
from .sweep_result import Concerns
from .tuning_result import Candidate, Direction, Tuning, best, candidates, scored
from .units import CONFIG, OnCell, Planned, place_for, run_cells

MARKER = "chosen.toml"  # the configuration with what was chosen
LOOKED_AT = 3  # reported seeds whose rows are held against those of the first tuning seed


@dataclass(frozen=True)
class Tune:
    """How settings are chosen, next to the keys and their values.

    Attributes:
        seeds: the seeds to tune on, none of them reported: a list; default: three after the
            reported ones
        share: the share of each client's training rows that candidates are scored on; of all rows,
            where every seed divides training and test rows anew
        measure: what is scored, on those rows; default: the task's first score, as `test_accuracy`
        direction: whether the highest ("max") or the lowest ("min") is best; default: what is
            better of that measure (the lowest loss, the highest accuracy)
        budget: candidates of each method that has several; default: as many as the one with fewest
        seed: of the draw, where a method's grid has more candidates than the budget
    """

    seeds: tuple[int, ...] = ()
    share: float = 0.25
    measure: str = ""
    direction: Literal["max", "min", "auto"] = "auto"
    budget: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require(0 < self.share < 1, "tune.share", self.share, "between 0 and 1, exclusive")
        if self.measure:
            measure = find_measures(self.measure)[0]
            if measure.held_out:
                raise MusterError(
                    f"tune.measure: '{self.measure}' looks at the rows that candidates fit on; "
                    f"give {measure.held_out}, of held-out rows"
                )
        if self.budget is not None:
            check_whole("tune.budget", self.budget)

    @property
    def best(self) -> Direction:
        """Which way is better."""
        if self.direction != "auto":
            return self.direction
        return "min" if find_measures(self.measure)[0].lower else "max"


SETTINGS = tuple(field.name for field in fields(Tune))


class TuningInterrupted(KeyboardInterrupt):
    """Ctrl-C during a tuning; what is finished is in its folder."""


def tune(
    table: Mapping[str, Any] | str | Path,
    over: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    jobs: int | None = None,
    on_cell: OnCell | None = None,
) -> Tuning:
    """Choose settings for each method of a configuration.

    Args:
        table: a configuration, as a table or a TOML file, with [tune]
        over: in place of [tune]: lists of values by key, and `seeds`, `share`, `measure`,
            `direction`, `budget`
        folder: candidates are kept here as they finish, and not run again; `tuning.parquet` and
            `chosen.toml` are written here
        jobs: as in `muster.sweep`
        on_cell: as in `muster.sweep`

    >>> import muster
    >>> small = {"data": {"name": "digits", "clients": 10, "priority": 2}, "rounds": 2, "seeds": 2,
    ...          "methods": ["fedalign", "fedavg"]}
    >>> done = muster.tune(small, {"local.lr": [0.01, 0.1], "seeds": [7]}, jobs=1)
    >>> sorted(done.chosen), done.frame.height
    (['fedalign', 'fedavg'], 4)
    """
    plan = planned(table, over, trusted=True)
    with place_for(folder) as place:
        return run_plan(plan, place, jobs, on_cell)


@dataclass(frozen=True)
class Plan:
    """A tuning before it is run."""

    base: Table
    given: Table
    tune: Tune
    seeds: tuple[int, ...]
    tried: dict[str, list[dict[str, Any]]]
    grids: dict[str, int]
    cells: dict[str, list[Planned]]


def planned(
    table: Mapping[str, Any] | str | Path, over: Mapping[str, Any] | None, trusted: bool = False
) -> Plan:
    """Every candidate of every method, checked; `trusted` as in `config.load`."""
    parts = catalogue(trusted)
    base = as_base(table)
    own = base.pop("tune", {})
    base.pop("sweep", None)
    given = deepcopy(as_table("tune", own if over is None else over))
    settings = {key: given[key] for key in given if key in SETTINGS}
    if isinstance(settings.get("seeds"), (tuple, range)):
        settings["seeds"] = list(settings["seeds"])
    if "seeds" in settings and not isinstance(settings["seeds"], list):
        raise MusterError(f"tune.seeds: {settings['seeds']}; give a list of them, as [100, 101]")
    chosen: Tune = build(Tune, settings, "tune")
    lists = as_over({k: v for k, v in given.items() if k not in SETTINGS}, "tune")
    reported_runs = load(base, trusted)
    whole_run = reported_runs.settings
    if not chosen.measure:
        chosen = replace(chosen, measure=f"test_{Scoring(whole_run.task).first.name}")
    reported = whole_run.all_seeds
    seeds = chosen.seeds or tuple(range(max(reported) + 1, max(reported) + 4))
    as_seeds(seeds)
    both = sorted(set(seeds) & set(reported))
    if both:
        raise MusterError(
            f"tune.seeds: {both[0]} is among the reported seeds {list(reported)}; give others"
        )
    chosen, base = rows_apart(base, chosen, "share" in settings, reported_runs, seeds)
    entries = listed_methods(base)
    grids = {label_of(entry): own_lists(entry, lists, entries, parts) for entry in entries}
    budget = budget_of(grids, chosen.budget)
    tried = {label: candidates(mine, budget, chosen.seed) for label, mine in grids.items()}
    cells = {
        label: [
            Planned.of(*candidate_cell(base, label, one, seeds, chosen.measure), trusted)
            for one in mine
        ]
        for label, mine in tried.items()
    }
    sizes = {label: size_of(mine) for label, mine in grids.items()}
    return Plan(base, given, chosen, seeds, tried, sizes, cells)


def rows_apart(
    base: Table, chosen: Tune, said: bool, reported: Experiment, seeds: Sequence[int]
) -> tuple[Tune, Table]:
    """The tuning and the configuration with the share of rows that only tuning is judged by, where
    they have to be set apart: it says so already, or every seed divides its rows anew.

    Args:
        said: whether the share was given
    """
    left_out = reported.settings.left_out
    if left_out and said and chosen.share != left_out:
        raise MusterError(
            f"tune.share: {chosen.share}, and left_out = {left_out}: candidates are scored on what "
            "is left out; give one of the two"
        )
    if left_out:
        return replace(chosen, share=left_out), base
    with warnings.catch_warnings():  # they are said where the data is used
        warnings.simplefilter("ignore", MusterWarning)
        others = map(reported.rows, reported.settings.all_seeds[:LOOKED_AT])
        anew = splits_differ(reported.rows(seeds[0]), others)
    return chosen, {**base, "left_out": chosen.share} if anew else base


def budget_of(grids: Mapping[str, Mapping[str, list[Any]]], given: int | None) -> int:
    """How many candidates each method gets. One that has nothing to choose from runs as it is."""
    several = {label: size for label, mine in grids.items() if (size := size_of(mine)) > 1}
    if not several:
        raise MusterError(
            'tune: nothing to choose from; give lists of two values and more, as "local.lr" = '
            "[0.03, 0.1] in [tune], or --tune.local.lr 0.03,0.1"
        )
    fewest = min(several, key=lambda label: several[label])
    budget = several[fewest] if given is None else given
    if budget > several[fewest]:
        raise MusterError(
            f"tune.budget: {budget}, and {fewest} has {several[fewest]} to try; every method gets "
            "as many, so give it more values, or a smaller budget"
        )
    return budget


def size_of(lists: Mapping[str, list[Any]]) -> int:
    """How many candidates lists of values make."""
    return math.prod(map(len, lists.values()))


def own_lists(
    entry: Table, lists: Mapping[str, list[Any]], entries: Sequence[Table], parts: Catalogue
) -> dict[str, list[Any]]:
    """What is tried for one method: values by key, as within its own table."""
    found: dict[str, list[Any]] = {}
    for key, values in lists.items():
        head, _, rest = key.partition(".")
        if head == "local" and rest:
            found[key] = values
        elif head == "method" and rest:
            takers = takes(entries, rest.partition(".")[0], f"tune.{key}", parts)
            if any(taker is entry for taker in takers):
                found[rest] = values
        elif head == "methods" and rest:
            whose, inner = addressed(entries, rest, f"tune.{key}")
            if whose is entry:
                found[inner] = values
        else:
            raise MusterError(
                f"tune.{key}: not a setting of a method; give local.KEY, method.KEY or "
                "methods.LABEL.KEY"
            )
    return found


def candidate_cell(
    base: Table, label: str, values: Candidate, seeds: Sequence[int], measure: str
) -> tuple[Cell, Table]:
    """The experiment of one candidate: its method alone, on the validation seeds."""
    table = with_values(base, label, values)
    table["methods"] = [e for e in table["methods"] if label_of(e) == label]
    table["seeds"] = list(seeds)
    table["evaluate_every"] = 0  # it is scored after the last round
    table["measures"] = [measure]  # which is known to be taken before anything runs
    table["tuned_on"] = []  # they may be tuned on again
    return Cell({"method": label, **values}), table


def with_values(base: Table, label: str, values: Candidate) -> Table:
    """A configuration in which one method has these values of its own."""
    table = deepcopy(base)
    table["methods"] = listed_methods(table)
    table.pop("method", None)
    for key, value in values.items():
        put(table, f"methods.{label}.{key}", deepcopy(value), f"tune.{key}")
    return table


def run_plan(plan: Plan, folder: Path, jobs: int | None, on_cell: OnCell | None) -> Tuning:
    """Run what is not finished, choose, and write down every score and the choice."""

    def begin() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        table = {**to_table(plan.base), "tune": to_table(plan.given)}
        durable.write(folder / CONFIG, tomli_w.dumps(table))

    every = [as_begun(cell, folder) for mine in plan.cells.values() for cell in mine]
    if (folder / CONFIG).exists():
        kept = load_table(folder / CONFIG, follow=False)
        for key, was, now in (
            ("left_out", kept.get("left_out", 0.0), plan.base.get("left_out", 0.0)),
            ("share", kept.get("tune", {}).get("share", Tune.share), plan.tune.share),
        ):
            if was != now and not (key == "share" and plan.base.get("left_out")):
                raise MusterError(
                    f"{folder}: its candidates were scored with {key} = {was}, this tuning has "
                    f"{now}; give another folder"
                )
    with durable.lock_folder(folder):
        try:
            run_cells(every, folder, jobs, on_cell, begin, plan.tune.share)
        except KeyboardInterrupt:
            raise TuningInterrupted("interrupted") from None
        return concluded(plan, folder)


def as_begun(planned: Planned, folder: Path) -> Planned:
    """A candidate that was begun when candidates were measured in more rounds goes on that way:
    what it is scored by is the same."""
    begun = folder / planned.cell.name / CONFIG
    if not begun.exists():
        return planned
    often = load_table(begun, follow=False).get("evaluate_every", Settings.evaluate_every)
    table = {**planned.table, "evaluate_every": often}
    return Planned.of(planned.cell, table, planned.trusted)


def concluded(plan: Plan, folder: Path) -> Tuning:
    """Choose from what was run."""
    scores: dict[str, list[list[float]]] = {}
    wrong = Concerns()
    told: list[Table | None] = []
    for label, mine in plan.cells.items():
        scores[label] = []
        for one in mine:
            runs = [store.load(place_of(folder / one.cell.name, label, s)) for s in plan.seeds]
            for run in runs:
                wrong.add(label, one.cell.name, run.warnings)
                told.append(run.facts.get("varies"))
            scores[label].append([score_of(run, label, plan.tune.measure) for run in runs])
    at_best = {label: best(mine, plan.tune.best) for label, mine in scores.items()}
    chosen = {label: plan.tried[label][first] for label, (first, *_) in at_best.items()}
    table = deepcopy(plan.base)
    for label, values in chosen.items():
        table = with_values(table, label, values)
    table["name"] = f"{table.get('name', 'run')}-tuned"
    table["tuned_on"] = sorted({*plan.seeds, *table.get("tuned_on", [])})
    frame = scored(plan.tried, scores, plan.seeds, at_best)
    with durable.atomic_file(folder / "tuning.parquet") as new:
        frame.write_parquet(new)
    durable.write(folder / MARKER, tomli_w.dumps(to_table(table)))
    return Tuning(
        frame, chosen, table, plan.tune.measure, plan.tune.best, plan.grids, wrong.said(), folder,
        Variation.combine(told),
    )  # fmt: skip


def score_of(run: Run, label: str, measure: str) -> float:
    """What a candidate scored in one seed, after the last round; nan where it diverged, or every
    round was skipped: then the number is that of a model nobody trained."""
    column = find_column(run, measure)
    if column is None:
        raise MusterError(f"tune.measure: {label} does not take '{measure}'; give another")
    value = run.rounds[column][-1]
    return math.nan if value is None or run.idle else float(value)
