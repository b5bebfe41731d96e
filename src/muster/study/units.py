"""Units of work: the seeds of many experiments, run in parallel, saved as they finish.

A *cell* is one experiment, saved as a comparison in a separate folder; a unit is one of its seeds.
Every setting of every cell is checked before the first unit runs, and finished units are not run
again.

Units run in worker processes, each on one core, of this machine or of an executor (`WorkerPool`);
several processes can share the units of one folder (`tickets`). They are sent as plain values, and
their results are folders.
"""

from __future__ import annotations

import json
import socket
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from ..base import durable
from ..base.errors import MusterError, MusterWarning, plural
from ..base.memory import format_bytes, free_memory
from ..base.schema import Table, to_table
from ..base.untrusted_files import safe_path
from ..config.experiment import Experiment, load, load_table
from ..config.settings import Settings
from ..federation import Federation
from ..local import Local
from ..run.memory_check import forecast_memory
from .experiment_runs import check_experiment, compare_experiment, without_solo
from .grid import Cell
from .sweep_result import has_all_runs
from .tickets import Share, TicketName, Tickets, take_units
from .workers import WorkerPool, count_workers

CONFIG = "config.toml"
# Settings that may differ between two sessions on one folder: they do not change a run.
IRRELEVANT = (
    *("seeds", "seed", "tuned_on", "methods", "name", "out", "measures", "panels", "figures"),
    *("report_at", "checkpoint_every", "processes"),
)


@dataclass(frozen=True)
class CellProgress:
    """The progress of cells after a seed of one of them.

    Attributes:
        cell: cell whose seed is finished
        seed: the seed
        done: number of finished seeds, over all cells
        total: number of seeds, over all cells
        kept: number of seeds that were finished before
        whole: number of cells with all seeds finished
        cells: number of cells
    """

    cell: str
    seed: int
    done: int
    total: int
    kept: int
    whole: int
    cells: int


OnCell = Callable[[CellProgress], None]


@dataclass(frozen=True)
class Placement:
    """The place where units run.

    Attributes:
        jobs: parallel processes, each on one core; None: as many as cores; 1: this process
        executor: an executor that runs the units in place of processes
        share: this process's share, where several processes share the folder; it takes units until
            none is free
        on_wait: called every second while units run in other processes
    """

    jobs: int | None = None
    executor: Executor | None = None
    share: Share | None = None
    on_wait: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        if self.executor is not None and (self.share is not None or self.jobs is not None):
            other = "jobs" if self.share is None else "share"
            raise MusterError(f"{other}: given together with an executor; give one or the other")


class SharesUnderWay(Exception):
    """This process found no more units to run, and others of its share are at work."""

    def __init__(self, left: int, total: int) -> None:
        super().__init__(f"{total - left} of {plural(total, 'run')} finished, {left} elsewhere")
        self.left, self.total = left, total


@dataclass(frozen=True)
class CellPlan:
    """The plan of a cell: its values, its configuration as a table, and as a checked experiment."""

    cell: Cell
    table: Table
    chosen: Experiment
    trusted: bool

    @classmethod
    def of(cls, cell: Cell, table: Table, trusted: bool) -> CellPlan:
        """Check a cell's configuration; `trusted` as in `config.load`."""
        with prefix_errors(cell.name):
            return cls(cell, table, load(table, trusted), trusted)

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.chosen.settings.all_seeds

    def place(self, folder: Path) -> Path:
        """Return the cell's folder; a comparison alone is a cell without values, in `folder`."""
        return safe_path(folder, self.cell.name) if self.cell.values else folder

    def has_seed(self, folder: Path, seed: int) -> bool:
        """Return True if every method has its run of this seed."""
        return has_all_runs(self.place(folder), self.chosen.methods, seed)


@dataclass(frozen=True)
class Unit:
    """One seed of one cell, as it is sent to a worker.

    Attributes:
        tuning: fraction of each client's training rows to evaluate on in place of its test rows; in
            a configuration with `left_out`, the rows that are left out take their place
    """

    cell: str
    table: Table
    trusted: bool
    seed: int
    folder: str
    one_core: bool
    tuning: float | None

    def __str__(self) -> str:
        return f"{self.cell}, seed {self.seed}" if self.cell else f"seed {self.seed}"


