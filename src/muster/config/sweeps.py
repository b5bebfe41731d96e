"""Sweep: any key of a configuration over lists of values, several methods, matched seeds.

Every cell of the grid is an experiment of its own, kept as a comparison; the unit of work is one
seed of one cell. Units run side by side, those that are finished are not run again, and every
setting of every cell is checked before the first unit runs.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from .. import durable
from ..errors import MusterError, nearest, plural
from ..federation import Federation
from ..run.measures import named
from ..schema import Table, plain
from ..study.cells import Cell, as_over, grid
from ..study.crowd import Crowd, jobs_for
from ..study.sweep import Sweep, finished, gathered, note
from .experiments import Experiment, experiment, load_table
from .keys import LISTS, put, with_names
from .work import check_all, compared, without_solo

# Keys of a configuration that make no cell: they are the same for all, or do not change a run.
NEVER = ("method", "methods", "seed", "seeds", "name", "out", "measures", "panels", "figures",
         "report_at", "clients", "network")  # fmt: skip
# What may differ between two sessions on one folder: it does not change what a run comes to.
NO_MATTER = ("seeds", "seed", "name", "out", "measures", "panels", "figures", "report_at",
             "checkpoint_every", "processes", "methods")  # fmt: skip


@dataclass(frozen=True)
class Done:
    """One seed of one cell is finished.

    done, total   seeds of cells that are finished, of all; `kept` of them were before
    whole, cells  cells that are finished with all seeds, of all
    """

    cell: str
    seed: int
    done: int
    total: int
    kept: int
    whole: int
    cells: int


OnCell = Callable[[Done], None]


CONFIG = "config.toml"


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep; `sweep` holds what is finished."""

    def __init__(self, swept: Sweep) -> None:
        super().__init__(f"interrupted after {plural(len(swept.frame), 'row')}")
        self.sweep = swept


def sweep(
    table: Mapping[str, Any] | str | Path,
    over: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    jobs: int | None = None,
    on_cell: OnCell | None = None,
) -> Sweep:
    """Run every method of a configuration on its seeds, in every cell of a grid of settings.

    table    a configuration, as a table or a TOML file
    over     lists of values by dotted key: `{"data.priority": [2, 6], "local.lr": [0.1, 0.5]}`;
             a method by its label, `"methods.fedalign.epsilon"`, or `"method.epsilon"` for all that
             take it; without it, the configuration's own [sweep]
    folder   cells are kept here as they finish, and not run again by another call
    jobs     processes that work side by side, each on one core; 1: all in this one
    on_cell  called with `Done` after every seed of every cell

    Ctrl-C raises `SweepInterrupted`, which holds what is finished.

    >>> import muster
    >>> small = {"data": {"name": "digits", "clients": 10}, "rounds": 2, "seeds": 2,
    ...          "methods": ["fedalign", "fedavg"]}
    >>> muster.sweep(small, {"data.priority": [2, 4]}, jobs=1)
    Sweep(data.priority: 2 cells, 2 methods, 2 seeds)
    """
    plan = planned(table, over)
    if folder is not None:
        return run_plan(plan, Path(folder), jobs, on_cell)
    with tempfile.TemporaryDirectory() as place:
        return run_plan(plan, Path(place), jobs, on_cell)


@dataclass(frozen=True)
class Plan:
    """A sweep before it is run: the configuration, what is swept, and every cell's own table."""

    base: Table
    over: dict[str, list[Any]]
    cells: list[Cell]
    tables: list[Table]
    chosen: list[Experiment]

    @property
    def first(self) -> Experiment:
        """The first cell's configuration, for all that cells have in common."""
        return self.chosen[0]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.first.methods)

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.first.settings.all_seeds

    @property
    def measures(self) -> tuple[str, ...]:
        given = self.first.settings.measures
        return tuple(m.name for m in named(given)) if given else ()

    def written(self) -> str:
        """The whole sweep as a configuration."""
        return tomli_w.dumps({**plain(self.base), "sweep": self.over})


def planned(table: Mapping[str, Any] | str | Path, over: Mapping[str, Any] | None) -> Plan:
    """Every cell of a sweep, its keys and values checked."""
    base = as_base(table)
    own = base.pop("sweep", {})
    base.pop("tune", None)
    lists = as_over(own if over is None else over)
    if not lists:
        raise MusterError(
            'sweep: over what? give lists of values, as "data.priority" = [2, 6] in [sweep], or '
            "--sweep.data.priority 2,6"
        )
    for key in lists:
        if key in (*NEVER, *LISTS) or key.split(".")[-1] in ("label", "seed"):
            raise MusterError(f"sweep.{key}: cannot be swept; {nearest(key, ['data.priority'])}")
    cells = grid(lists)
    tables = [laid(base, cell.values) for cell in cells]
    chosen = []
    for cell, mine in zip(cells, tables, strict=True):
        with about(cell.name):
            chosen.append(experiment(mine))
    return Plan(base, lists, cells, tables, chosen)


def as_base(table: Mapping[str, Any] | str | Path) -> Table:
    """A configuration as a table of our own; a file gives its name to the results."""
    if isinstance(table, Mapping):
        return with_names(deepcopy(dict(table)))
    return with_names({"name": Path(table).stem, **load_table(table)})


