"""Compute: the engine, device, dtype and cores that run the clients' work, and threads to share it.

torch's own threads split every operation and meet at a barrier after it, where they spin: next to
a busy process, or under a CPU quota, they wait longer than they work, and their number decides in
which order numbers are summed. Clients are independent, so the engines divide the work themselves:
torch runs on one thread, and each thread of a `ThreadPool` takes whole portions of it, one after
another, until there are none left. Nobody waits before the end, and since portions do not depend
on the number of threads, neither does any bit.
"""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypedDict

from ..base.arrays import Int64
from ..base.checks import check_whole
from ..base.errors import MusterError, unknown_name
from ..base.lazy import torch
from ..base.params import DTYPES, get_dtype
from .rank_group import read_numbers

if TYPE_CHECKING:
    from torch import Tensor


def cores() -> int:
    """Cores this process may use: those it may run on, as far as its CPU quota pays for them."""
    # Not every system can say which cores a process may run on.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(allowed or 1, math.ceil(min(quota(), 1e6))))


def quota(root: Path = Path("/")) -> float:
    """Cores' worth of time that control groups allow this process, as in most containers;
    infinity without a limit."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return math.inf
    mounted = root / "sys/fs/cgroup"
    least = math.inf
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            tops = [mounted, mounted / "unified"]
        elif "cpu" in controllers.split(","):
            tops = [mounted / controllers, mounted / "cpu"]
        else:
            continue
        # A group is bound by those above it. Inside a container the path may be that of the
        # machine outside, of which only the top can be seen here.
        here = path.strip("/").split("/") if path.strip("/") else []
        for top in tops:
            for depth in range(len(here) + 1):
                least = min(least, _allowance(top.joinpath(*here[:depth])))
    return least


def _allowance(group: Path) -> float:
    """Return the cores that one control group allows: its time in a period over the period."""
    for files in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
        try:
            words = " ".join((group / name).read_text() for name in files).split()
            share = int(words[0]) / int(words[1])
        except (OSError, ValueError, IndexError, ZeroDivisionError):
            continue  # no such file, or "max"
        if share > 0:  # version 1 writes -1 for no bound
            return share
    return math.inf


def use_one_thread() -> None:
    """Let torch use this thread only."""
    torch.set_num_threads(1)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread, and put back how many it had."""
    before = torch.get_num_threads()
    use_one_thread()
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def fork_rng(device: torch.device) -> Iterator[None]:
    """Leave torch's global random numbers as they were, on the processor and on this device."""
    with torch.random.fork_rng([device] if device.type != "cpu" else [], device_type="cuda"):
        yield


class TaskCounter:
    """0, 1, ... each given out once, whichever thread asks."""

    def __init__(self, end: int) -> None:
        self._next, self._end, self._lock = 0, end, threading.Lock()

    def __iter__(self) -> TaskCounter:
        return self

    def __next__(self) -> int:
        with self._lock:
            if self._next >= self._end:
                raise StopIteration
            self._next += 1
            return self._next - 1

    def stop(self) -> None:
        """Give out no more."""
        with self._lock:
            self._end = 0


