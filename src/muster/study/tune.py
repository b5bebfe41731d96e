"""Tuning: a grid of settings for each method, the same number of candidates for all, chosen
without the reported seeds and without any test row.

    [tune]
    seeds = [100, 101, 102]
    "local.lr" = [0.03, 0.1, 0.3]
    "methods.fedalign.epsilon" = [0.1, 0.2, 0.4]

`local.KEY` is tuned for each method separately, `method.KEY` for each method that takes it. Every
candidate is trained on some rows and scored on others (`data.for_tuning`): on a part of the
training rows; or, if every seed draws training and test rows again, on rows that are the same in
all seeds and that no run of the resulting configuration uses (`left_out`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
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
from ..config.dotted_keys import find_method, find_takers, get_label, list_methods, set_key
from ..config.experiment import Experiment, load, load_table
from ..config.settings import Settings
from ..data.split.resplit import splits_differ
from ..federation import Variation
from ..report.intervals import find_column
from ..results import store
from ..results.measures import find_measures
from ..results.run import Run
from ..tasks.task import Scoring
from .comparison import get_run_folder
from .grid import Cell, parse_lists
from .sweep import read_base
from .sweep_result import WarningCounter
from .tuning_result import Candidate, Direction, Tuning, build_frame, draw_candidates, find_best
from .units import CONFIG, CellPlan, OnCell, Placement, lock_units, run_cells
from .workers import open_folder

TUNABLE = ("local.", "method.", "methods.")  # how keys of a method's settings begin
MARKER = "chosen.toml"  # the configuration with what was chosen
LOOKED_AT = 3  # reported seeds whose rows are held against those of the first tuning seed


@dataclass(frozen=True)
class Tune:
    """Settings of a tuning, next to the keys and their values.

    Attributes:
        seeds: list of seeds to tune on, none of them reported; default: three after the reported
            ones
        share: fraction of each client's training rows that candidates are scored on; fraction of
            all rows if every seed draws training and test rows again
        measure: measure of the score on those rows; default: the task's first score, such as
            `test_accuracy`
        direction: "max" if the highest score is best, "min" if the lowest is; default: that of the
            measure (the lowest loss, the highest accuracy)
        budget: number of candidates of each method that has several; default: that of the method
            with fewest
        seed: seed of the draw, if a method's grid has more candidates than the budget
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
        """The direction in which the score is better."""
        if self.direction != "auto":
            return self.direction
        return "min" if find_measures(self.measure)[0].lower else "max"


SETTINGS = tuple(field.name for field in fields(Tune))


class TuningInterrupted(KeyboardInterrupt):
    """Ctrl-C during a tuning; the finished runs are in its folder."""


def tune(
    table: Mapping[str, Any] | str | Path,
    over: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    jobs: int | None = None,
    on_cell: OnCell | None = None,
    executor: Executor | None = None,
) -> Tuning:
    """Choose settings for each method of a configuration.

    Args:
        table: a configuration, as a table or a TOML file, with [tune]
        over: in place of [tune]: lists of values by key, and `seeds`, `share`, `measure`,
            `direction`, `budget`
        folder: candidates are saved here as they finish, and not run again; `tuning.parquet` and
            `chosen.toml` are written here
        jobs: as in `muster.sweep`
        on_cell: as in `muster.sweep`
        executor: as in `muster.sweep`

    >>> import muster
    >>> small = {"data": {"name": "digits", "clients": 10, "priority": 2}, "rounds": 2, "seeds": 2,
    ...          "methods": ["fedalign", "fedavg"]}
    >>> done = muster.tune(small, {"local.lr": [0.01, 0.1], "seeds": [7]}, jobs=1)
    >>> sorted(done.chosen), done.frame.height
    (['fedalign', 'fedavg'], 4)
    """
    where = Placement(jobs, executor)
    plan = plan_tuning(table, over, trusted=True)
    with open_folder(folder) as place:
        return run_tuning(plan, place, where, on_cell)


@dataclass(frozen=True)
class TuningPlan:
    """The plan of a tuning: its settings, and the candidates of every method."""

    base: Table
    given: Table
    tune: Tune
    seeds: tuple[int, ...]
    tried: dict[str, list[dict[str, Any]]]
    grids: dict[str, int]
    cells: dict[str, list[CellPlan]]

    @property
    def config(self) -> Table:
        """The configuration, as it is in the folder."""
        return {**to_table(self.base), "tune": to_table(self.given)}


