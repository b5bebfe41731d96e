"""The numbers of one way to take part in a federation for one client, and their JSON form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BINS = 10  # bins of a calibration curve


@dataclass(frozen=True)
class Outcomes:
    """Answers to held-out rows of two classes, counted over all seeds.

    Attributes:
        hits: rows of the second class with a probability from 0.5
        misses: other rows of the second class
        rejections: rows of the first class with a probability below 0.5
        alarms: other rows of the first class
        bins: for each bin of the probability: rows, sum of probabilities, rows of the second class
    """

    hits: int
    misses: int
    rejections: int
    alarms: int
    bins: tuple[tuple[int, float, int], ...]

    @property
    def sensitivity(self) -> float | None:
        """The share of rows of the second class that were found."""
        total = self.hits + self.misses
        return self.hits / total if total else None

    @property
    def specificity(self) -> float | None:
        """The share of rows of the first class that were recognised."""
        total = self.rejections + self.alarms
        return self.rejections / total if total else None

    def __add__(self, other: Outcomes) -> Outcomes:
        bins = tuple(
            (a + x, b + y, c + z)
            for (a, b, c), (x, y, z) in zip(self.bins, other.bins, strict=True)
        )
        return Outcomes(
            self.hits + other.hits,
            self.misses + other.misses,
            self.rejections + other.rejections,
            self.alarms + other.alarms,
            bins,
        )

    @property
    def table(self) -> dict[str, Any]:
        """The values as JSON."""
        curve = [[n, p / n, hits / n] for n, p, hits in self.bins if n]
        return {
            "sensitivity": self.sensitivity,
            "specificity": self.specificity,
            "counts": [self.hits, self.misses, self.rejections, self.alarms],
            "calibration": curve,
        }

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Outcomes:
        """Read the values from JSON."""
        bins = tuple((n, n * p, round(n * share)) for n, p, share in table["calibration"])
        hits, misses, rejections, alarms = (int(n) for n in table["counts"])
        return cls(hits, misses, rejections, alarms, bins)


@dataclass(frozen=True)
class WayContent:
    """The numbers of one way to take part, or of training alone, for one client.

    Attributes:
        gain: low, mean and high gain of held-out loss; None for alone
        clear: "gain" or "harm" where the interval excludes 0
        loss: mean held-out loss
        scores: mean held-out scores by name
        bytes_up: bytes that the client sends in a whole training
        bytes_down: bytes that it receives
        outcomes: answers of two classes
    """

    name: str
    loss: float
    scores: Mapping[str, float]
    gain: tuple[float, float, float] | None = None
    clear: str = ""
    bytes_up: float = 0.0
    bytes_down: float = 0.0
    outcomes: Outcomes | None = None

    @property
    def table(self) -> dict[str, Any]:
        """The values as JSON."""
        return {
            "loss": finite(self.loss),
            "scores": {name: finite(value) for name, value in self.scores.items()},
            **({} if self.gain is None else {"gain": [finite(v) for v in self.gain]}),
            **({"clear": self.clear} if self.clear else {}),
            "bytes_up": round(self.bytes_up),
            "bytes_down": round(self.bytes_down),
            **({} if self.outcomes is None else self.outcomes.table),
        }

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> WayContent:
        """Read the values from JSON."""
        return cls(
            name,
            as_float(table["loss"]),
            {score: as_float(value) for score, value in table["scores"].items()},
            read_gain(table["gain"]) if "gain" in table else None,
            str(table.get("clear", "")),
            float(table["bytes_up"]),
            float(table["bytes_down"]),
            Outcomes.from_table(table) if "counts" in table else None,
        )


def finite(value: float) -> float | None:
    """Return a number for JSON; None where it is not finite."""
    return float(value) if math.isfinite(value) else None


def as_float(value: Any) -> float:
    """Return a number of JSON; NaN where it has none."""
    return math.nan if value is None else float(value)


def as_whole(value: Any) -> int | None:
    """Return a whole number of JSON; None where it has none."""
    return None if value is None else int(value)


def read_gain(values: Any) -> tuple[float, float, float]:
    """Return the ends and the mean of a gain of JSON."""
    low, mean, high = (as_float(value) for value in values)
    return low, mean, high
