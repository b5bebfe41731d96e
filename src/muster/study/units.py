"""Units of work: the seeds of many experiments, side by side, kept as they finish.

A *cell* is one experiment, kept as a comparison in a folder of its own; a unit is one of its seeds.
Every setting of every cell is checked before the first unit runs, and what is finished is not run
again.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from ..base import durable
from ..base.errors import MusterError
from ..base.schema import Table, to_table
from ..config.experiment import Experiment, load, load_table
from ..config.settings import Settings
from ..federation import Federation
from ..local import Local
from .experiment_runs import check_all, compared, without_solo
from .grid import Cell
from .sweep_result import finished
from .workers import Crowd, jobs_for

CONFIG = "config.toml"
# What may differ between two sessions on one folder: it does not change what a run comes to.
NO_MATTER = ("seeds", "seed", "name", "out", "measures", "panels", "figures", "report_at",
             "checkpoint_every", "processes", "methods", "tuned_on")  # fmt: skip


@dataclass(frozen=True)
class Done:
    """One seed of one cell is finished.

    Attributes:
        done: seeds of cells that are finished, of all; `kept` of them were before
        total: seeds of cells that are finished, of all; `kept` of them were before
        whole: cells that are finished with all seeds, of all
        cells: cells that are finished with all seeds, of all
    """

    cell: str
    seed: int
    done: int
    total: int
    kept: int
    whole: int
    cells: int


OnCell = Callable[[Done], None]


@dataclass(frozen=True)
class Planned:
    """A cell before it is run: its name, its configuration, and the same as it was checked."""

    cell: Cell
    table: Table
    chosen: Experiment
    trusted: bool

    @classmethod
    def of(cls, cell: Cell, table: Table, trusted: bool) -> Planned:
        """Check a cell's configuration; `trusted` as in `config.load`."""
        with about(cell.name):
            return cls(cell, table, load(table, trusted), trusted)

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.chosen.settings.all_seeds


@dataclass(frozen=True)
class Unit:
    """One seed of one cell, as a worker is told of it.

    Attributes:
        tuning: the share of each client's training rows to be judged by in place of its test rows;
            of a configuration with `left_out`, the rows that are left out are
    """

    cell: str
    table: Table
    trusted: bool
    seed: int
    folder: str
    one_core: bool
    tuning: float | None


@contextmanager
def place_for(folder: str | Path | None) -> Iterator[Path]:
    """The folder that cells are kept in: the user's, or one for as long as it is needed."""
    if folder is not None:
        yield Path(folder)
        return
    with tempfile.TemporaryDirectory() as place:
        yield Path(place)


@contextmanager
def about(cell: str) -> Iterator[None]:
    """Say of an error which cell it is about."""
    try:
        yield
    except MusterError as error:
        raise MusterError(f"{cell}: {error}") from None


def run_cells(
    cells: Sequence[Planned],
    folder: Path,
    jobs: int | None,
    on_cell: OnCell | None,
    begin: Callable[[], None],
    tuning: float | None = None,
) -> None:
    """Run every seed of every cell that is not finished. `begin` is called when all settings are
    known to be possible, before anything runs."""
    for one in cells:
        check_kept(folder / one.cell.name, one.chosen)
    left = [
        (one, seed)
        for one in cells
        for seed in one.seeds
        if not finished(folder, one.cell, one.chosen.methods, seed)
    ]
    waiting = {one.cell.name: one for one, _ in left}
    if jobs is None:
        # As many as there are cores, or `processes`; a GPU is given one stream of work.
        jobs = min(one.chosen.settings.compute.workers() for one in cells)
    many = jobs_for(jobs, len(left))
    units = [
        Unit(name, one.table, one.trusted, seed, str(folder / name), many > 1, tuning)
        for one, seed in left
        for name in [one.cell.name]
    ]
    with Crowd(many) as crowd:
        find_mistakes(list(waiting.values()), crowd, tuning)
        begin()
        for name, one in waiting.items():
            (folder / name).mkdir(exist_ok=True)
            durable.write(folder / name / CONFIG, tomli_w.dumps(one.chosen.resolved()))
        total = sum(len(one.seeds) for one in cells)
        kept = done = total - len(units)
        missing = Counter(unit.cell for unit in units)
        for unit, _ in crowd.each(run_unit, units):
            done += 1
            missing[unit.cell] -= 1
            if on_cell is not None:
                whole = len(cells) - sum(n > 0 for n in missing.values())
                on_cell(Done(unit.cell, unit.seed, done, total, kept, whole, len(cells)))