def plan_tuning(
    table: Mapping[str, Any] | str | Path, over: Mapping[str, Any] | None, trusted: bool = False
) -> TuningPlan:
    """Return the plan of a tuning, every candidate checked; `trusted` as in `config.load`."""
    parts = catalogue(trusted)
    base = read_base(table)
    own = base.pop("tune", {})
    base.pop("sweep", None)
    given = deepcopy(as_table("tune", own if over is None else over))
    settings = {key: given[key] for key in given if key in SETTINGS}
    if isinstance(settings.get("seeds"), (tuple, range)):
        settings["seeds"] = list(settings["seeds"])
    if "seeds" in settings and not isinstance(settings["seeds"], list):
        raise MusterError(f"tune.seeds: {settings['seeds']}; give a list of them, as [100, 101]")
    chosen: Tune = build(Tune, settings, "tune")
    others = {key: values for key, values in given.items() if key not in SETTINGS}
    for key, values in others.items():
        if not (key.startswith(TUNABLE) or (f"{key}." in TUNABLE and isinstance(values, Mapping))):
            raise MusterError(
                f"tune.{key}: not a setting of a method; give local.KEY, method.KEY, "
                f"methods.LABEL.KEY, or of the tuning {', '.join(SETTINGS)}"
            )
    lists = parse_lists(others, "tune")
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
    chosen, base = reserve_rows(base, chosen, "share" in settings, reported_runs, seeds)
    entries = list_methods(base)
    grids = {get_label(entry): find_own_lists(entry, lists, entries, parts) for entry in entries}
    budget = find_budget(grids, chosen.budget)
    tried = {label: draw_candidates(mine, budget, chosen.seed) for label, mine in grids.items()}
    cells = {
        label: [
            CellPlan.of(*candidate_cell(base, label, one, seeds, chosen.measure), trusted)
            for one in mine
        ]
        for label, mine in tried.items()
    }
    sizes = {label: count_candidates(mine) for label, mine in grids.items()}
    return TuningPlan(base, given, chosen, seeds, tried, sizes, cells)


def reserve_rows(
    base: Table, chosen: Tune, explicit: bool, reported: Experiment, seeds: Sequence[int]
) -> tuple[Tune, Table]:
    """Return the tuning and the configuration with `left_out`, the fraction of rows reserved for
    tuning, if it is set already or if every seed draws training and test rows again.

    Args:
        explicit: True if the share was given
    """
    left_out = reported.settings.left_out
    if left_out and explicit and chosen.share != left_out:
        raise MusterError(
            f"tune.share: {chosen.share}, and left_out = {left_out}: candidates are scored on what "
            "is left out; give one of the two"
        )
    if left_out:
        return replace(chosen, share=left_out), base
    with warnings.catch_warnings():  # they are shown where the data is used
        warnings.simplefilter("ignore", MusterWarning)
        others = map(reported.rows, reported.settings.all_seeds[:LOOKED_AT])
        differ = splits_differ(reported.rows(seeds[0]), others)
    return chosen, {**base, "left_out": chosen.share} if differ else base


def find_budget(grids: Mapping[str, Mapping[str, list[Any]]], given: int | None) -> int:
    """Return the number of candidates of each method. A method without any runs as it is."""
    several = {label: size for label, mine in grids.items() if (size := count_candidates(mine)) > 1}
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


def count_candidates(lists: Mapping[str, list[Any]]) -> int:
    """Return the number of candidates in lists of values."""
    return math.prod(map(len, lists.values()))


def find_own_lists(
    entry: Table, lists: Mapping[str, list[Any]], entries: Sequence[Table], parts: Catalogue
) -> dict[str, list[Any]]:
    """Return the lists of values for one method, by key within its own table."""
    found: dict[str, list[Any]] = {}
    for key, values in lists.items():
        head, _, rest = key.partition(".")
        if head == "local":
            found[key] = values
        elif head == "method":
            takers = find_takers(entries, rest.partition(".")[0], f"tune.{key}", parts)
            if any(taker is entry for taker in takers):
                found[rest] = values
        elif head == "methods":
            whose, inner = find_method(entries, rest, f"tune.{key}")
            if whose is entry:
                found[inner] = values
    return found


