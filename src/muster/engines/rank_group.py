"""The processes of torchrun as a group: who is there, what is sent, and who has died.

torchrun tells each process its rank by the environment (RANK, WORLD_SIZE, MASTER_ADDR, ...) and has
a store that all of them reach. Numbers go over gloo between processors and over nccl between GPUs.
gloo alone waits half an hour for a process that is gone, so each rank writes a heartbeat to the
store and looks at the others' (`RankWatch`), and nobody waits in one piece.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..base.errors import MusterError
from ..base.lazy import lazy_module, torch

if TYPE_CHECKING:
    import torch.distributed as dist
    from torch import Tensor
    from torch._C import _distributed_c10d as c10d
else:
    dist = c10d = lazy_module("torch.distributed")

BEAT = 0.5  # seconds between heartbeats, and between looks at the others'
DEADLINE = 15.0  # seconds without one after which a rank is taken for dead
ARRIVAL = 600.0  # seconds in which every rank must have come to its first work
LAST_WORDS = 3.0  # seconds in which a rank that ended may have written why
FOREVER = timedelta(days=30)  # for gloo: the watch decides instead
GLANCE = 2e-4  # seconds between looks at an operation that does not wait by itself
AGAIN = 3.0  # seconds after which another Ctrl-C is a second one, not the same from torchrun
NO_STORE = "torchrun's store cannot be reached"
LOST = 2  # exit code of a rank that lost another one
MOST = 100_000  # ranks


@dataclass(frozen=True)
class RankNumbers:
    """The numbers by which torchrun names a process.

    Attributes:
        rank: its number, from 0
        size: how many there are
        local: its number on this machine
        on_machine: how many there are on this machine
        machine: the number of this machine
    """

    rank: int = 0
    size: int = 1
    local: int = 0
    on_machine: int = 1
    machine: int = 0


def read_numbers(environment: Any = os.environ) -> RankNumbers:
    """Return the numbers in the environment; those of a single process without torchrun."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    if not all(name in environment for name in (*names[:2], "MASTER_ADDR", "MASTER_PORT")):
        return RankNumbers()
    found = []
    for name, usual in zip(names, (0, 1, 0, 1, 0), strict=True):
        text = environment.get(name, str(usual))
        if not text.isdecimal() or int(text) > MOST:
            raise MusterError(f"{name}: '{text}' in the environment; start muster by torchrun")
        found.append(int(text))
    numbers = RankNumbers(*found)
    if not (numbers.rank < numbers.size and numbers.local < numbers.on_machine <= numbers.size):
        raise MusterError(
            f"RANK: {numbers.rank} of WORLD_SIZE {numbers.size} (LOCAL_RANK {numbers.local} of "
            f"LOCAL_WORLD_SIZE {numbers.on_machine}) in the environment; start muster by torchrun"
        )
    return numbers


class StopSignals:
    """Ctrl-C and SIGTERM while ranks work together: noted, and raised where all of them meet.

    In a rank's own tasks a signal ends the tasks at once. A second one ends the process.

    Attributes:
        received: True if one has come
        may_raise: True in a rank's own tasks
    """

    def __init__(self) -> None:
        self.received = self.may_raise = False
        self._users, self._first = 0, 0.0
        self._before: dict[int, Any] = {}

    def begin(self) -> None:
        self._users += 1
        if self._users == 1 and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)

    def end(self) -> None:
        self._users = max(0, self._users - 1)
        if self._users == 0:
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._before = {}

    def _note(self, number: int, frame: Any) -> None:
        now = time.monotonic()
        again = self.received and now - self._first > AGAIN
        if not self.received:
            self.received, self._first = True, now
            if self.may_raise:
                raise KeyboardInterrupt
        elif again:
            raise KeyboardInterrupt


