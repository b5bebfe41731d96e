"""What a run leaves: its model, and everything that happened, as frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from ..errors import MusterError, plural
from ..lazy import pl
from .concerns import Facts, concerns

OnRound = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Run:
    """A finished (or interrupted) run.

    weights  the model, under the module's own state_dict names
    rounds   one row per round, measured on the model after that round's step
    clients  one row per round and asked client: its loss and accuracy at the broadcast model
    moves    one row for each time a client left the pool or returned to it
    attackers  one row per round and attacker: its share of the step, and what honesty would have
             got
    final    one row per client: the last model on its training and held-out data
    note     what these results must say of their data
    facts    what the numbers are to be held against: the loss before the first round, that of a
             constant prediction, the accuracy of always answering the most frequent class
    concerns what a person must be told before believing the numbers, a sentence each
    """

    weights: dict[str, NDArray[Any]]
    rounds: pl.DataFrame
    clients: pl.DataFrame
    moves: pl.DataFrame
    attackers: pl.DataFrame
    final: pl.DataFrame
    method: str
    seed: int
    engine: str = ""
    complete: bool = True
    config: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    facts: Facts = field(default_factory=dict)

    @cached_property
    def concerns(self) -> list[str]:
        """What is wrong with this run, and what to do about it; empty when nothing is."""
        return concerns(self.rounds, self.clients, self.facts)

    @property
    def idle(self) -> bool:
        """Whether every round was skipped: nobody's reply counted, and nothing was learned."""
        return len(self.rounds) > 0 and bool(self.rounds["skipped"].all())

    def __repr__(self) -> str:
        state = "" if self.complete else ", interrupted"
        rounds = plural(len(self.rounds), "round")
        return f"Run({self.method}, seed {self.seed}, {rounds}{state})"


class NoQuorum(MusterError):
    """Too few of the clients that the model is for were heard in a round."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run; `run` holds everything up to the last finished round."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"interrupted after round {len(run.rounds)}")
        self.run = run
