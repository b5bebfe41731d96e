"""One statement of a paper with what was found about it."""

from __future__ import annotations

import math
from typing import TypedDict

from ...report.intervals import Interval

HOLDS, FAILS = "holds", "does not hold"


class Verdict(TypedDict):
    """One statement: in our words, where it stands, what was found, and what follows."""

    id: str
    says: str
    where: str
    numbers: str
    verdict: str


def half(interval: Interval) -> float:
    """The half-width of an interval; of a single run nothing is known but itself."""
    return 0.0 if math.isnan(interval.half) else interval.half


def stated(id: str, says: str, where: str, numbers: str, verdict: str | bool) -> Verdict:
    """A statement, its verdict in words."""
    if not isinstance(verdict, str):
        verdict = HOLDS if verdict else FAILS
    return {"id": id, "says": says, "where": where, "numbers": numbers, "verdict": verdict}
