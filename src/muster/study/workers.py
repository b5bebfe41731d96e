"""Workers: tasks in other processes, of this machine or of any executor.

`WorkerPool` runs tasks in this process, in processes that it starts (each on one core), or by a
`concurrent.futures.Executor` from outside (Dask, Ray, MPI, Parsl, loky), whose workers may be on
other machines. Tasks and results are plain values and the work is a function of a module, since
they are sent to other processes. Results come in the order in which tasks are done.

A process that dies is replaced and its task is run again, `TRIES` times in all; executors from
outside do that by their own rules. Ctrl-C ends our processes at once; one that lost its parent ends
by itself.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from ..base.checks import check_whole
from ..base.errors import MusterError, first_line, one_line, warning_line
from ..engines.compute import one_thread, use_one_thread
from .tickets import TRIES

SAFE_PATH = "PYTHONSAFEPATH"  # the environment variable that is Python's flag -P
GUARD = "call it below `if __name__ == '__main__':`"
LOOK = 1.0  # seconds between two calls of `on_wait`
ALONE = threading.Lock()  # held by the task at work in this process
STARTING = threading.Lock()  # held while a process starts
LOADED_IN = os.getpid()  # another number in a process forked from this one

Task = TypeVar("Task")
Result = TypeVar("Result")


def count_workers(jobs: int, tasks: int) -> int:
    """Return the number of processes for this many tasks."""
    check_whole("jobs", jobs)
    return max(1, min(jobs, tasks))


class WorkerPool:
    """Workers, used as a context manager: an executor's, processes, or with one job this process.

    Attributes:
        jobs: number of processes to start; with an executor, it decides itself
    """

    def __init__(self, jobs: int = 1, executor: Executor | None = None) -> None:
        if executor is not None and not isinstance(executor, Executor):
            raise MusterError(
                f"executor: {type(executor).__name__}; give a concurrent.futures.Executor, such as "
                "dask's client.get_executor()"
            )
        self.outside = executor is not None
        self.jobs = jobs
        self.executor = executor
        self.proven = False  # True once a task was done: processes start, and find their modules

    def __enter__(self) -> Self:
        if self.executor is None and self.jobs > 1:
            self.executor = ProcessSlots(self.jobs)
        return self

    def each(
        self,
        work: Callable[[Task], Result],
        tasks: Iterable[Task | None],
        at_once: int | None = None,
        on_wait: Callable[[], None] | None = None,
        name: Callable[[Task], str] = str,
    ) -> Iterator[tuple[Task, Result]]:
        """Yield each task with its result, as it is done. The first error ends all, and is raised
        here.

        Args:
            tasks: the tasks; of a generator, None stands for "none at the moment"
            at_once: number of tasks under way; default: as many as processes
            on_wait: called every second while tasks are under way elsewhere
            name: returns the name of a task, for errors
        """
        if self.executor is None:
            for task in tasks:
                if task is None:
                    time.sleep(LOOK)
                else:
                    yield task, work(task)
            return
        call = pack("work", work)
        most = math.inf if self.outside else min(self.jobs, at_once or self.jobs)
        if isinstance(self.executor, ProcessSlots):
            self.executor.limit(at_once or self.jobs)
        coming, more = iter(tasks), True
        running: dict[Future[Any], Task] = {}
        deaths: Counter[str] = Counter()
        try:
            while running or more:
                while more and len(running) < most:
                    try:
                        following = next(coming)
                    except StopIteration:
                        more = False
                        break
                    if following is None:
                        break
                    running[self._submit(call, following, name(following))] = following
                if not running:
                    time.sleep(LOOK if more else 0.0)
                    continue
                ended, _ = wait(running, LOOK, FIRST_COMPLETED)
                if on_wait is not None:
                    on_wait()
                for future in ended:
                    task = running.pop(future)
                    try:
                        kind, value = future.result()
                    except Exception as error:  # of the executor: those of the task are values
                        who = name(task)
                        deaths[who] += 1
                        if self.outside or not self.proven or deaths[who] >= TRIES:
                            raise self._explain(who, error, deaths[who]) from None
                        running[self._submit(call, task, who)] = task
                        continue
                    if kind != "done":
                        raise value
                    self.proven = True
                    yield task, value
        finally:
            for future in running:
                future.cancel()

    def _submit(self, call: bytes, task: object, name: str) -> Future[Any]:
        assert self.executor is not None
        packed = pack(name, task)
        try:
            return self.executor.submit(run_packed, call, packed)
        except RuntimeError as error:  # it is broken, or was shut down
            raise MusterError(
                f"executor: takes no more work ({one_line(first_line(error))}); give a new one"
            ) from None

    def _explain(self, task: str, error: Exception, deaths: int) -> MusterError:
        if isinstance(error, BrokenProcessPool) and not self.proven and not is_main_a_file():
            return MusterError(
                f"{'executor' if self.outside else 'jobs'}: {task}: its worker could not start: it "
                "reads the program again, and this one (`__main__`) is no file; save it as a file, "
                "with these calls below `if __name__ == '__main__':`, and run that"
            )
        if self.outside:
            why = f"{type(error).__name__}: {one_line(first_line(error))}"
            script = isinstance(error, BrokenProcessPool) and not self.proven
            advice = f"; if this is a script, {GUARD}" if script else ""
            return MusterError(
                f"executor: {task}: its worker ended before the work was done ({why}){advice}"
            )
        if deaths < TRIES:
            return MusterError(
                f"jobs: a process ended before its work was done ({task}; out of memory?); if this "
                f"is a script, {GUARD}, or with jobs=1"
            )
        return MusterError(
            f"jobs: {task}: given up, as {deaths} processes ended while they ran it (out of "
            "memory?); give fewer --jobs"
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(self.executor, ProcessSlots):
            self.executor.end()


class ProcessSlots(Executor):
    """Processes of one core each, with at most one task in each: one that dies takes no other task
    with it, and the next task gets a new process. All start at once, as loading torch takes a
    second, and end at once, as unloading it takes another."""

    def __init__(self, jobs: int) -> None:
        self.started: list[BaseProcess] = []
        self.idle = [self._start() for _ in range(jobs)]
        self.busy: list[tuple[ProcessPoolExecutor, Future[Any]]] = []

    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        """Run a function in a process without a task; there must be one."""
        for pool, task in [slot for slot in self.busy if slot[1].done()]:
            self.busy.remove((pool, task))
            if isinstance(task.exception(), BrokenProcessPool):
                pool.shutdown()
                pool = self._start()
            self.idle.append(pool)
        assert self.idle, "one task in each process"
        pool = self.idle.pop(0)
        try:
            future = pool.submit(work, *args, **named)
        except BrokenProcessPool as error:  # it died before it had a task
            future = Future()
            future.set_exception(error)
        self.busy.append((pool, future))
        return future

    def limit(self, jobs: int) -> None:
        """End processes without a task, down to this number in all: they take memory."""
        while self.idle and len(self.idle) + len(self.busy) > jobs:
            self.idle.pop().shutdown(wait=False)

    def end(self) -> None:
        """End the processes, even those at work; others of this program go on."""
        for pool in [*self.idle, *(pool for pool, _ in self.busy)]:
            pool.shutdown(wait=False, cancel_futures=True)
        for process in self.started:
            process.terminate()
            process.join()

    def _start(self) -> ProcessPoolExecutor:
        """Start a process, which begins to load what it needs."""
        # Forked processes would share torch's threads and locks, in any state.
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(1, mp_context=context, initializer=_begin)
        with STARTING, _safe_path(), _no_interrupts():
            pool.submit(os.getpid)
        self.started += pool._processes.values()
        return pool


@contextmanager
def _safe_path() -> Iterator[None]:
    """Keep a process that starts, as `python -c`, from modules of the current folder."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Start a process that Ctrl-C does not reach, from its first moment: its parent handles it, for
    which it waits until the process is there."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def open_folder(folder: str | Path | None) -> Iterator[Path]:
    """Provide the folder into which workers write: the user's, or a temporary one."""
    if folder is not None:
        yield Path(folder)
        return
    with tempfile.TemporaryDirectory() as place:
        yield Path(place)


