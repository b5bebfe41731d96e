"""Ranks: the processes that share one run's work, on one machine or on several.

Every rank runs the same program on the same data. Where an engine has many tasks (portions of
clients, chunks of rows), each rank takes its own, and afterwards every rank is given the results of
all (`Ranks.run`): the rest of a round is computed by each of them, to the same bits. Tasks do not
depend on the number of ranks, and nothing is summed on the way, so neither does any bit.

`Ranks` are those of a run in one process: one, which does everything. `SpreadRanks` are those that
torchrun started. Before results are passed on, ranks compare where they are and whether all went
well: an error or Ctrl-C at one of them is raised at all of them, at the same place, whichever had
work. Nothing that comes from another rank becomes code: numbers travel as bytes, forms as JSON.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ..base.arrays import Int64
from ..base.errors import MusterError, first_line
from ..base.lazy import torch
from ..base.untrusted_files import TENSORS, open_file, plain_name
from .compute import Key, Ranks, Room, Tables
from .rank_group import RankGroup, claim_failure, join_group, read_numbers

if TYPE_CHECKING:
    from torch import Tensor

SPREAD = "spread"  # the engine of several ranks
SLICE = 2**26  # bytes that are sent together
DTYPES = ("float64", "int64", "float32", "int32", "float16", "bfloat16", "uint8", "bool")
WELL, STOPPED, REFUSED, FAILED = range(4)  # how a rank's own tasks went


class SpreadRanks(Ranks):
    """The ranks that torchrun started, this one among them."""

    def __init__(self, group: RankGroup) -> None:
        self.group, self.rank, self.size = group, group.rank, group.size

    def begin(self) -> None:
        """Catch Ctrl-C and SIGTERM from now on."""
        self.group.signals.begin()

    def end(self) -> None:
        """Leave signals as they were."""
        self.group.signals.end()

    def run(
        self,
        count: int,
        work: Callable[[Sequence[int]], None],
        places: Callable[[int], Int64],
        room: Room,
        about: Callable[[], int],
    ) -> None:
        """Do this rank's tasks, then exchange results with the others."""
        signals, error = self.group.signals, None
        try:
            signals.may_raise = True
            work(self._deal(count, self.rank))
        except BaseException as caught:
            signals.may_raise = False
            error = caught
        signals.may_raise = False
        form = ""
        if error is None and self.rank == 0 and count:
            form = _describe(room.take(places(0)[:1]))
        form = self._meet(about(), error, form)
        if count:
            self._exchange(count, places, room, _parse(form))

    def _deal(self, count: int, rank: int) -> range:
        """Return a rank's tasks: every `size`-th, since those that take longest come first."""
        return range(rank, count, self.size)

    def _meet(self, about: int, error: BaseException | None, form: str) -> str:
        """Compare with the others; raise what any of them met, or return rank 0's text."""
        stopped = isinstance(error, KeyboardInterrupt)
        status = STOPPED if stopped or self.group.signals.received else WELL
        if error is not None and not stopped:
            status = REFUSED if isinstance(error, MusterError) else FAILED
            form = str(error) if status == REFUSED else first_line(error)
            if status == FAILED:
                claim_failure(f"spread: rank {self.rank} failed: {form}")  # it prints a traceback
        text = form.encode()
        mine = torch.tensor([status, about, len(text)])
        every = self.group.gather(mine)
        worst = int(every[:, 0].max())
        if worst in (REFUSED, FAILED):
            who = int((every[:, 0] == worst).nonzero()[0])
            reason = self._send_text(who, text, int(every[who, 2])).decode()
            if error is not None and status == worst:
                raise error
            failed = f"spread: rank {who} failed: {reason}"
            raise MusterError(reason if worst == REFUSED else failed)
        if worst == STOPPED:
            self.group.signals.received = False
            raise KeyboardInterrupt
        if not bool((every[:, 1] == every[0, 1]).all()):
            other = int((every[:, 1] != every[0, 1]).nonzero()[0])
            raise MusterError(
                f"spread: rank {other} computes something else than rank 0; start every rank with "
                "the same configuration, data and versions, on processors of the same kind"
            )
        return self._send_text(0, text, int(every[0, 2])).decode() if every[0, 2] else ""

    def _send_text(self, source: int, text: bytes, length: int) -> bytes:
        """Return a rank's text, which every rank needs the length of."""
        if not 0 <= length <= SLICE:
            raise MusterError(f"spread: rank {source} announces a text of {length} bytes")
        mine = (
            np.frombuffer(text, np.uint8).copy() if self.rank == source else np.zeros(length, "B")
        )
        return self.group.send(torch.from_numpy(mine), source).numpy().tobytes()

    def _exchange(
        self, count: int, places: Callable[[int], Int64], room: Room, form: list[SentTensor]
    ) -> None:
        """Give every rank the rows that the others filled, some at a time."""
        width = sum(column.width for column in form)
        step = max(1, SLICE // max(1, width))
        for source in range(self.size):
            tasks = [places(i) for i in self._deal(count, source)]
            rows = np.concatenate(tasks) if tasks else np.empty(0, np.int64)
            for start in range(0, len(rows), step):
                at = rows[start : start + step]
                if source == self.rank:
                    self.group.send(_pack(room.take(at), form), source)
                    continue
                where = form[0].device if form else "cpu"
                buffer = torch.empty(width * len(at), dtype=torch.uint8, device=where)
                room.give(at, _unpack(self.group.send(buffer, source), form, len(at)))

    def require_same(self, what: Mapping[str, str]) -> None:
        """Refuse ranks that differ in any of these."""
        mine = torch.tensor([zlib.crc32(text.encode()) for text in what.values()])
        every = self.group.gather(mine)
        differ = (every != every[0]).nonzero()
        if len(differ):
            rank, column = differ[0].tolist()
            raise MusterError(
                f"spread: rank {rank} has another {list(what)[column]} than rank 0; start every "
                "rank with the same configuration, data and versions"
            )

    def copy_folder(self, source: Path | None, target: Path) -> None:
        """Copy a folder of rank 0, files alone, into a folder of each other rank."""
        files = [] if source is None else sorted(source.iterdir())
        sizes = {file.name: file.stat().st_size for file in files}
        text = json.dumps([source.name if source else "", sizes]).encode() if not self.rank else b""
        length = int(self.group.gather(torch.tensor([len(text)]))[0, 0])
        name, sizes = json.loads(self._send_text(0, text, length))
        for file, size in sizes.items():
            stream: IO[bytes]
            with ExitStack() as stack:
                if self.rank == 0 and source is not None:
                    stream = stack.enter_context(open_file(source / file, TENSORS))
                else:
                    place = target / plain_name(name)
                    place.mkdir(exist_ok=True)
                    stream = stack.enter_context((place / plain_name(file)).open("wb"))
                for start in range(0, size, SLICE):
                    part = stream.read(SLICE) if self.rank == 0 else b""
                    part = self._send_text(0, part, min(SLICE, size - start))
                    if self.rank:
                        stream.write(part)


class SentTensor:
    """The form of one tensor of a room: its name, type, shape and device."""

    def __init__(self, key: Key, dtype: str, shape: tuple[int, ...], device: str) -> None:
        if dtype not in DTYPES:
            raise MusterError(f"spread: numbers of type {dtype} cannot be sent")
        self.key, self.shape, self.device = key, shape, device
        self.dtype: torch.dtype = getattr(torch, dtype)
        self.width = int(np.prod(shape)) * torch.empty(0, dtype=self.dtype).element_size()


def _describe(tables: Tables) -> str:
    """Return the form of these tensors as JSON, the widest numbers first: so each of them begins
    where numbers of its width may begin."""
    columns = [
        [list(key), str(t.dtype).removeprefix("torch."), list(t.shape[1:]), t.device.type]
        for key, t in sorted(tables.items(), key=lambda item: -item[1].element_size())
    ]
    return json.dumps(columns)


def _parse(form: str) -> list[SentTensor]:
    """Return the columns that `_describe` wrote, at another rank."""
    return [
        SentTensor(tuple(map(str, key)), str(dtype), tuple(map(int, shape)), str(device))
        for key, dtype, shape, device in json.loads(form or "[]")
    ]


def _pack(tables: Tables, form: Sequence[SentTensor]) -> Tensor:
    """Return these tensors' bytes, one tensor after the other."""
    parts = [tables[c.key].contiguous().flatten().view(torch.uint8) for c in form if c.width]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


def _unpack(buffer: Tensor, form: Sequence[SentTensor], rows: int) -> Tables:
    """Return the tensors that `_pack` put together."""
    tables: Tables = {}
    start = 0
    for column in form:
        end = start + column.width * rows
        tables[column.key] = buffer[start:end].view(column.dtype).view(rows, *column.shape)
        start = end
    return tables


def digest(values: Iterable[Any]) -> int:
    """Return a checksum of texts, numbers, arrays and models, in which ranks compare themselves."""
    found = 0
    for value in values:
        if isinstance(value, np.ndarray):
            found = zlib.crc32(np.ascontiguousarray(value).tobytes(), found)
        elif isinstance(value, Mapping):
            for name, t in value.items():
                found = zlib.crc32(str(name).encode(), found)
                flat = t.detach().cpu().contiguous().flatten()
                found = zlib.crc32(flat.view(torch.uint8).numpy().data, found)
        else:
            found = zlib.crc32(repr(value).encode(), found)
    return found


ONE = Ranks()


def join_ranks(engine: str) -> Ranks:
    """Return the ranks that an engine of this name works with."""
    numbers = read_numbers()
    return SpreadRanks(join_group(numbers)) if engine == SPREAD and numbers.size > 1 else ONE