def candidate_cell(
    base: Table, label: str, values: Candidate, seeds: Sequence[int], measure: str
) -> tuple[Cell, Table]:
    """Return the cell and table of one candidate: its method alone, on the validation seeds."""
    table = set_values(base, label, values)
    table["methods"] = [e for e in table["methods"] if get_label(e) == label]
    table["seeds"] = list(seeds)
    table["evaluate_every"] = 0  # it is scored after the last round
    table["measures"] = [measure]  # so that it is checked before anything runs
    table["tuned_on"] = []  # they may be tuned on again
    return Cell({"method": label, **values}), table


def set_values(base: Table, label: str, values: Candidate) -> Table:
    """Return a configuration with these values set for one method."""
    table = deepcopy(base)
    table["methods"] = list_methods(table)
    table.pop("method", None)
    for key, value in values.items():
        set_key(table, f"methods.{label}.{key}", deepcopy(value), f"tune.{key}")
    return table


def run_tuning(plan: TuningPlan, folder: Path, where: Placement, on_cell: OnCell | None) -> Tuning:
    """Run the unfinished candidates, choose, and write every score and the choice."""

    def begin() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        durable.write(folder / CONFIG, tomli_w.dumps(plan.config))

    every = [continue_cell(cell, folder) for mine in plan.cells.values() for cell in mine]
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
    with lock_units(folder, where):
        try:
            run_cells(every, folder, where, on_cell, begin, plan.tune.share)
        except KeyboardInterrupt:
            raise TuningInterrupted("interrupted") from None
        return conclude(plan, folder)


def continue_cell(plan: CellPlan, folder: Path) -> CellPlan:
    """Return the plan of a candidate with the `evaluate_every` it was begun with, which may be that
    of an earlier version: the score is the same."""
    begun = folder / plan.cell.name / CONFIG
    if not begun.exists():
        return plan
    often = load_table(begun, follow=False).get("evaluate_every", Settings.evaluate_every)
    table = {**plan.table, "evaluate_every": often}
    return CellPlan.of(plan.cell, table, plan.trusted)


def conclude(plan: TuningPlan, folder: Path) -> Tuning:
    """Choose settings from the finished runs."""
    scores: dict[str, list[list[float]]] = {}
    wrong = WarningCounter()
    varies: list[Table | None] = []
    for label, mine in plan.cells.items():
        scores[label] = []
        for one in mine:
            runs = [
                store.load(get_run_folder(folder / one.cell.name, label, s)) for s in plan.seeds
            ]
            for run in runs:
                wrong.add(label, one.cell.name, run.warnings)
                varies.append(run.facts.get("varies"))
            scores[label].append([get_score(run, label, plan.tune.measure) for run in runs])
    at_best = {label: find_best(mine, plan.tune.best) for label, mine in scores.items()}
    chosen = {label: plan.tried[label][first] for label, (first, *_) in at_best.items()}
    table = deepcopy(plan.base)
    for label, values in chosen.items():
        table = set_values(table, label, values)
    table["name"] = f"{table.get('name', 'run')}-tuned"
    table["tuned_on"] = sorted({*plan.seeds, *table.get("tuned_on", [])})
    frame = build_frame(plan.tried, scores, plan.seeds, at_best)
    with durable.atomic_file(folder / "tuning.parquet") as new:
        frame.write_parquet(new)
    durable.write(folder / MARKER, tomli_w.dumps(to_table(table)))
    return Tuning(
        frame,
        chosen,
        table,
        plan.tune.measure,
        plan.tune.best,
        plan.grids,
        wrong.lines(),
        folder,
        Variation.combine(varies),
    )


def get_score(run: Run, label: str, measure: str) -> float:
    """Return the score of a candidate in one seed, after the last round; nan if it diverged, or if
    every round was skipped and nothing was trained."""
    column = find_column(run, measure)
    if column is None:
        raise MusterError(f"tune.measure: {label} does not take '{measure}'; give another")
    value = run.rounds[column][-1]
    return math.nan if value is None or run.idle else float(value)
