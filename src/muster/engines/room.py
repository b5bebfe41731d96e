"""Room for every client's work, filled as it comes in, from whichever thread or process."""

from __future__ import annotations

import threading

import numpy as np
import torch

from ..arrays import Int64
from ..params import Memory, Params
from ..parts.solvers import Work


class Room:
    """The work of n clients: one copy of each model, no more."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.models: Params = {}
        self.memory: Memory = {}
        self.extra: Memory = {}
        self.steps: Int64 = np.zeros(n, np.int64)
        self._lock = threading.Lock()

    def put(self, at: Int64, work: Work, steps: Int64) -> None:
        """The work of the clients at these places, and the steps they took. Takes it over."""
        self._fill(self.models, at, work.models)
        for mine, given in ((self.memory, work.memory), (self.extra, work.extra)):
            for part, table in given.items():
                with self._lock:
                    room = mine.setdefault(part, {})
                self._fill(room, at, table)
        self.steps[at] = steps

    def _fill(self, room: Params, at: Int64, stack: Params) -> None:
        in_order = np.array_equal(at, np.arange(at[0], at[0] + len(at)))
        where = slice(int(at[0]), int(at[0]) + len(at)) if in_order else torch.from_numpy(at)
        for name, t in stack.items():
            if in_order and len(at) == self.n:
                room[name] = t
                continue
            with self._lock:
                if name not in room:
                    room[name] = t.new_empty(self.n, *t.shape[1:])
            room[name][where] = t

    def work(self) -> Work:
        """Everyone's work, once it has all come in."""
        return Work(self.models, self.memory, self.extra)
