"""Local work: how much each client trains in a round, and on which rows.

`Local` is what the user says; `plan` turns it into rows for every step of every client, drawn
from the key (seed, "batches", round, client), so that every engine trains on the same batches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .errors import MusterError
from .schedules import Schedule, as_schedule


@dataclass(frozen=True)
class Local:
    """What a client does in a round: `steps` minibatch steps, or `epochs` passes over its data.

    The FedALIGN paper's E is one or the other, depending on the page; give exactly one.
    `batch_size=None` is the full batch. `lr` is a number or a schedule over rounds.

    Batches are cut from a fresh shuffle of the client's rows, the last one smaller when they do
    not divide; `steps` beyond one pass go on with the next shuffle.
    """

    steps: int | None = None
    epochs: int | None = None
    batch_size: int | None = 32
    lr: float | Schedule = 0.1

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise MusterError(
                f"local: steps={self.steps}, epochs={self.epochs}; give exactly one of the two"
            )
        for name in ("steps", "epochs", "batch_size"):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise MusterError(f"local {name}: {value!r}; allowed: whole numbers from 1")
        if not all(math.isfinite(self.rate(t, 100)) for t in (0, 99)):
            raise MusterError(f"local lr: {self.lr}; allowed: finite numbers from 0")

    def rate(self, t: int, rounds: int) -> float:
        """The learning rate in round t."""
        return as_schedule(self.lr, "local lr").at(t, rounds)
