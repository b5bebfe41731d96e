"""Failures: who fails again and again is set aside, and taken back when it answers.

A client that is set aside is asked like everyone, but nobody waits for it. So it costs a round
nothing, and needs nobody's help to come back: its first sound answer counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Failures:
    """How often each client has failed in a row, by kind of request.

    Attributes:
        most: failures after which a client is set aside
    """

    most: int
    count: dict[tuple[str, int], int] = field(default_factory=dict)

    def aside(self) -> frozenset[int]:
        """Those who are set aside."""
        return frozenset(k for (_, k), n in self.count.items() if n >= self.most)

    def note(self, kind: str, k: int, why: str) -> str:
        """Count one reply (`why` it is none, or ""); what is to be said of it, if anything."""
        before = k in self.aside()
        self.count[kind, k] = self.count.get((kind, k), 0) + 1 if why else 0
        after = k in self.aside()
        if after and not before:
            return f"set aside after {self.most} failures: asked, and not waited for ({why})"
        return "taken back: it answered" if before and not after else ""