class RankWatch:
    """Heartbeats of all ranks, in the store; `dead` says which one has none any more.

    It counts its own looks, not seconds: when the whole program is suspended and goes on, nobody
    is taken for dead.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self.dead = ""
        self._store, self._rank, self._size = store, rank, size
        threading.Thread(target=self._look, daemon=True, name="muster-ranks").start()

    def _look(self) -> None:
        names = [f"beat/{r}" for r in range(self._size)]
        seen: dict[str, tuple[bytes, int]] = {}
        beats = 0
        while not self.dead:
            beats += 1
            try:
                self._store.set(names[self._rank], str(beats))
                if beats > 1:  # by now the others have written their first
                    found = self._store.multi_get(names)
                    for r, (name, value) in enumerate(zip(names, found, strict=True)):
                        before, looks = seen.get(name, (b"", 0))
                        seen[name] = (value, looks + 1 if value == before else 0)
                        if seen[name][1] * BEAT >= DEADLINE:
                            self.dead = f"rank {r} of {self._size} sends no heartbeat"
            except RuntimeError:
                self.dead = NO_STORE
            time.sleep(BEAT)


class RankGroup:
    """All ranks of a run, and this one's place among them."""

    def __init__(self, numbers: RankNumbers) -> None:
        self.numbers, self.rank, self.size = numbers, numbers.rank, numbers.size
        self.signals, self.whole = StopSignals(), True
        self._group: Any = None  # the default one
        atexit.register(self._leave)
        self.store = connect_store()
        self._arrive()
        # Connections apart: one may be busy.
        self.watch = RankWatch(connect_store(timedelta(seconds=DEADLINE)), self.rank, self.size)
        between = c10d.PrefixStore("group", connect_store())
        gpus = torch.cuda.is_available() and dist.is_nccl_available()
        backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
        try:
            if dist.is_initialized():  # by the caller's program
                self._group = dist.new_group(backend=backend, timeout=FOREVER)
            else:
                dist.init_process_group(
                    backend,
                    store=between,
                    rank=self.rank,
                    world_size=self.size,
                    timeout=FOREVER,
                )
        except RuntimeError as error:
            raise self._explain_loss() from error

    def _arrive(self) -> None:
        """Wait until every rank is here, or one has failed before."""
        self.store.set(f"here/{self.rank}", "")
        end = time.monotonic() + ARRIVAL
        for r in range(self.size):
            while not self.store.check([f"here/{r}"]):
                if failure := read_failure(self.store):
                    raise MusterError(failure)
                if time.monotonic() > end:
                    raise MusterError(
                        f"spread: rank {r} of {self.size} has not connected in {ARRIVAL:g} s; "
                        "look at its machine, and start all of them again"
                    )
                time.sleep(0.02)

    def _leave(self) -> None:
        """Leave the group at the end of the process. gloo would wait for an operation that a dead
        rank has left open, so then the process ends here."""
        if not self.whole:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(LOST)
        if self._group is None and dist.is_initialized():
            dist.destroy_process_group()

    def gather(self, mine: Tensor) -> Tensor:
        """Return every rank's numbers, one row for each."""
        every = [torch.empty_like(mine) for _ in range(self.size)]
        self._finish(lambda: dist.all_gather(every, mine, group=self._group, async_op=True))
        return torch.stack(every)

    def send(self, values: Tensor, source: int) -> Tensor:
        """Return one rank's numbers; the others give a tensor to fill."""
        if values.numel():
            self._finish(lambda: dist.broadcast(values, source, group=self._group, async_op=True))
        return values

    def _finish(self, begin: Callable[[], Any]) -> None:
        """Wait for an operation in short pieces, and look after the other ranks in between."""
        try:
            work = begin()
            while not self.watch.dead:
                try:
                    work.wait(timedelta(seconds=BEAT))
                except RuntimeError:
                    if work.is_completed():
                        raise
                if work.is_completed():
                    return
                time.sleep(GLANCE)  # nccl does not wait by itself
            raise self._explain_loss()
        except RuntimeError as error:
            raise self._explain_loss() from error

    def _explain_loss(self) -> MusterError:
        """Return the error of a rank that lost another one: the other's own, if it left one."""
        self.whole = False
        end = time.monotonic() + LAST_WORDS
        while time.monotonic() < end and self.watch.dead != NO_STORE:
            if failure := read_failure(self.store):
                return MusterError(failure)
            time.sleep(0.05)
        why = self.watch.dead or f"another rank of {self.size} ended"
        return MusterError(
            f"spread: {why}, so this one ends too; start all ranks again: a run with checkpoints "
            "resumes from the last one"
        )


def connect_store(timeout: timedelta = timedelta(seconds=60)) -> Any:
    """Return a connection to torchrun's store, for muster's own keys."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    hosts = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" and os.environ["RANK"] == "0"
    try:
        store = c10d.TCPStore(host, port, is_master=hosts, multi_tenant=True, timeout=timeout)
    except RuntimeError as error:
        raise MusterError(
            f"spread: torchrun's store at {host}:{port} cannot be reached; start muster by torchrun"
        ) from error
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return c10d.PrefixStore(f"muster/{attempt}", store)


def read_failure(store: Any) -> str:
    """Return why a rank ended, in its words; "" if none has."""
    try:
        return str(store.get("failure").decode()) if store.check(["failure"]) else ""
    except RuntimeError:
        return ""


def claim_failure(text: str) -> bool:
    """Leave the reason why this rank ends for the others, and return True if this rank is the one
    on its machine that reports it: the first. True also where nobody can be asked."""
    try:
        numbers = read_numbers()
        if numbers.size == 1:
            return True
        if any(group.watch.dead == NO_STORE for group in _GROUPS):
            return numbers.local == 0
        store = connect_store(timedelta(seconds=5))
        store.compare_set("failure", "", text)
        return int(store.add(f"reported/{numbers.machine}", 1)) == 1
    except (MusterError, RuntimeError):
        return True


_GROUPS: list[RankGroup] = []


def join_group(numbers: RankNumbers) -> RankGroup:
    """Return this process's group, the same one every time."""
    if not _GROUPS:
        _GROUPS.append(RankGroup(numbers))
    return _GROUPS[0]
