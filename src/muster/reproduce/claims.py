"""Claims: what a paper says, judged by matched runs.

A claim compares two sides, each a method, a measure and a place (panel, swept values, rounds). The
difference is taken seed by seed; a claim that one side is above the other holds in a cell where the
95 % interval of the difference lies above zero. Nothing here is decided by hand: the verdict
follows from the intervals alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..checks import one_of
from ..errors import MusterError, nearest
from ..lazy import pl
from ..report.intervals import Interval
from ..schema import Table

Relation = Literal["above", "below", "about", "not below"]
RELATIONS = ("above", "below", "about", "not below")
OWN = ("method", "minus", "measure", "rounds", "value")  # of a side; every other key is a place
EVERY = "*"  # as a method: each of the others


@dataclass(frozen=True)
class Claim:
    """What a paper says, in a form that runs can be held against.

    says      in our words
    where     where it stands in the paper
    left      a side: method, measure, rounds, and where in the sweep
    right     the other side; what it leaves out is as on the left, `value` is a plain number
    relation  what the left is claimed to be: above or below the right, about it or not below it,
              both by a margin
    panels    the panels it speaks of; empty: all
    """

    id: str
    says: str
    where: str
    left: Table
    right: Table
    relation: Relation = "above"
    margin: float = 0.0
    panels: tuple[str, ...] = ()

    @classmethod
    def of(cls, table: Table) -> Claim:
        """A claim as its file says it."""
        known = {"id", "says", "where", "left", "right", "is", "margin", "panels"}
        for key in table:
            if key not in known:
                raise MusterError(f"claims: unknown key '{key}'; {nearest(key, sorted(known))}")
        for key in ("id", "says", "where", "left", "right"):
            if key not in table:
                raise MusterError(f"claims: '{table.get('id', '?')}' has no {key}")
        one_of("claims: is", table.get("is", "above"), RELATIONS)
        left = dict(table["left"])
        for key in ("method", "measure"):
            if key not in left:
                raise MusterError(f"claims: '{table['id']}': left has no {key}")
        right = {**left, **table["right"]} if "value" not in table["right"] else table["right"]
        return cls(
            table["id"],
            table["says"],
            table["where"],
            left,
            right,
            table.get("is", "above"),
            float(table.get("margin", 0.0)),
            tuple(table.get("panels", ())),
        )


@dataclass(frozen=True)
class Finding:
    """A claim in one cell: both sides, their paired difference, and whether it bears it out.

    cell   the panel, the swept values and, of several, the method on the right
    each   the difference of each seed
    holds  True, False where the opposite is clear, None where the interval decides nothing
    """

    cell: dict[str, Any]
    left: Interval
    right: Interval
    gap: Interval
    each: tuple[float, ...]
    holds: bool | None

    @property
    def seeds(self) -> int:
        """How many pairs of runs."""
        return len(self.each)


@dataclass(frozen=True)
class Verdict:
    """What came of a claim.

    word      "holds", "holds when ...", "does not hold", "not run here"
    needs     what it would take to run what was not
    numbers   in words, where a study of the theory has no cells
    """

    id: str
    says: str
    where: str
    word: str
    findings: tuple[Finding, ...] = ()
    needs: str = ""
    numbers: str = ""


def judged(claim: Claim, frame: pl.DataFrame | None, keys: Sequence[str], needs: str) -> Verdict:
    """The verdict on a claim from an experiment's results: one row per panel, swept cell, method,
    seed and round. `keys` are the swept ones."""
    if frame is not None and claim.panels:
        frame = frame.filter(pl.col("panel").is_in(list(claim.panels)))
    if frame is None or frame.is_empty():
        return Verdict(claim.id, claim.says, claim.where, "not run here", needs=needs)
    found = findings(claim, frame, keys)
    if not found:
        return Verdict(claim.id, claim.says, claim.where, "not run here", needs=needs)
    return Verdict(claim.id, claim.says, claim.where, word_of(found), tuple(found))


def broken(check: Claim, frame: pl.DataFrame, keys: Sequence[str]) -> list[str]:
    """The cells in which some seed speaks against a check, in words; a check that found no cell to
    look at is broken too."""
    if check.panels:
        frame = frame.filter(pl.col("panel").is_in(list(check.panels)))
    found = findings(check, frame, keys)
    if not found:
        return [f"{check.says} (nothing to check it by)"]
    return [
        f"{check.says} ({said(f.cell, found) or 'here'}: {gap:+.4g})"
        for f in found
        for gap in f.each
        if not holds(Interval(gap, 0.0), check.relation, check.margin)
    ]


def findings(claim: Claim, frame: pl.DataFrame, keys: Sequence[str]) -> list[Finding]:
    """The claim in every cell of the results."""
    fixed = {k for side in (claim.left, claim.right) for k in side if k not in OWN}
    free = [k for k in ("panel", *keys) if k not in fixed]
    result = []
    others = [claim.right]
    if claim.right.get("method") == EVERY:
        every = frame["method"].unique(maintain_order=True).to_list()
        others = [{**claim.right, "method": m} for m in every if m != claim.left["method"]]
    cells = frame.select(free).unique(maintain_order=True).to_dicts() if free else [{}]
    for cell in cells:
        # What a panel does not sweep is null there, and no difference between its rows.
        here = frame.filter(
            *(pl.col(k).is_null() if v is None else pl.col(k) == v for k, v in cell.items())
        )
        left = values(here, claim.left)
        for other in others:
            right = values(here, other)
            both = sorted(left) if "value" in other else sorted(set(left) & set(right))
            if not both:
                continue
            a = np.array([left[s] for s in both])
            b = np.array([right.get(s, other.get("value", np.nan)) for s in both])
            called = {k: v for k, v in cell.items() if v is not None}
            if len(others) > 1:
                called["against"] = other["method"]
            gap = Interval.of(a - b)
            result.append(
                Finding(
                    called,
                    Interval.of(a),
                    Interval.of(b),
                    gap,
                    tuple((a - b).tolist()),
                    holds(gap, claim.relation, claim.margin),
                )
            )
    return result


def values(frame: pl.DataFrame, side: Mapping[str, Any]) -> dict[int, float]:
    """A side's value for each seed: its measure after the last of its rounds, or the mean over a
    range of rounds `[first, last]`; less that of another method where it says `minus`."""
    if "value" in side:
        return {}
    place = [pl.col(k) == v for k, v in side.items() if k not in OWN]
    here = frame.filter(*place)
    mine = over_rounds(here.filter(pl.col("method") == side["method"]), side)
    if "minus" not in side:
        return mine
    less = over_rounds(here.filter(pl.col("method") == side["minus"]), side)
    return {seed: mine[seed] - less[seed] for seed in mine.keys() & less.keys()}


def over_rounds(frame: pl.DataFrame, side: Mapping[str, Any]) -> dict[int, float]:
    """Seed by seed, one number from the rounds a side speaks of."""
    measure, rounds = side["measure"], side.get("rounds")
    if measure not in frame.columns:
        return {}
    taken = frame.filter(pl.col(measure).is_not_null()).sort("round")
    if isinstance(rounds, list):
        span = taken.filter(pl.col("round").is_between(rounds[0], rounds[1]))
        each = span.group_by("seed").agg(pl.col(measure).mean())
    else:
        until = taken if rounds is None else taken.filter(pl.col("round") <= rounds)
        each = until.group_by("seed", maintain_order=True).agg(pl.col(measure).last())
    return {int(s): float(v) for s, v in each.iter_rows() if np.isfinite(v)}


def holds(gap: Interval, relation: Relation, margin: float = 0.0) -> bool | None:
    """Whether an interval bears a relation out, speaks against it, or decides nothing.

    >>> holds(Interval(0.2, 0.1), "above"), holds(Interval(0.2, 0.3), "above")
    (True, None)
    """
    low, high = gap.mean - gap.half, gap.mean + gap.half
    yes, no = {
        "above": (low > margin, high < margin),
        "below": (high < -margin, low > -margin),
        "not below": (low > -margin, high < -margin),
        "about": (-margin < low and high < margin, high < -margin or low > margin),
    }[relation]
    return True if yes else False if no else None


def word_of(found: Sequence[Finding]) -> str:
    """The verdict in words, from the findings of all cells."""
    yes = [f for f in found if f.holds]
    if len(yes) == len(found):
        return "holds"
    if yes:
        return "holds when " + "; ".join(said(f.cell, found) for f in yes)
    if any(f.holds is False for f in found):
        against = sum(f.holds is False for f in found)
        every = "" if against == len(found) else f" in {against} of {len(found)} cells"
        return f"does not hold: the opposite is clear{every}"
    return "does not hold: no clear difference"


def said(cell: Mapping[str, Any], among: Sequence[Finding]) -> str:
    """A cell in words, without what all cells have in common."""
    differ = [k for k in cell if len({str(f.cell.get(k)) for f in among}) > 1]
    return ", ".join(
        str(cell[k]) if k == "panel" else f"{k.rpartition('.')[2]} {cell[k]}" for k in differ
    )
