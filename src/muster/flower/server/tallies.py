"""Per-client tallies of a run: failures in a row, and bytes sent and received."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...base.arrays import Int64
from ...protocol import Traffic
from ..transport.requests import Exchange


@dataclass
class Failures:
    """Failures in a row of each client, by kind of request.

    A client that fails too often is set aside: it is still asked, but nobody waits for it. So it
    costs a round nothing, and comes back by itself with its first sound reply.

    Attributes:
        limit: failures in a row after which a client is set aside
    """

    limit: int
    count: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def aside(self) -> frozenset[int]:
        """The clients that are set aside."""
        return frozenset(k for (_, k), n in self.count.items() if n >= self.limit)

    def record(self, kind: str, k: int, reason: str) -> str:
        """Count one reply, with the `reason` why it failed ("": it did not); return the event to
        log, or ""."""
        before = k in self.aside
        self.count[kind, k] = self.count.get((kind, k), 0) + 1 if reason else 0
        after = k in self.aside
        if after and not before:
            return f"set aside after {self.limit} failures: asked, and not waited for ({reason})"
        return "taken back: it answered" if before and not after else ""


@dataclass
class TrafficCounter:
    """Bytes to and from each client since they were last taken."""

    up: Int64
    down: Int64

    def add(self, done: Exchange) -> None:
        """Count requests and replies."""
        for k, n in done.sent.items():
            self.down[k] += n
        for k, n in done.up.items():
            self.up[k] += n

    def take(self, asked: Int64) -> Traffic:
        """Return the bytes counted, by client that was asked, and start again from 0."""
        others = np.ones(len(self.up), np.bool_)
        others[asked] = False
        traffic = Traffic(
            self.up[asked],
            self.down[asked],
            int(self.up[others].sum()),
            int(self.down[others].sum()),
        )
        self.up[:], self.down[:] = 0, 0
        return traffic