class ThreadPool:
    """Threads that share work: the one that asks, and as many helpers as it may use.

    Helpers wait without using the processor, and start with the first work that needs them.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._helpers: ThreadPoolExecutor | None = None

    def seats(self, tasks: int) -> int:
        """Return the number of threads that take part in this many tasks."""
        return max(1, min(self.size, tasks))

    def share(self, tasks: int, work: Callable[[int, Iterator[int]], None]) -> None:
        """Run `work(seat, numbers)` in each thread that takes part, seats counting from 0, all of
        them taking from the same `numbers` 0 .. tasks - 1. torch uses one thread in each."""
        numbers = TaskCounter(tasks)

        def help_out(seat: int) -> None:
            use_one_thread()
            try:
                work(seat, numbers)
            except BaseException:
                numbers.stop()
                raise

        with one_thread():
            others = [self._pool().submit(help_out, s) for s in range(1, self.seats(tasks))]
            try:
                work(0, numbers)
            finally:
                numbers.stop()
                # A helper that has not begun by now is not needed any more.
                begun = [other for other in others if not other.cancel()]
                if begun:
                    wait(begun)
            for other in begun:
                other.result()

    def _pool(self) -> ThreadPoolExecutor:
        if self._helpers is None:
            self._helpers = ThreadPoolExecutor(self.size - 1, "muster")
        return self._helpers

    def close(self) -> None:
        """End the helpers."""
        if self._helpers is not None:
            self._helpers.shutdown(cancel_futures=True)
            self._helpers = None


Key = tuple[str, ...]
Tables = dict[Key, "Tensor"]  # numbers of some rows, by the parts of their name


class Room(Protocol):
    """Rows of results, filled by tasks."""

    def take(self, at: Int64) -> Tables:
        """Return the results in these rows."""
        ...

    def give(self, at: Int64, tables: Tables) -> None:
        """Fill these rows with results from another rank."""
        ...


class Ranks:
    """The one rank of a run in one process."""

    rank, size = 0, 1

    def run(
        self,
        count: int,
        work: Callable[[Sequence[int]], None],
        places: Callable[[int], Int64],
        room: Room,
        about: Callable[[], int],
    ) -> None:
        """Do tasks 0 .. count - 1 of a run; afterwards `room` has the results of all of them.

        Args:
            work: does the tasks of these numbers
            places: returns the rows of `room` that a task fills
            about: returns a digest of what the tasks are, the same at every rank
        """
        work(range(count))

    def require_same(self, what: Mapping[str, str]) -> None:
        """Refuse ranks that differ in any of these."""

    def copy_folder(self, source: Path | None, target: Path) -> None:
        """Copy a folder of rank 0 into a folder of each other rank; nothing, if rank 0 has none."""

    def begin(self) -> None:
        """Begin a stretch in which Ctrl-C reaches all ranks at the same place."""

    def end(self) -> None:
        """End it."""


ENGINES = ("auto", "stacked", "loop", "spread")
DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Compute:
    """Engine, device, dtype and cores for the clients' work.

    On one engine, device and dtype the same seed gives the same bits for any number of cores.

    Attributes:
        engine: auto: stacked when every layer of the model has a stacked form, else loop; spread:
            the same one, over all processes that torchrun started
        device: cpu, cuda, or one of several as cuda:1; spread takes another one for each process
        dtype: float32 or float64
        processes: cores to use; None: those this process may use
    """

    engine: str = "auto"
    device: str = "cpu"
    dtype: str = "float32"
    processes: int | None = None

    def __post_init__(self) -> None:
        for what, given, known in (
            ("engine", self.engine, ENGINES),
            ("dtype", self.dtype, DTYPES),
            ("device", str(self.device).partition(":")[0], DEVICES),
        ):
            if given not in known:
                raise unknown_name(what, str(getattr(self, what)), known)
        if not re.fullmatch(r"\w+(:(0|[1-9]\d?))?", str(self.device)):
            raise MusterError(f"device: '{self.device}'; allowed: cpu, cuda, cuda:0, ...")
        if self.processes is not None:
            check_whole("processes", self.processes)

    @property
    def number(self) -> torch.dtype:
        """The dtype as torch knows it."""
        return get_dtype(self.dtype)

    def place(self) -> torch.device:
        """The device as torch knows it, which must be present. Here alone it is decided where
        models and data of a run lie: everything else goes where they are."""
        where = torch.device(self.device)
        if where.type == "cpu":
            return where
        present, index = torch.cuda.device_count(), where.index
        if index is None:
            spread = self.engine == "spread"
            index = read_numbers().local if spread or not present else torch.cuda.current_device()
        where = torch.device("cuda", index)
        if index >= present:
            raise MusterError(
                f"device: '{self.device}', but no CUDA device is present; use device='cpu'"
                if present == 0
                else f"device: '{where}'; allowed: cpu, cuda:0 to cuda:{present - 1}"
                + ("; spread needs one for each process" if self.engine == "spread" else "")
            )
        return where

    def refuse_spread(self, why: str) -> None:
        """Refuse the engine of one run over many processes."""
        if self.engine == "spread":
            raise MusterError(f"engine: 'spread', and {why}; use 'auto', 'stacked' or 'loop'")

    def workers(self) -> int:
        """Threads or processes to work with. A GPU is given one stream of work."""
        if self.device.partition(":")[0] != "cpu":
            return 1
        if self.processes is not None:
            return int(self.processes)
        return max(1, cores() // (read_numbers().on_machine if self.engine == "spread" else 1))


class ComputeOptions(TypedDict, total=False):
    """The fields of `Compute` as keywords of their own, for functions that take `**how`."""

    engine: str
    device: str
    dtype: str
    processes: int | None


def resolve_compute(compute: Compute | None, how: ComputeOptions) -> Compute:
    """One `Compute` from a whole one or from keywords, whichever a caller gave."""
    strange = [key for key in how if key not in ComputeOptions.__annotations__]
    if strange:
        raise TypeError(f"unexpected keyword argument '{strange[0]}'")
    if compute is None:
        return Compute(**how)
    if how:
        raise MusterError(f"compute: given together with {next(iter(how))}; give one or the other")
    if not isinstance(compute, Compute):
        raise MusterError(f"compute: {type(compute).__name__}; give a muster.Compute")
    return compute
