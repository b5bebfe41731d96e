"""Units of work: the seeds of many experiments, run in parallel, saved as they finish.

A *cell* is one experiment, saved as a comparison in a separate folder; a unit is one of its seeds.
Every setting of every cell is checked before the first unit runs, and finished units are not run
again.

Units run in worker processes, each on one core (`WorkerPool`). Tasks are plain values and the work
is a function of a module, since they are sent to other processes. Results come in the order in
which tasks are done. Ctrl-C ends the processes at once; one that lost its parent ends by itself.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import tomli_w

from ..base import durable
from ..base.checks import check_whole
from ..base.errors import MusterError, warning_line
from ..base.lazy import torch
from ..base.schema import Table, to_table
from ..config.experiment import Experiment, load, load_table
from ..config.settings import Settings
from ..federation import Federation
from ..local import Local
from .experiment_runs import check_experiment, compare_experiment, without_solo
from .grid import Cell
from .sweep_result import has_all_runs

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


@contextmanager
def open_folder(folder: str | Path | None) -> Iterator[Path]:
    """Provide the folder of cells: the user's, or a temporary one."""
    if folder is not None:
        yield Path(folder)
        return
    with tempfile.TemporaryDirectory() as place:
        yield Path(place)


@contextmanager
def prefix_errors(cell: str) -> Iterator[None]:
    """Put the name of a cell before an error."""
    try:
        yield
    except MusterError as error:
        raise MusterError(f"{cell}: {error}") from None


def run_cells(
    cells: Sequence[CellPlan],
    folder: Path,
    jobs: int | None,
    on_cell: OnCell | None,
    begin: Callable[[], None],
    tuning: float | None = None,
) -> None:
    """Run every unfinished seed of every cell. `begin` is called after all settings are checked,
    before anything runs."""
    for one in cells:
        one.chosen.settings.compute.refuse_spread("it divides one run, where this has many")
        check_settings(folder / one.cell.name, one.chosen)
    left = [
        (one, seed)
        for one in cells
        for seed in one.seeds
        if not has_all_runs(folder, one.cell, one.chosen.methods, seed)
    ]
    waiting = {one.cell.name: one for one, _ in left}
    if jobs is None:
        # As many as cores, or `processes`; a GPU has one worker.
        jobs = min(one.chosen.settings.compute.workers() for one in cells)
    many = count_workers(jobs, len(left))
    units = [
        Unit(name, one.table, one.trusted, seed, str(folder / name), many > 1, tuning)
        for one, seed in left
        for name in [one.cell.name]
    ]
    with WorkerPool(many) as crowd:
        check_plans(list(waiting.values()), crowd, tuning)
        begin()
        for name, one in waiting.items():
            (folder / name).mkdir(exist_ok=True)
            durable.write(folder / name / CONFIG, tomli_w.dumps(one.chosen.resolve()))
        total = sum(len(one.seeds) for one in cells)
        kept = done = total - len(units)
        missing = Counter(unit.cell for unit in units)
        for unit, _ in crowd.each(run_unit, units):
            done += 1
            missing[unit.cell] -= 1
            if on_cell is not None:
                whole = len(cells) - sum(n > 0 for n in missing.values())
                on_cell(CellProgress(unit.cell, unit.seed, done, total, kept, whole, len(cells)))


CellGroup = tuple[
    list[tuple[str, Table, bool]], float | None
]  # cells of the same data, and `tuning`


def check_plans(cells: Sequence[CellPlan], crowd: WorkerPool, tuning: float | None) -> None:
    """Check every method of these cells with its data, before anything runs. Cells with the same
    data are checked together, so that it is built once."""
    groups: dict[str, list[tuple[str, Table, bool]]] = {}
    for one in cells:
        c = one.chosen
        data = repr((c.data, c.importance, c.members, c.requirement is None))
        groups.setdefault(data, []).append((one.cell.name, one.table, one.trusted))
    for _ in crowd.each(check_cells, [(group, tuning) for group in groups.values()]):
        pass


def check_cells(group: CellGroup) -> None:
    """Check cells with the same data, without running them."""
    cells, tuning = group
    fed: Federation | None = None
    for name, table, trusted in cells:
        with prefix_errors(name):
            whole = load(table, trusted)
            chosen, solo = without_solo(whole), isinstance(whole.requirement, Local)
            seed = chosen.settings.all_seeds[0]
            fed = chosen.federation(seed, tuning) if fed is None else fed
            check_experiment(chosen, fed, seed, solo)


def run_unit(unit: Unit) -> None:
    """Run one seed of a cell: the methods share the federation, which is built once."""
    table = {**unit.table, "processes": 1} if unit.one_core else unit.table
    chosen = load(table, unit.trusted)

    def data(seed: int) -> Federation:
        return chosen.federation(seed, unit.tuning)

    with prefix_errors(unit.cell):
        compare_experiment(chosen, Path(unit.folder), data, only=[unit.seed])


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


SAFE_PATH = "PYTHONSAFEPATH"  # the environment variable that is Python's flag -P

Task = TypeVar("Task")
Result = TypeVar("Result")


def count_workers(jobs: int, tasks: int) -> int:
    """Return the number of processes for this many tasks."""
    check_whole("jobs", jobs)
    return max(1, min(jobs, tasks))


class WorkerPool:
    """A pool of processes, used as a context manager; with one job, this process."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.before = multiprocessing.active_children()
        self.pool: ProcessPoolExecutor | None = None
        self.safe: str | None = None

    def __enter__(self) -> WorkerPool:
        if self.jobs > 1:
            # Forked processes would share torch's threads and locks, in any state.
            context = multiprocessing.get_context("spawn")
            # Each starts as `python -c`, and must not import modules of the current folder.
            self.safe = os.environ.get(SAFE_PATH)
            os.environ[SAFE_PATH] = "1"
            self.pool = ProcessPoolExecutor(self.jobs, mp_context=context, initializer=_begin)
        return self

    def each(
        self, work: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[Task, Result]]:
        """Yield each task with its result, as it is done. The first error ends all, and is raised
        here."""
        if self.pool is None:
            for task in tasks:
                yield task, work(task)
            return
        futures = {self.pool.submit(work, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool:
            raise MusterError(
                "jobs: a process ended before its work was done (out of memory?); if this is a "
                "script, call it below `if __name__ == '__main__':`, or with jobs=1"
            ) from None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.pool is None:
            return
        if self.safe is None:
            del os.environ[SAFE_PATH]
        self.pool.shutdown(wait=kind is None, cancel_futures=True)
        if kind is not None:
            for process in multiprocessing.active_children():
                if process not in self.before:
                    process.terminate()
                    process.join()


def _begin() -> None:
    """Set up a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it
    warnings.formatwarning = warning_line
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
