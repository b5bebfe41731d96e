"""Work side by side: independent tasks, one process for each core, each task on one core.

Tasks are plain values and the work is a function of a module, as they travel to other processes.
What is done is reported as it is done, in any order. Ctrl-C ends the processes at once; one that
lost its parent ends by itself.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import TypeVar

from ..base.checks import check_whole
from ..base.errors import MusterError, warning_line
from ..base.lazy import torch

SAFE_PATH = "PYTHONSAFEPATH"  # the environment variable that is Python's flag -P

Task = TypeVar("Task")
Result = TypeVar("Result")


def jobs_for(jobs: int, tasks: int) -> int:
    """How many processes to use for this many tasks."""
    check_whole("jobs", jobs)
    return max(1, min(jobs, tasks))


class Crowd:
    """Processes that work side by side; with one job, this process. Use as a context manager."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.before = multiprocessing.active_children()
        self.pool: ProcessPoolExecutor | None = None
        self.safe: str | None = None

    def __enter__(self) -> Crowd:
        if self.jobs > 1:
            # Forked processes would share torch's threads and locks, in whatever state they are.
            context = multiprocessing.get_context("spawn")
            # Each begins as `python -c`, and takes no module of the current folder for Python's.
            self.safe = os.environ.get(SAFE_PATH)
            os.environ[SAFE_PATH] = "1"
            self.pool = ProcessPoolExecutor(self.jobs, mp_context=context, initializer=_begin)
        return self

    def each(
        self, work: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[Task, Result]]:
        """Each task with its result, as it is done. The first that fails ends it all: its error is
        raised here."""
        if self.pool is None:
            for task in tasks:
                yield task, work(task)
            return
        promised = {self.pool.submit(work, task): task for task in tasks}
        try:
            for future in as_completed(promised):
                yield promised[future], future.result()
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
    """What a worker does first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent has it too, and says what becomes
    warnings.formatwarning = warning_line
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
