"""Statements of a paper with their verdicts, and how a verdict over several places is worded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypedDict, TypeVar

import numpy as np

from ...base.arrays import Float64
from ...base.errors import MusterError, unknown_name
from ...base.lazy import pl
from ...report.intervals import Interval

Found = TypeVar("Found")

HOLDS, FAILS = "holds", "does not hold"


class Statement(TypedDict):
    """A statement in our words, its place in the paper, the numbers found, and the verdict."""

    id: str
    says: str
    where: str
    numbers: str
    verdict: str


def find_by_study(known: Mapping[str, Found], frame: pl.DataFrame, what: str) -> Found:
    """Return the entry for the study that a frame is of; `what` needs it, in errors."""
    if "study" not in frame.columns or frame["study"].n_unique() != 1:
        raise MusterError(f"{what}: give the frame of one study of muster.papers.theory.study")
    name = frame["study"][0]
    if name not in known:
        raise unknown_name("study", name, known)
    return known[name]


def half_width(interval: Interval) -> float:
    """Return the half-width of an interval, 0 for a single run."""
    return 0.0 if math.isnan(interval.half) else interval.half


def make_statement(id: str, says: str, where: str, numbers: str, verdict: str | bool) -> Statement:
    """Build a statement with its verdict in words."""
    if not isinstance(verdict, str):
        verdict = HOLDS if verdict else FAILS
    return {"id": id, "says": says, "where": where, "numbers": numbers, "verdict": verdict}


def find_signs(gaps: dict[str, tuple[float, Float64]], among: int) -> dict[str, int]:
    """Return -1 where the difference is clearly below 0, 1 where it is clearly above, else 0; the
    intervals are wide enough to hold together for this many places."""
    intervals = {place: Interval.of(gap, among) for place, (_, gap) in gaps.items()}
    return {
        place: int(np.sign(gap.mean)) if abs(gap.mean) > half_width(gap) else 0
        for place, gap in intervals.items()
    }


def judge_places(alone: dict[str, int], together: dict[str, int]) -> str:
    """Return a verdict from the sign at each place, negative where the statement holds: `alone` by
    each place's own interval, `together` after the correction for all of them.

    >>> judge_places({"a": -1, "b": 1, "c": 0}, {"a": -1, "b": 1, "c": 0})
    'holds when a, the opposite is clear when b'
    """
    if all(s < 0 for s in alone.values()):
        return HOLDS
    if all(s > 0 for s in alone.values()):
        return "does not hold: the opposite is clear"
    yes, no = ([p for p, s in together.items() if s == wanted] for wanted in (-1, 1))
    if yes:
        against = f", the opposite is clear when {'; '.join(no)}" if no else ""
        return f"holds when {'; '.join(yes)}{against}"
    if no:
        return f"does not hold: the opposite is clear in {len(no)} of {len(together)} places"
    return "undecided: no clear difference"
