"""Client states between rounds: a row for each client that has trained, and no more.

SCAFFOLD's c_k, Ditto's personal models: a method's clients may each hold a model or two, and there
may be a hundred thousand clients. Rows are written in place, in memory that the machine allocates
page by page as rows are touched; a large table is a memory-mapped file.

An interrupted round must leave the state before it intact. So `ClientStates` are a table and the
rows of the last round, which override the table: they are written into it only when the next round
has rows.
"""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Int64
from .lazy import torch
from .params import State

if TYPE_CHECKING:
    from torch import Tensor

MAPPED_FROM = 2**30  # bytes from which a table is a memory-mapped file
COPIED = 2**22  # bytes of rows that are copied at once

Rows = dict[str, dict[str, NDArray[Any]]]  # by part and name: [client, *shape]


def allocate_rows(n: int, like: Tensor, mapped: bool) -> NDArray[Any]:
    """Return zeros for n clients; only rows that are touched take memory, or disk space."""
    shape, kind = (n, *like.shape), like.cpu().numpy().dtype
    if not mapped:
        return np.zeros(shape, kind)
    with tempfile.TemporaryFile(prefix="muster-states-") as file:
        file.truncate(int(np.prod(shape)) * kind.itemsize)
        return np.memmap(file, kind, "r+", shape=shape)


def copy_rows(source: Tensor, place: Int64, stack: Tensor, at: Int64) -> None:
    """Copy rows `place` of a table to rows `at` of a stack: a few at a time, as each is copied
    twice on the way."""
    step = max(1, COPIED // max(1, stack[:1].nbytes))
    for i in range(0, len(at), step):
        taken = source[torch.from_numpy(place[i : i + step]).to(source.device)]
        stack[torch.from_numpy(at[i : i + step]).to(stack.device)] = taken.to(stack.device)


class StateTable:
    """One row per client and part; a client without a row has the initial state."""

    def __init__(self, start: State, n: int, mapped_from: int = MAPPED_FROM) -> None:
        self.start, self.n = start, n
        size = n * sum(t.numel() * t.element_size() for m in start.values() for t in m.values())
        self.mapped = size > mapped_from
        # The row of each client, in the order in which they first trained, so that rows in use lie
        # together; -1 without one.
        self.place: Int64 = np.full(n, -1)
        self.used = 0
        self.rows: Rows = {
            part: {name: allocate_rows(n, t, self.mapped) for name, t in model.items()}
            for part, model in start.items()
        }

    def get(self, clients: Int64) -> State:
        """Return these clients' rows, as stacks on the device of the initial state. Only rows that
        were written are read: a hole in a mapped file is read from the disk too."""
        place = self.place[clients]
        at = np.flatnonzero(place >= 0)
        stacks: State = {}
        for part, model in self.start.items():
            stacks[part] = {}
            for name, t in model.items():
                stack = t.expand(len(clients), *t.shape).clone()
                copy_rows(torch.from_numpy(self.rows[part][name]), place[at], stack, at)
                stacks[part][name] = stack
        return stacks

    def put(self, clients: Int64, rows: State) -> None:
        """Write these clients' rows; writing them twice changes nothing."""
        new = clients[self.place[clients] < 0]
        self.place[new] = np.arange(self.used, self.used + len(new))
        self.used += len(new)
        place = self.place[clients]
        for part, model in rows.items():
            for name, t in model.items():
                self.rows[part][name][place] = t.cpu().numpy()


class ClientStates:
    """A table, and the rows of the last round that are not yet in it."""

    def __init__(
        self, table: StateTable, who: Int64 | None = None, rows: State | None = None
    ) -> None:
        self.table, self.rows = table, rows or {}
        self.who: Int64 = np.empty(0, np.int64) if who is None else who

    @classmethod
    def create(cls, start: State, n: int) -> ClientStates:
        """Return the states of n clients that all begin with the same one."""
        return cls(StateTable(start, n))

    def get(self, clients: Int64) -> State:
        """Return these clients' states, as stacks that the caller may change."""
        stacks = self.table.get(clients)
        if len(self.who):
            order = np.argsort(self.who)
            ends = np.searchsorted(self.who, clients, sorter=order)
            at = order[np.minimum(ends, len(order) - 1)]
            found = self.who[at] == clients
            for part, model in self.rows.items():
                for name, t in model.items():
                    copy_rows(t, at[found], stacks[part][name], np.flatnonzero(found))
        return stacks

    def after(self, who: Int64, rows: State) -> ClientStates:
        """Return the states after a round in which these clients trained. The states before that
        round can still be read, from the table alone; those before the round preceding it are
        gone."""
        if not rows or not len(who):
            return self
        self.table.put(self.who, self.rows)
        self.who, self.rows = self.who[:0], {}
        return ClientStates(self.table, who, rows)

    @property
    def written(self) -> Int64:
        """Clients that have a row: those that have trained."""
        return np.union1d(np.flatnonzero(self.table.place >= 0), self.who)

    def to_tensors(self) -> dict[str, Tensor]:
        """Return all states as named tensors: the clients that have a row, and their rows."""
        clients = self.written
        rows = self.get(clients)
        named = {f"{part}/{n}": t.cpu() for part, m in rows.items() for n, t in m.items()}
        return {"who": torch.from_numpy(clients), **named}

    def restore(self, saved: dict[str, Tensor]) -> ClientStates:
        """Return the states that `to_tensors` saved."""
        if not saved:
            return self
        rows: State = {part: {} for part in self.table.start}
        for key, t in saved.items():
            if key != "who":
                part, name = key.split("/", 1)
                rows[part][name] = t
        self.table.put(saved["who"].numpy(), rows)
        return ClientStates(self.table)
