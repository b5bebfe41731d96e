"""Worker processes: independent tasks in parallel, each on one core.

Tasks are plain values and the work is a function of a module, since they are sent to other
processes. Results come in the order in which tasks are done. Ctrl-C ends the processes at once; one
that lost its parent ends by itself.
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
