"""Tickets: several processes, on several machines, share the units of one folder.

A process takes a unit by creating its ticket, a small file, exclusively: of several that try at the
same time exactly one succeeds, on network file systems too, which locks may not reach. While it
runs the unit it renews the ticket's time every `BEAT` seconds. A ticket is dead if its process ran
on this machine and has ended, if its time is older than `DEAD` seconds, by the clock of the file
system, or if a process that waits for it saw the same time for `DEAD` seconds (it may lie in the
future, where clocks differ): then another process takes the unit by creating the ticket with the
next number. So the last ticket counts, nothing is ever replaced, and the numbers are those of the
processes that died over the unit; after `TRIES` nobody takes it any more. A process that is
interrupted deletes its tickets. Those of finished units stay, and say where each was run.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ..base import durable
from ..base.errors import MusterError, plural, printable
from ..base.untrusted_files import descriptor, parse_json

NAME = ".ticket"  # begins the names of tickets
TRIES = 3  # processes that may die over one unit
BEAT, DEAD = 20.0, 300.0  # seconds between two renewals, and after which a ticket is dead
WAIT = 0.05  # seconds between two looks at a ticket that another process holds
LONGEST = 1000  # bytes that are read of a ticket


@dataclass(frozen=True)
class Share:
    """One of several processes that share the units of a folder.

    Attributes:
        number: this process's number, from 1
        of: number of processes
    """

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Share:
        """Return the share of a flag.

        >>> Share.parse("3/8")
        Share(number=3, of=8)
        """
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of) <= 10**6):
            raise MusterError(f"--share: '{text}'; give i/n with i from 1 to n, such as 3/8")
        return cls(int(number), int(of))


@dataclass(frozen=True)
class TicketName:
    """The place of a unit's tickets: their folder, and the unit's name."""

    folder: Path
    unit: str

    def path(self, number: int) -> Path:
        """Return the path of the ticket with this number."""
        return self.folder / f"{NAME}-{self.unit}.{number}"

    def count(self) -> int:
        """Return how many tickets there are."""
        return next(n for n in range(TRIES + 1) if not os.path.lexists(self.path(n)))


def has_tickets(folder: Path, units: Iterable[object]) -> bool:
    """Return True if several processes share, or have shared, units of a folder."""
    return any(TicketName(folder, str(unit)).count() for unit in units)


def describe_process() -> dict[str, str | int]:
    """Return the name of this machine, something that no other machine or container has in common
    with it, and the number of this process."""
    facts = [socket.gethostname()]
    with suppress(OSError):
        facts += [Path("/proc/sys/kernel/random/boot_id").read_text().strip()]
        facts += [os.readlink("/proc/self/ns/pid")]
    return {"host": facts[0], "machine": " ".join(facts), "pid": os.getpid()}


@dataclass
class Tickets:
    """The tickets that this process holds, and the units that everyone has given up.

    Attributes:
        seen: time of each ticket of others, and the moment at which it was first seen
        clock: returns the seconds of a clock that nobody sets
    """

    held: dict[TicketName, Path] = field(default_factory=dict)
    lost: dict[TicketName, str] = field(default_factory=dict)
    seen: dict[Path, tuple[float, float]] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic

    def take(self, name: TicketName) -> bool:
        """Return True if this process has the unit now."""
        number = name.count()
        if number:
            living, who = is_living(name.path(number - 1), idle=self.find_idle)
            if living:
                return False
            if number >= TRIES:
                self.lost[name] = who
                return False
        path = name.path(number)
        try:
            durable.create(path, json.dumps(describe_process()))
        except FileExistsError:
            return False
        self.held[name] = path
        return True

    def find_idle(self, path: Path, renewed: float) -> float:
        """Return for how many seconds a ticket has had the same time, as far as was seen here."""
        if self.seen.get(path, (None,))[0] != renewed:
            self.seen[path] = renewed, self.clock()
        return self.clock() - self.seen[path][1]

    def give_back(self, names: Iterable[TicketName]) -> None:
        """Delete the tickets of units that were not run, unless another process took them over."""
        for name in names:
            path = self.held.pop(name)
            if path == name.path(name.count() - 1):
                path.unlink(missing_ok=True)

    @contextmanager
    def renew(self) -> Iterator[None]:
        """Renew the tickets while the block lasts; if it fails, they are given back."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(BEAT):
                for path in list(self.held.values()):
                    with suppress(OSError):
                        os.utime(path)

        thread = threading.Thread(target=beat, daemon=True, name="muster-tickets")
        thread.start()
        try:
            yield
        except BaseException:
            self.give_back(list(self.held))
            raise
        finally:
            over.set()
            thread.join()

    def check_lost(self) -> None:
        """Raise an error if a unit was given up."""
        for name, who in self.lost.items():
            more = len(self.lost) - 1
            others = f" (and {plural(more, 'other')})" if more else ""
            raise MusterError(
                f"{name.folder.name}, seed {name.unit}{others}: given up, as {TRIES} processes "
                f"ended while they ran it, the last on {who} (out of memory?); to try again, "
                f"delete {name.path(0).with_suffix('.*')}"
            )