def laid(base: Table, values: Mapping[str, Any]) -> Table:
    """The configuration of one cell."""
    table = deepcopy(base)
    for key, value in values.items():
        put(table, key, deepcopy(value), f"sweep.{key}", all_methods=True)
    return with_names(table)


@contextmanager
def about(cell: str) -> Iterator[None]:
    """Say of an error which cell it is about."""
    try:
        yield
    except MusterError as error:
        raise MusterError(f"{cell}: {error}") from None


@dataclass(frozen=True)
class Unit:
    """One seed of one cell, as a worker is told of it."""

    cell: str
    table: Table
    seed: int
    folder: str
    one_core: bool


def run_plan(plan: Plan, folder: Path, jobs: int | None, on_cell: OnCell | None) -> Sweep:
    """Run what is not finished, and return all of it."""
    with durable.held(folder):
        for cell, chosen in zip(plan.cells, plan.chosen, strict=True):
            check_kept(folder / cell.name, chosen)
        left = [
            (at, seed)
            for at, cell in enumerate(plan.cells)
            for seed in plan.seeds
            if not finished(folder, cell, plan.labels, seed)
        ]
        many = jobs_for(jobs, len(left))
        units = [
            Unit(name, plan.tables[at], seed, str(folder / name), many > 1)
            for at, seed in left
            for name in [plan.cells[at].name]
        ]
        total = len(plan.cells) * len(plan.seeds)
        kept = done = total - len(units)
        waiting = Counter(unit.cell for unit in units)
        try:
            with Crowd(many) as crowd:
                find_mistakes(plan, [at for at, _ in left], crowd)
                begin(plan, folder, [at for at, _ in left])
                for unit, _ in crowd.each(run_unit, units):
                    done += 1
                    waiting[unit.cell] -= 1
                    if on_cell is not None:
                        whole = len(plan.cells) - sum(n > 0 for n in waiting.values())
                        at = (done, total, kept, whole, len(plan.cells))
                        on_cell(Done(unit.cell, unit.seed, *at))
        except KeyboardInterrupt:
            raise SweepInterrupted(collected(plan, folder)) from None
        return collected(plan, folder)


def begin(plan: Plan, folder: Path, cells: Iterable[int]) -> None:
    """Write down what is run, in the folder and in those of the cells that are not finished."""
    note(folder, plan.over, labels=plan.labels, seeds=plan.seeds, measures=plan.measures)
    durable.write(folder / CONFIG, plan.written())
    for at in dict.fromkeys(cells):
        place = folder / plan.cells[at].name
        place.mkdir(exist_ok=True)
        durable.write(place / CONFIG, tomli_w.dumps(plan.chosen[at].resolved()))


def collected(plan: Plan, folder: Path) -> Sweep:
    """What is finished of a plan."""
    return gathered(folder, plan.over, plan.labels, plan.seeds, plan.measures)


def find_mistakes(plan: Plan, cells: Iterable[int], crowd: Crowd) -> None:
    """Hold every method of every one of these cells against its data, before anything runs. Cells
    of the same data are checked together, so that it is made once."""
    alike: dict[str, list[tuple[str, Table]]] = {}
    for at in dict.fromkeys(cells):
        c = plan.chosen[at]
        data = repr((c.data, c.importance, c.members, c.requirement is None))
        alike.setdefault(data, []).append((plan.cells[at].name, plan.tables[at]))
    for _ in crowd.each(check_cells, list(alike.values())):
        pass


def check_cells(cells: list[tuple[str, Table]]) -> None:
    """Find what is wrong with cells of the same data, without running them."""
    fed: Federation | None = None
    for name, table in cells:
        with about(name):
            chosen = without_solo(experiment(table))
            seed = chosen.settings.all_seeds[0]
            fed = chosen.federation(seed) if fed is None else fed
            check_all(chosen, fed, seed)


def run_unit(unit: Unit) -> None:
    """Run one seed of a cell: the methods share the federation, which is made once."""
    table = {**unit.table, "processes": 1} if unit.one_core else unit.table
    with about(unit.cell):
        compared(experiment(table), Path(unit.folder), only=[unit.seed])


def check_kept(folder: Path, chosen: Experiment) -> None:
    """Refuse a cell whose finished runs were made with other settings."""
    if not (folder / CONFIG).exists():
        return
    before, now = (what_matters(t) for t in (load_table(folder / CONFIG), plain(chosen.resolved())))
    for key in before.keys() & now.keys():
        if before[key] != now[key]:
            raise MusterError(
                f"{folder}: its runs were made with {key} = {before[key]}, this sweep has "
                f"{now[key]}; give another folder"
            )


def what_matters(resolved: Table) -> Table:
    """What decides what a run comes to: every setting but those of the session, each method by
    itself."""
    kept = {key: value for key, value in resolved.items() if key not in NO_MATTER}
    local = resolved["local"]
    own = {f"methods.{m['label']}": {"local": local, **m} for m in resolved["methods"]}
    del kept["local"]
    # As text, in which a nan is like another.
    return {key: json.dumps(value, sort_keys=True) for key, value in (kept | own).items()}