@contextmanager
def prefix_errors(cell: str) -> Iterator[None]:
    """Put the name of a cell before an error."""
    try:
        yield
    except MusterError as error:
        raise MusterError(f"{cell}: {error}" if cell else str(error)) from None


def run_cells(
    cells: Sequence[CellPlan],
    folder: Path,
    where: Placement,
    on_cell: OnCell | None,
    begin: Callable[[], None],
    tuning: float | None = None,
) -> None:
    """Run every unfinished seed of every cell. `begin` is called after all settings are checked,
    before anything runs. Where units are left to other processes, `SharesUnderWay` is raised."""
    for one in cells:
        one.chosen.settings.compute.refuse_spread("it divides one run, where this has many")
        check_settings(one.place(folder), one.chosen)
    left = [(one, seed) for one in cells for seed in one.seeds if not one.has_seed(folder, seed)]
    plans = {one.cell.name: one for one in cells}
    waiting = {one.cell.name: one for one, _ in left}
    jobs = where.jobs
    if jobs is None:
        # As many as cores, or `processes`; a GPU has one worker.
        jobs = min(one.chosen.settings.compute.workers() for one in cells)
    many = count_workers(jobs, len(left))
    alone = many > 1 or where.executor is not None
    units = [
        Unit(name, one.table, one.trusted, seed, str(one.place(folder).absolute()), alone, tuning)
        for one, seed in left
        for name in [one.cell.name]
    ]

    def is_done(unit: Unit) -> bool:
        return plans[unit.cell].has_seed(folder, unit.seed)

    with WorkerPool(many, where.executor) as pool:
        at_once = fit_memory(many, check_plans(list(waiting.values()), pool, tuning))
        begin()
        for one in waiting.values():
            one.place(folder).mkdir(parents=True, exist_ok=True)
            durable.write(one.place(folder) / CONFIG, tomli_w.dumps(one.chosen.resolve()))
        total = sum(len(one.seeds) for one in cells)
        kept, unfinished = total - len(units), units
        tickets = Tickets()
        shared = where.share is not None or any(get_ticket(unit).count() for unit in units)
        tasks: Iterable[Unit | None] = iter(units)
        if shared:  # without a share, the one that finishes what others leave
            share, patient = where.share or Share(1, 1), where.share is None
            mine = take_units(units, share, tickets, get_ticket, is_done, patient)
            tasks = mine
        with tickets.renew():
            for unit, _ in pool.each(run_unit, tasks, at_once, where.on_wait):
                unfinished = [u for u in unfinished if not (is_done(u) if shared else u is unit)]
                if on_cell is not None:
                    done, n = total - len(unfinished), len(cells)
                    whole = n - len({u.cell for u in unfinished})
                    on_cell(CellProgress(unit.cell, unit.seed, done, total, kept, whole, n))
    tickets.check_lost()
    if shared and (left_to_others := sum(not is_done(unit) for unit in unfinished)):
        raise SharesUnderWay(left_to_others, total)


@contextmanager
def lock_units(folder: Path, where: Placement) -> Iterator[None]:
    """Hold a folder for this process while the block lasts; a share holds its units only."""
    if where.share is None:
        with durable.lock_folder(folder):
            yield
        return
    if durable.in_use(folder):
        raise MusterError(f"{folder}: in use by a run without --share; wait for it to end")
    yield


def get_ticket(unit: Unit) -> TicketName:
    """Return the name of a unit's tickets."""
    return TicketName(Path(unit.folder), str(unit.seed))