def pack(what: str, value: object) -> bytes:
    """Return a value as it is sent to another process."""
    try:
        return pickle.dumps(value)
    except Exception as error:  # PicklingError, TypeError, AttributeError, RecursionError
        raise MusterError(
            f"{what}: cannot be sent to another process ({one_line(first_line(error))}); define "
            "functions and classes at the top of a module, or run in one process"
        ) from None


def is_main_a_file() -> bool:
    """Return True if a new process can read this program again: it is a file, or needs none."""
    path = getattr(sys.modules["__main__"], "__file__", None)
    return path is None or Path(path).is_file()


def run_packed(call: bytes, task: bytes) -> tuple[str, Any]:
    """Run a function on a task, in a worker: "done" and its result, or "error" and the error.

    An executor may run several tasks in one process, by threads: here they run one after another,
    since torch's number of threads and its generator are one for all.
    """
    if os.getpid() != LOADED_IN:  # before any lock: it may be held for ever
        return "error", MusterError(
            "executor: its workers are forked from a process with threads, which can hang; give "
            "ProcessPoolExecutor(..., mp_context=multiprocessing.get_context('spawn'))"
        )
    with ALONE, one_thread():
        try:
            work, value = pickle.loads(call), pickle.loads(task)
        except Exception as error:
            why = one_line(first_line(error))
            advice = "install what it needs there, at the same version"
            if "'__main__'" in why:
                advice = "define it in a module: workers do not have this program's own functions"
            return "error", MusterError(
                f"executor: a worker cannot load the work ({why}); {advice}"
            )
        try:
            return "done", work(value)
        except Exception as error:
            if not isinstance(error, MusterError):
                error.add_note(traceback.format_exc())
            return "error", error


def _begin() -> None:
    """Set up a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it
    warnings.formatwarning = warning_line
    use_one_thread()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
