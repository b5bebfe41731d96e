"""Sweep: any key of a configuration over lists of values, several methods, matched seeds.

Every cell of the grid is an experiment, saved as a comparison; the unit of work is one seed of one
cell. Units run in parallel, finished ones are not run again, and every setting of every cell is
checked before the first unit runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from ..base import durable
from ..base.errors import MusterError, plural
from ..base.registry import Catalogue, catalogue
from ..base.schema import Table, to_table
from ..config.dotted_keys import (
    LISTS,
    current_names,
    fill_names,
    get_label,
    list_methods,
    rename_keys,
    set_key,
)
from ..config.experiment import Experiment, load_table, merge_local
from ..results.measures import find_measures
from .grid import grid, parse_lists
from .sweep_result import Sweep, collect_sweep, write_marker
from .units import CONFIG, CellPlan, OnCell, Placement, lock_units, run_cells
from .workers import open_folder

# Keys that cannot be swept: they are the same in all cells, or do not change a run.
NEVER = (
    *("method", "methods", "clients", "network", "seed", "seeds", "name", "out"),
    *("measures", "panels", "figures", "report_at"),
)


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep; `sweep` has the finished runs."""

    def __init__(self, swept: Sweep) -> None:
        super().__init__(f"interrupted after {plural(len(swept.frame), 'row')}")
        self.sweep = swept


def sweep(
    table: Mapping[str, Any] | str | Path,
    over: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    jobs: int | None = None,
    on_cell: OnCell | None = None,
    executor: Executor | None = None,
) -> Sweep:
    """Run every method of a configuration on its seeds, in every cell of a grid of settings.

    Args:
        table: a configuration, as a table or a TOML file
        over: lists of values by dotted key: `{"data.priority": [2, 6], "local.lr": [0.1, 0.5]}`; a
            method by its label, `"methods.fedalign.epsilon"`, or `"method.epsilon"` for all that
            take it; without it, the configuration's own [sweep]
        folder: cells are saved here as they finish, and not run again by another call
        jobs: parallel processes, each on one core; by default as many as cores (or
            the configuration's `processes`); 1: all in this one
        on_cell: called with `CellProgress` after every seed of every cell
        executor: a `concurrent.futures.Executor` that runs the seeds in place of processes (Dask's
            `client.get_executor()`, Ray, MPI, loky, ...); its workers must see `folder`

    Ctrl-C raises `SweepInterrupted`, which has the finished runs.

    >>> import muster
    >>> small = {"data": {"name": "digits", "clients": 10}, "rounds": 2, "seeds": 2,
    ...          "methods": ["fedalign", "fedavg"]}
    >>> muster.sweep(small, {"data.priority": [2, 4]}, jobs=1)
    Sweep(data.priority: 2 cells, 2 methods, 2 seeds)
    """
    where = Placement(jobs, executor)
    plan = plan_sweep(table, over, trusted=True)
    with open_folder(folder) as place:
        return run_sweep(plan, place, where, on_cell)


@dataclass(frozen=True)
class SweepPlan:
    """The plan of a sweep: the configuration, the swept keys and values, and every cell."""

    base: Table
    over: dict[str, list[Any]]
    cells: list[CellPlan]

    @property
    def first(self) -> Experiment:
        """The first cell's configuration, for all that cells have in common."""
        return self.cells[0].chosen

    @property
    def measures(self) -> tuple[str, ...]:
        given = self.first.settings.measures
        return tuple(m.name for m in find_measures(given)) if given else ()

    @property
    def listed(self) -> dict[str, Any]:
        """The labels, seeds and measures that all cells share, for the marker file."""
        seeds = self.first.settings.all_seeds
        return {"labels": tuple(self.first.methods), "seeds": seeds, "measures": self.measures}

    def begin(self, folder: Path) -> None:
        """Write the marker file and the configuration."""
        write_marker(folder, self.over, **self.listed)
        durable.write(folder / CONFIG, tomli_w.dumps(self.config))

    @property
    def config(self) -> Table:
        """The configuration, as it is in the folder."""
        return {**to_table(self.base), "sweep": self.over}

    def is_done(self, folder: Path) -> bool:
        """Return True if a folder has every run."""
        return all(cell.has_seed(folder, seed) for cell in self.cells for seed in cell.seeds)


