"""Sweep: any key of a configuration over lists of values, several methods, matched seeds.

Every cell of the grid is an experiment of its own, kept as a comparison; the unit of work is one
seed of one cell. Units run side by side, those that are finished are not run again, and every
setting of every cell is checked before the first unit runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    label_of,
    listed_methods,
    put,
    rename_keys,
    with_names,
)
from ..config.experiment import Experiment, laid_over, load_table
from ..results.measures import find_measures
from .grid import as_over, grid
from .sweep_result import Sweep, gathered, note
from .units import CONFIG, OnCell, Planned, place_for, run_cells

# Keys of a configuration that make no cell: they are the same for all, or do not change a run.
NEVER = ("method", "methods", "seed", "seeds", "name", "out", "measures", "panels", "figures",
         "report_at", "clients", "network")  # fmt: skip


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

    Args:
        table: a configuration, as a table or a TOML file
        over: lists of values by dotted key: `{"data.priority": [2, 6], "local.lr": [0.1, 0.5]}`; a
            method by its label, `"methods.fedalign.epsilon"`, or `"method.epsilon"` for all that
            take it; without it, the configuration's own [sweep]
        folder: cells are kept here as they finish, and not run again by another call
        jobs: processes that work side by side, each on one core; by default as many as cores (or
            the configuration's `processes`); 1: all in this one
        on_cell: called with `Done` after every seed of every cell

    Ctrl-C raises `SweepInterrupted`, which holds what is finished.

    >>> import muster
    >>> small = {"data": {"name": "digits", "clients": 10}, "rounds": 2, "seeds": 2,
    ...          "methods": ["fedalign", "fedavg"]}
    >>> muster.sweep(small, {"data.priority": [2, 4]}, jobs=1)
    Sweep(data.priority: 2 cells, 2 methods, 2 seeds)
    """
    plan = planned(table, over, trusted=True)
    with place_for(folder) as place:
        return run_plan(plan, place, jobs, on_cell)


@dataclass(frozen=True)
class Plan:
    """A sweep before it is run: the configuration, what is swept, and every cell."""

    base: Table
    over: dict[str, list[Any]]
    cells: list[Planned]

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
        """What the cells have in common, as it is written down."""
        seeds = self.first.settings.all_seeds
        return {"labels": tuple(self.first.methods), "seeds": seeds, "measures": self.measures}

    def begin(self, folder: Path) -> None:
        """Write down what is run."""
        note(folder, self.over, **self.listed)
        table = {**to_table(self.base), "sweep": self.over}
        durable.write(folder / CONFIG, tomli_w.dumps(table))


def planned(
    table: Mapping[str, Any] | str | Path, over: Mapping[str, Any] | None, trusted: bool = False
) -> Plan:
    """Every cell of a sweep, its keys and values checked; `trusted` as in `config.load`."""
    base = as_base(table)
    own = base.pop("sweep", {})
    base.pop("tune", None)
    lists = as_over(own if over is None else over)
    if not lists:
        raise MusterError(
            'sweep: over what? give lists of values, as "data.priority" = [2, 6] in [sweep], or '
            "--sweep.data.priority 2,6"
        )
    for key in current_names(lists):
        refuse_same_for_all(key)
        refuse_own(base, key, lists[key])
    parts = catalogue(trusted)
    cells = [Planned.of(cell, laid(base, cell.values, parts), trusted) for cell in grid(lists)]
    return Plan(base, lists, cells)


def refuse_same_for_all(key: str) -> None:
    """Refuse what cells cannot differ in: which methods there are, the seeds, what becomes of the
    results."""
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


def refuse_own(base: Table, key: str, values: Sequence[Any]) -> None:
    """Refuse to sweep local work for all over a method's own, which would not change with it."""
    head, _, rest = key.partition(".")
    if head != "local":
        return
    whole = {name for value in values if isinstance(value, dict) for name in value}
    names = {rest.partition(".")[0]} if rest else whole
    for entry in listed_methods(base):
        own = entry.get("local", {})
        # Laid over what is swept, its own local work takes the place of it.
        if isinstance(own, dict) and any(
            laid_over({name: None}, own).get(name, 0) is not None for name in names
        ):
            label = label_of(entry)
            raise MusterError(
                f"sweep.{key}: {label} has local work of its own ({', '.join(own)}), which "
                f"stays as it is; sweep methods.{label}.{key}, or take that out"
            )


def as_base(table: Mapping[str, Any] | str | Path) -> Table:
    """A configuration as a table of our own; a file gives its name to the results."""
    if isinstance(table, Mapping):
        return with_names(rename_keys(deepcopy(dict(table))))
    return with_names({"name": Path(table).stem, **load_table(table)})


def laid(base: Table, values: Mapping[str, Any], parts: Catalogue) -> Table:
    """The configuration of one cell."""
    table = deepcopy(base)
    for key, value in values.items():
        put(table, key, deepcopy(value), f"sweep.{key}", all_methods=True, parts=parts)
    return with_names(table)


def run_plan(plan: Plan, folder: Path, jobs: int | None, on_cell: OnCell | None) -> Sweep:
    """Run what is not finished, and return all of it."""
    with durable.lock_folder(folder):
        try:
            run_cells(plan.cells, folder, jobs, on_cell, lambda: plan.begin(folder))
        except KeyboardInterrupt:
            raise SweepInterrupted(gathered(folder, plan.over, **plan.listed)) from None
        return gathered(folder, plan.over, **plan.listed)
