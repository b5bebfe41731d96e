"""Local work: how much each client trains in a round, in what batches, and how it moves.

`Local` is the user's setting; the engines turn it into rows for every step of every client
(`engines.batches`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

from .base.checks import check_one_of, check_size, check_whole, is_number, require
from .base.errors import MusterError, plural
from .base.registry import check_part
from .optimizers import GradientDescent, Optimizer
from .schedules import Schedule, as_schedule

Batches = Literal["shuffled", "independent", "poisson"]
BATCHES = ("shuffled", "independent", "poisson")


@dataclass(frozen=True)
class Local:
    """The local work of a client in one round: `steps` minibatch steps, or `epochs` passes.

    The FedALIGN paper's E is one or the other, depending on the page; give exactly one.

    Attributes:
        steps: minibatch steps a round
        epochs: passes over the client's rows a round
        batch_size: rows of a minibatch; None: the full batch
        lr: learning rate: a number, or a schedule (muster.schedules)
        optimizer: local optimizer (muster.optimizers); it restarts in every round unless its state
            is kept
        lr_counts: unit of an lr schedule: "rounds", or "steps": step j of round t is number
            `i = t E + j` of `rounds E`, where E is `steps`
        batches: how the rows of a step are drawn. "shuffled": cut from a fresh shuffle of the
            client's rows, the last batch smaller when they do not divide; steps beyond one pass go
            on with the next shuffle. "independent": a fresh draw for every step, without
            replacement within the batch: given the past, a step's gradient has the client's
            gradient as its mean, as convergence proofs assume (FedALIGN eq. 37). Every batch then
            has `batch_size` rows, or all of them; an epoch is as many steps as a pass takes.
            "poisson": each row by itself, with probability `batch_size` over the client's rows, so
            that batches differ in size and may be empty: what amplification by sampling needs where
            rows are protected (privacy.unit = "rows")
    """

    steps: int | None = None
    epochs: int | None = None
    batch_size: int | None = 32
    lr: float | Schedule = 0.1
    optimizer: Optimizer = GradientDescent()
    lr_counts: Literal["rounds", "steps"] = "rounds"
    batches: Batches = "shuffled"

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise MusterError(
                f"local: steps={self.steps}, epochs={self.epochs}; give exactly one of the two"
            )
        for name in ("steps", "epochs", "batch_size"):
            value = getattr(self, name)
            if value is not None:
                check_whole(f"local {name}", value)
                # numpy's numbers are numbers, but they do not print as such.
                object.__setattr__(self, name, int(value))
        if is_number(self.lr):
            object.__setattr__(self, "lr", float(self.lr))  # type: ignore[arg-type]
        ends = [as_schedule(self.lr, "local lr").at(t, 100) for t in (0, 99)]
        require(all(map(math.isfinite, ends)), "local lr", self.lr, "finite numbers from 0")
        check_size("local lr", max(ends))
        if not hasattr(self.optimizer, "step"):
            raise MusterError(
                f"local optimizer: {type(self.optimizer).__name__}; give one of muster.optimizers"
            )
        check_part(Optimizer, self.optimizer, "local optimizer")

        check_one_of("local batches", self.batches, BATCHES)
        check_one_of("local lr_counts", self.lr_counts, ("rounds", "steps"))
        if self.lr_counts == "steps" and self.steps is None:
            raise MusterError(
                "local lr_counts: 'steps' needs steps, the same for every client; with epochs "
                "the number of steps depends on a client's rows"
            )

    def __repr__(self) -> str:
        # Stored with every run and compared when it is resumed: runs from before there was a choice
        # of batches can be resumed.
        usual = self.batches == "shuffled"
        shown = [f.name for f in fields(self) if not (f.name == "batches" and usual)]
        return f"Local({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def describe_amount(self, rounds: int) -> str:
        """Describe a client's work in this many rounds.

        >>> Local(steps=20).describe_amount(20), Local(epochs=1).describe_amount(1)
        ('400 steps', '1 epoch')
        """
        if self.steps is not None:
            return plural(rounds * self.steps, "step")
        return plural(rounds * (self.epochs or 0), "epoch")

    def rate(self, t: int, rounds: int) -> float:
        """Return the learning rate in round t; where it changes with every step, in the first."""
        return self.rate_at(t, 0, rounds)

    def rate_at(self, t: int, step: int, rounds: int) -> float:
        """Return the learning rate in a step of round t. Steps beyond `steps` (methods may ask for
        more) go on counting, up to the last one of the run."""
        if isinstance(self.lr, float):
            return self.lr
        if self.lr_counts == "rounds" or self.steps is None:
            return self.lr.at(t, rounds)
        total = rounds * self.steps
        return self.lr.at(min(t * self.steps + step, total - 1), total)

    @property
    def constant(self) -> bool:
        """True if the learning rate stays the same through a round."""
        return self.lr_counts == "rounds" or isinstance(self.lr, float)