def plan_sweep(
    table: Mapping[str, Any] | str | Path, over: Mapping[str, Any] | None, trusted: bool = False
) -> SweepPlan:
    """Return the plan of a sweep, keys and values checked; `trusted` as in `config.load`."""
    base = read_base(table)
    own = base.pop("sweep", {})
    base.pop("tune", None)
    lists = parse_lists(own if over is None else over)
    if not lists:
        raise MusterError(
            'sweep: over what? give lists of values, as "data.priority" = [2, 6] in [sweep], or '
            "--sweep.data.priority 2,6"
        )
    for key in current_names(lists):
        refuse_fixed_key(key)
        refuse_own_local(base, key, lists[key])
    parts = catalogue(trusted)
    cells = [
        CellPlan.of(cell, build_cell_table(base, cell.values, parts), trusted)
        for cell in grid(lists)
    ]
    return SweepPlan(base, lists, cells)


def refuse_fixed_key(key: str) -> None:
    """Refuse a key in which cells cannot differ: the list of methods, the seeds, the output."""
    path = key.split(".")
    if path[0] in ("method", "methods") and path[-1] in ("name", "label"):
        raise MusterError(
            f"sweep.{key}: every cell has the same methods; list all of them in [[methods]], or "
            "give --method several times"
        )
    if key in (*NEVER, *LISTS) or path[-1] == "seed" or not all(path):
        raise MusterError(
            f"sweep.{key}: cannot be swept; give a setting, such as data.priority, local.lr or "
            "methods.LABEL.KEY"
        )


def refuse_own_local(base: Table, key: str, values: Sequence[Any]) -> None:
    """Refuse to sweep local work for all over a method's own, which would not change with it."""
    head, _, rest = key.partition(".")
    if head != "local":
        return
    whole = {name for value in values if isinstance(value, dict) for name in value}
    names = {rest.partition(".")[0]} if rest else whole
    for entry in list_methods(base):
        own = entry.get("local", {})
        # Its own local work overrides the swept value.
        if isinstance(own, dict) and any(
            merge_local({name: None}, own).get(name, 0) is not None for name in names
        ):
            label = get_label(entry)
            raise MusterError(
                f"sweep.{key}: {label} has its own local work ({', '.join(own)}), which "
                f"stays as it is; sweep methods.{label}.{key}, or take that out"
            )


def read_base(table: Mapping[str, Any] | str | Path) -> Table:
    """Return a copy of a configuration; the name of a file becomes that of the results."""
    if isinstance(table, Mapping):
        return fill_names(rename_keys(deepcopy(dict(table))))
    return fill_names({"name": Path(table).stem, **load_table(table)})


def build_cell_table(base: Table, values: Mapping[str, Any], parts: Catalogue) -> Table:
    """Return the configuration of one cell."""
    table = deepcopy(base)
    for key, value in values.items():
        set_key(table, key, deepcopy(value), f"sweep.{key}", all_methods=True, parts=parts)
    return fill_names(table)


def run_sweep(plan: SweepPlan, folder: Path, where: Placement, on_cell: OnCell | None) -> Sweep:
    """Run the unfinished cells, and return the whole sweep."""
    with lock_units(folder, where):
        try:
            run_cells(plan.cells, folder, where, on_cell, lambda: plan.begin(folder))
        except KeyboardInterrupt:
            raise SweepInterrupted(collect_sweep(folder, plan.over, **plan.listed)) from None
        return collect_sweep(folder, plan.over, **plan.listed)
