"""Numbers that change over rounds: eps_t, and any other number a method takes.

A schedule is a frozen part with one method, `at(t, rounds)`, for round t = 0 .. rounds - 1.
Wherever a schedule is allowed, a plain number is too (`as_schedule`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from .errors import MusterError


@runtime_checkable
class Schedule(Protocol):
    """A number for each round."""

    def at(self, t: int, rounds: int) -> float:
        """The value in round t of `rounds`, counted from 0."""
        ...


Count = int | float  # whole numbers count rounds, floats are fractions of all rounds


def count(value: Count, rounds: int, what: str) -> int:
    """A number of rounds, given as an int (rounds) or as a float (fraction of all rounds).

    >>> count(20, 200, "warmup"), count(0.1, 200, "warmup")
    (20, 20)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise MusterError(f"{what}: {value!r}; give a whole number of rounds or a fraction 0.0-1.0")
    if isinstance(value, int):
        if value < 0:
            raise MusterError(f"{what}: {value}; a number of rounds cannot be negative")
        return min(value, rounds)
    if not 0.0 <= value <= 1.0:
        raise MusterError(f"{what}: {value}; a fraction of rounds lies between 0.0 and 1.0")
    return round(value * rounds)


@dataclass(frozen=True)
class Constant:
    """The same number every round."""

    value: float

    def at(self, t: int, rounds: int) -> float:
        return self.value


@dataclass(frozen=True)
class StepTo:
    """`start` until round `at_round`, then `end` (0 included): the paper's "eventually 0"."""

    start: float
    end: float = 0.0
    at_round: Count = 0.5

    def at(self, t: int, rounds: int) -> float:
        return self.start if t < count(self.at_round, rounds, "at_round") else self.end


@dataclass(frozen=True)
class Linear:
    """A straight line from `start` in the first round to `end` in the last."""

    start: float
    end: float = 0.0

    def at(self, t: int, rounds: int) -> float:
        return self.start + (self.end - self.start) * t / max(rounds - 1, 1)


@dataclass(frozen=True)
class Inverse:
    """`start / (1 + rate t)`: decay like 1/t."""

    start: float
    rate: float = 1.0

    def at(self, t: int, rounds: int) -> float:
        return self.start / (1.0 + self.rate * t)


@dataclass(frozen=True)
class Exponential:
    """`start * factor^t`."""

    start: float
    factor: float = 0.98

    def at(self, t: int, rounds: int) -> float:
        return self.start * self.factor**t


def as_schedule(value: float | Schedule, what: str, least: float = 0.0) -> Schedule:
    """A number becomes a constant schedule; its numbers must be >= least (inf is allowed)."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = Constant(float(value))
    if not isinstance(value, Schedule):
        raise MusterError(f"{what}: {value!r}; give a number or a schedule such as Linear(0.2)")
    for t in (0, 1, 50, 99):
        v = value.at(t, 100)
        if math.isnan(v) or v < least:
            raise MusterError(f"{what}: {v} in round {t + 1} of 100; allowed: {least:g} and above")
    return value


SCHEDULES: dict[str, type] = {
    "constant": Constant,
    "step": StepTo,
    "linear": Linear,
    "inverse": Inverse,
    "exponential": Exponential,
}