def fit_memory(many: int, needed: float) -> int:
    """Return how many runs fit into memory at once, of as many as there are processes."""
    free = free_memory()
    if many == 1 or many * needed <= free:
        return many
    fits = max(1, int(free // needed))
    warnings.warn(
        f"jobs: {many} runs at once take {format_bytes(many * needed)}, and {format_bytes(free)} "
        f"are free; {fits} at once",
        MusterWarning,
        stacklevel=2,
    )
    return fits


@dataclass(frozen=True)
class CellGroup:
    """Cells of the same data, as they are sent to be checked; `tuning` as in `Unit`."""

    cells: list[tuple[str, Table, bool]]
    tuning: float | None

    def __str__(self) -> str:
        return f"the check of {self.cells[0][0] or 'the configuration'}"


def check_plans(cells: Sequence[CellPlan], pool: WorkerPool, tuning: float | None) -> float:
    """Check every method of these cells with its data, before anything runs. Cells with the same
    data are checked together, so that it is built once. Return the bytes that the largest run
    needs."""
    groups: dict[str, list[tuple[str, Table, bool]]] = {}
    for one in cells:
        c = one.chosen
        data = repr((c.data, c.importance, c.members, c.requirement is None))
        groups.setdefault(data, []).append((one.cell.name, one.table, one.trusted))
    tasks = [CellGroup(group, tuning) for group in groups.values()]
    return max([0.0, *(needed for _, needed in pool.each(check_cells, tasks))])


def check_cells(group: CellGroup) -> float:
    """Check cells with the same data, without running them; return the bytes that the largest run
    of them needs."""
    fed: Federation | None = None
    needed = 0.0
    for name, table, trusted in group.cells:
        with prefix_errors(name):
            whole = load(table, trusted)
            chosen, solo = without_solo(whole), isinstance(whole.requirement, Local)
            seed = chosen.settings.all_seeds[0]
            fed = chosen.federation(seed, group.tuning) if fed is None else fed
            modules = check_experiment(chosen, fed, seed, solo)
            for label, module in modules.items():
                need = forecast_memory(fed, chosen.jobs[label], module, chosen.settings.compute)
                needed = max(needed, need.total)
    return needed


def run_unit(unit: Unit) -> None:
    """Run one seed of a cell: the methods share the federation, which is built once."""
    folder = Path(unit.folder)
    if not (folder / CONFIG).exists():
        raise MusterError(
            f"{folder}: a worker on {socket.gethostname()} does not see it; give a folder on a "
            "disk that all machines share (--out)"
        )
    asked = load(unit.table, unit.trusted)
    one_core = {**unit.table, "processes": 1}
    chosen = load(one_core, unit.trusted) if unit.one_core else asked

    def data(seed: int) -> Federation:
        return chosen.federation(seed, unit.tuning)

    with prefix_errors(unit.cell):
        compare_experiment(chosen, folder, data, only=[unit.seed], config=asked.resolve())


def check_settings(folder: Path, chosen: Experiment) -> None:
    """Refuse a cell whose finished runs have other settings."""
    if not (folder / CONFIG).exists():
        return
    saved = load_table(folder / CONFIG, follow=False)
    before, now = get_relevant_settings(saved), get_relevant_settings(to_table(chosen.resolve()))
    # A method that is new, or was removed, does not change the others' runs.
    others = {key for key in before.keys() ^ now.keys() if key.startswith("methods.")}
    for key in (key for key in dict.fromkeys((*before, *now)) if key not in others):
        was, now_is = before.get(key, "none"), now.get(key, "none")
        if was != now_is:
            raise MusterError(
                f"{folder}: its runs were made with {key} = {was}, this has {now_is}; give "
                "another folder"
            )


def fill_local(local: Table) -> Table:
    """Return local work with every default but the number of steps or epochs."""
    usual = {
        key: value
        for key, value in to_table(Local(steps=1)).items()
        if key not in ("steps", "epochs")
    }
    return {**usual, **local}


def get_relevant_settings(resolved: Table) -> Table:
    """Return the settings that decide a run's results, as text: all but those of the session, each
    method separately. Settings that an older version did not write have their default."""
    resolved = {**to_table(Settings()), **resolved}
    kept = {key: value for key, value in resolved.items() if key not in IRRELEVANT}
    local = resolved["local"]
    own = {
        f"methods.{m['label']}": {**m, "local": fill_local(m.get("local", local))}
        for m in resolved["methods"]
    }
    del kept["local"]
    if isinstance(kept.get("requirement"), dict):
        kept["requirement"] = fill_local(kept["requirement"])
    # As text, in which nan equals nan.
    return {key: json.dumps(value, sort_keys=True) for key, value in (kept | own).items()}