Alike = tuple[list[tuple[str, Table, bool]], float | None]  # cells of the same data, and `tuning`


def find_mistakes(cells: Sequence[Planned], crowd: Crowd, tuning: float | None) -> None:
    """Hold every method of every one of these cells against its data, before anything runs. Cells
    of the same data are checked together, so that it is made once."""
    alike: dict[str, list[tuple[str, Table, bool]]] = {}
    for one in cells:
        c = one.chosen
        data = repr((c.data, c.importance, c.members, c.requirement is None))
        alike.setdefault(data, []).append((one.cell.name, one.table, one.trusted))
    for _ in crowd.each(check_cells, [(group, tuning) for group in alike.values()]):
        pass


def check_cells(alike: Alike) -> None:
    """Find what is wrong with cells of the same data, without running them."""
    cells, tuning = alike
    fed: Federation | None = None
    for name, table, trusted in cells:
        with about(name):
            whole = load(table, trusted)
            chosen, solo = without_solo(whole), isinstance(whole.requirement, Local)
            seed = chosen.settings.all_seeds[0]
            fed = chosen.federation(seed, tuning) if fed is None else fed
            check_all(chosen, fed, seed, solo)


def run_unit(unit: Unit) -> None:
    """Run one seed of a cell: the methods share the federation, which is made once."""
    table = {**unit.table, "processes": 1} if unit.one_core else unit.table
    chosen = load(table, unit.trusted)

    def data(seed: int) -> Federation:
        return chosen.federation(seed, unit.tuning)

    with about(unit.cell):
        compared(chosen, Path(unit.folder), data, only=[unit.seed])


def check_kept(folder: Path, chosen: Experiment) -> None:
    """Refuse a cell whose finished runs were made with other settings."""
    if not (folder / CONFIG).exists():
        return
    kept = load_table(folder / CONFIG, follow=False)
    before, now = what_matters(kept), what_matters(to_table(chosen.resolved()))
    # A method that is new, or is not asked for any more, takes nothing from the others' runs.
    others = {key for key in before.keys() ^ now.keys() if key.startswith("methods.")}
    for key in (key for key in dict.fromkeys((*before, *now)) if key not in others):
        was, now_is = before.get(key, "none"), now.get(key, "none")
        if was != now_is:
            raise MusterError(
                f"{folder}: its runs were made with {key} = {was}, this has {now_is}; give "
                "another folder"
            )


def with_defaults(local: Table) -> Table:
    """Local work with every setting written out; how much of it there is always is."""
    usual = {
        key: value
        for key, value in to_table(Local(steps=1)).items()
        if key not in ("steps", "epochs")
    }
    return {**usual, **local}


def what_matters(resolved: Table) -> Table:
    """What decides what a run comes to: every setting but those of the session, each method by
    itself. What an older version did not write down is as it is by default."""
    resolved = {**to_table(Settings()), **resolved}
    kept = {key: value for key, value in resolved.items() if key not in NO_MATTER}
    local = resolved["local"]
    own = {
        f"methods.{m['label']}": {**m, "local": with_defaults(m.get("local", local))}
        for m in resolved["methods"]
    }
    del kept["local"]
    if isinstance(kept.get("requirement"), dict):
        kept["requirement"] = with_defaults(kept["requirement"])
    # As text, in which a nan is like another.
    return {key: json.dumps(value, sort_keys=True) for key, value in (kept | own).items()}