@contextmanager
def hold(name: TicketName) -> Iterator[None]:
    """Wait for a ticket, and hold it while the block lasts: a lock for a moment."""
    tickets = Tickets()
    while not tickets.take(name):
        tickets.check_lost()
        time.sleep(WAIT)
    try:
        yield
    finally:
        tickets.give_back([name])


def is_held(name: TicketName) -> bool:
    """Return True if a process holds a unit, by this machine's clock: nothing is written."""
    number = name.count()
    return number > 0 and is_living(name.path(number - 1), lambda _: time.time())[0]


def is_living(
    path: Path,
    clock: Callable[[Path], float] | None = None,
    idle: Callable[[Path, float], float] | None = None,
) -> tuple[bool, str]:
    """Return whether the process of a ticket is at work, and where it runs or ran.

    Args:
        clock: returns the time of a folder; by default that of its file system
        idle: returns for how many seconds a ticket has had this time
    """
    try:
        with os.fdopen(descriptor(path, os.O_RDONLY), "rb") as file:
            renewed = os.fstat(file.fileno()).st_mtime
            age = (clock or read_clock)(path.parent) - renewed
            text = file.read(LONGEST).decode(errors="replace")
    except FileNotFoundError:
        return True, ""  # given back at this moment: somebody may have it already
    try:
        table = parse_json(text)
    except ValueError:  # it is being written
        table = {}
    table = table if isinstance(table, dict) else {}
    pid = table.get("pid")
    who = printable(f"{table.get('host', 'an unknown machine')!s:.80} (process {pid!s:.20})")
    if age > DEAD or (idle is not None and idle(path, renewed) > DEAD):
        return False, who
    here = table.get("machine") == describe_process()["machine"]
    if here and isinstance(pid, int) and not isinstance(pid, bool) and 0 < pid < 2**31:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False, who
        except PermissionError:
            pass
    return True, who


def read_clock(folder: Path) -> float:
    """Return the time of a folder's file system, which may be another machine's."""
    path = folder / f"{NAME}-{secrets.token_hex(4)}.clock"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        return os.fstat(handle).st_mtime
    finally:
        os.close(handle)
        path.unlink()


Unit = TypeVar("Unit")


def take_units(
    units: Sequence[Unit],
    share: Share,
    tickets: Tickets,
    name: Callable[[Unit], TicketName],
    is_done: Callable[[Unit], bool],
    patient: bool = False,
) -> Iterator[Unit | None]:
    """Yield the units that this process gets: those of its share first, then what others have not
    begun, or have died over.

    Args:
        is_done: returns True if a unit is finished, by whichever process
        patient: True to go on until every unit is finished or given up; None is yielded while
            others are at work
    """
    order = sorted(range(len(units)), key=lambda i: ((i + 1 - share.number) % share.of, i))
    left = [units[i] for i in order]
    while left:
        taken = 0
        for unit in list(left):
            if is_done(unit) or name(unit) in tickets.held:
                left.remove(unit)
            elif tickets.take(name(unit)):
                left.remove(unit)
                if is_done(unit):  # a moment ago, by another
                    continue
                taken += 1
                yield unit
            elif name(unit) in tickets.lost:
                left.remove(unit)
        if not taken and not patient:
            return
        if not taken and left:
            yield None
