"""Schedules: numbers that change over rounds, such as eps_t or a learning rate.

A schedule is a frozen part with one method, `at(t, rounds)`, for round t = 0 .. rounds - 1. (A
learning rate may count local steps instead: see `Local`.)
Wherever a schedule is allowed, a plain number is too (`as_schedule`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from .base.checks import check_whole, is_number, is_whole, require
from .base.errors import MusterError
from .base.registry import part


@runtime_checkable
class Schedule(Protocol):
    """A number for each round."""

    def at(self, t: int, rounds: int) -> float:
        """Return the value in round t of `rounds`, counted from 0."""
        ...


AUTO: Literal["auto"] = "auto"  # an epsilon that is chosen before the run
Epsilon = float | Literal["auto"] | Schedule

Count = int | float  # whole numbers count rounds, floats are fractions of all rounds


def count_rounds(value: Count, rounds: int, what: str) -> int:
    """Return a number of rounds, given as a whole number or as a fraction of all rounds (halves are
    rounded up).

    >>> [count_rounds(value, n, "warmup") for value, n in ((20, 200), (0.1, 200), (0.1, 5))]
    [20, 20, 1]
    """
    if is_whole(value):
        check_whole(what, value, 0)
        return min(int(value), rounds)
    ok = is_number(value) and 0.0 <= value <= 1.0
    require(ok, what, value, "a whole number of rounds, or a fraction of them from 0.0 to 1.0")
    # Rounding errors (0.29 * 50 is a little under 14.5) must not decide.
    return math.floor(value * rounds + 0.5 + 1e-9)


@part(Schedule, "constant")
@dataclass(frozen=True)
class Constant:
    """The same number every round."""

    value: float

    def at(self, t: int, rounds: int) -> float:
        return self.value


@part(Schedule, "step")
@dataclass(frozen=True)
class StepTo:
    """`start` until round `at_round`, then `end` (0 included): the paper's "eventually 0"."""

    start: float
    end: float = 0.0
    at_round: Count = 0.5
    of_run: ClassVar[bool] = True

    def at(self, t: int, rounds: int) -> float:
        return self.start if t < count_rounds(self.at_round, rounds, "at_round") else self.end


@part(Schedule, "linear")
@dataclass(frozen=True)
class Linear:
    """A straight line from `start` in the first round to `end` in the last."""

    start: float
    end: float = 0.0

    def at(self, t: int, rounds: int) -> float:
        if 0 < rounds - 1 <= t:
            return self.end  # exactly: rounding must not leave an eps_t a little below 0
        return self.start + (self.end - self.start) * t / max(rounds - 1, 1)


@part(Schedule, "inverse")
@dataclass(frozen=True)
class Inverse:
    """`start / (1 + rate t)`: decay like 1/t.

    The learning rate of the papers' theory, `2 / (mu (t + gamma))`, is
    `Inverse(2 / (mu * gamma), 1 / gamma)`, with `Local(steps=E, lr=..., lr_counts="steps")`.

    >>> Inverse(2 / (0.5 * 8), 1 / 8).at(3, 10) == 2 / (0.5 * (3 + 8))
    True
    """

    start: float
    rate: float = 1.0

    def at(self, t: int, rounds: int) -> float:
        return self.start / (1.0 + self.rate * t)


@part(Schedule, "exponential")
@dataclass(frozen=True)
class Exponential:
    """Decay by the same factor every round, `start * factor^t`."""

    start: float
    factor: float = 0.98

    def at(self, t: int, rounds: int) -> float:
        return self.start * self.factor**t


def value_after(schedule: Schedule, start: int, t: int, rounds: int) -> float:
    """Return the value in round t of a schedule that begins in round `start` and decays from there.
    A schedule that names a round of the run (`of_run`) means that round."""
    if getattr(schedule, "of_run", False):
        return schedule.at(t, rounds)
    return schedule.at(max(t - start, 0), max(rounds - start, 1))


def as_schedule(value: Any, what: str) -> Schedule:
    """Return a schedule, constant for a number; its values must be >= 0 (inf is allowed)."""
    schedule = Constant(float(value)) if is_number(value) else value
    if not isinstance(schedule, Schedule):
        raise MusterError(f"{what}: {value!r}; give a number or a schedule such as Linear(0.2)")
    for t in (0, 1, 50, 99):
        v = schedule.at(t, 100)
        if math.isnan(v) or v < 0:
            when = "" if isinstance(schedule, Constant) else f" in round {t + 1} of 100"
            raise MusterError(f"{what}: {v}{when}; allowed: 0 and above")
    return schedule
