"""Claims: what a paper says, judged by matched runs.

A claim compares two sides, each a method, a measure and a place (panel, swept values, rounds). The
difference is taken seed by seed; a claim that one side is above the other holds in a cell where the
95 % interval of the difference lies above zero. Nothing here is decided by hand: the verdict
follows from the intervals alone.

A claim of several cells holds where it holds in each of them: to be wrong about that, one must be
wrong about the cell that is worst for it, so no correction is due. Picking out some cells is
another matter: those that a verdict names stand up to Holm's correction over the claim's cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np

from ..arrays import Float64
from ..checks import one_of
from ..errors import MusterError, nearest
from ..lazy import pl
from ..report.intervals import Interval
from ..schema import Table

Relation = Literal["above", "below", "about", "not below"]
RELATIONS = ("above", "below", "about", "not below")
OWN = ("method", "minus", "measure", "rounds", "value")  # of a side; every other key is a place
EVERY = "*"  # as a method: each of the others
NOT_RUN = "not run here"


@dataclass(frozen=True)
class Claim:
    """What a paper says, in a form that runs can be held against.

    says      in our words
    where     where it stands in the paper
    left      a side: method, measure, rounds, and where in the sweep. `rounds` is a round, a range
              of them `[21, 60]`, or a range as shares of the run `[0.0, 0.5]`; a list of values of
              a place is a cell for each
    right     the other side; what it leaves out is as on the left, `value` is a plain number. A
              list of methods, or "*" for all others, is a cell for each
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
    def of(cls, table: Table, panels: Sequence[str] = ()) -> Claim:
        """A claim as its file says it; without panels of its own it speaks of these, unless a side
        names one."""
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
        for side in (left, right):
            check_rounds(side.get("rounds"), table["id"])
        named = "panel" in left or "panel" in right
        return cls(
            table["id"],
            table["says"],
            table["where"],
            left,
            right,
            table.get("is", "above"),
            float(table.get("margin", 0.0)),
            tuple(table.get("panels", () if named else panels)),
        )

    def spoken_of(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The results it speaks of."""
        if not self.panels or not frame.width:
            return frame
        return frame.filter(pl.col("panel").is_in(list(self.panels)))


def check_rounds(rounds: Any, id: str) -> None:
    """A round, a range of rounds, or a range of shares of the run."""
    kinds = {type(r) for r in rounds} if isinstance(rounds, list) and len(rounds) == 2 else set()
    if not (rounds is None or type(rounds) is int or kinds in ({int}, {float})):
        raise MusterError(
            f"claims: '{id}': rounds = {rounds}; give a round, a range [21, 60], or shares of the "
            "run [0.0, 0.5]"
        )


@dataclass(frozen=True)
class Finding:
    """A claim in one cell: both sides, their paired difference, and whether it bears it out.

    cell      the panel, the swept values and, of several, the method on the right
    measure   what is compared
    each      the difference of each seed that did not diverge
    holds     True, False where the opposite is clear, None where nothing is
    sure      whether that stands up to Holm's correction over the claim's cells
    diverged  seeds that came to no number on either side; one is enough to decide nothing
    """

    cell: dict[str, Any]
    measure: str
    left: Interval
    right: Interval
    gap: Interval
    each: tuple[float, ...]
    holds: bool | None
    sure: bool = False
    diverged: int = 0

    @property
    def seeds(self) -> int:
        """How many pairs of runs."""
        return len(self.each) + self.diverged

    @property
    def identical(self) -> bool:
        """Whether the runs of both sides came to the same numbers."""
        return bool(self.each) and not self.diverged and not any(self.each)


@dataclass(frozen=True)
class Verdict:
    """What came of a claim.

    word      "holds", "holds when ...", "does not hold ...", "undecided ...", "not run here"
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
    found = [] if frame is None else findings(claim, claim.spoken_of(frame), keys)
    if not found:
        return Verdict(claim.id, claim.says, claim.where, NOT_RUN, needs=needs)
    there = {f.cell.get("panel") for f in found}
    absent = [panel for panel in claim.panels if panel not in there]
    word = word_of(found, claim.relation)
    if absent:
        ran = ", ".join(panel for panel in claim.panels if panel in there)
        on = f"holds on {ran}" if word == "holds" else word
        word = f"{on}; {', '.join(absent)} not run"
    return Verdict(claim.id, claim.says, claim.where, word, tuple(found))


def broken(check: Claim, frame: pl.DataFrame, keys: Sequence[str]) -> list[str]:
    """The cells in which some seed speaks against a check, in words; a check that found no cell to
    look at is broken too, and so is one whose runs diverged."""
    found = findings(check, check.spoken_of(frame), keys)
    if not found:
        return [f"{check.says} (nothing to check it by)"]
    lost = [
        f"{check.says} ({said(f.cell, found) or 'here'}: {seeds_lost(f)})"
        for f in found
        if f.diverged
    ]
    return lost + [
        f"{check.says} ({said(f.cell, found) or 'here'}: {gap:+.4g})"
        for f in found
        for gap in f.each
        if not holds(Interval(gap, 0.0), check.relation, check.margin)
    ]


def findings(claim: Claim, frame: pl.DataFrame, keys: Sequence[str]) -> list[Finding]:
    """The claim in every cell of the results."""
    if frame.is_empty():
        return []
    fixed = {k for side in (claim.left, claim.right) for k in side if k not in OWN}
    free = [k for k in ("panel", *keys) if k not in fixed]
    methods = frame["method"].unique(maintain_order=True).to_list()
    result = []
    for cell in frame.select(free).unique(maintain_order=True).to_dicts() if free else [{}]:
        # What a panel does not sweep is null there, and no difference between its rows.
        here = frame.filter(
            *(pl.col(k).is_null() if v is None else pl.col(k) == v for k, v in cell.items())
        )
        for left, right, called in sides(claim, methods):
            a, b = values(here, left), values(here, right)
            both = sorted(a) if "value" in right else sorted(a.keys() & b.keys())
            if both:
                pairs = np.array([(a[s], b.get(s, right.get("value", np.nan))) for s in both])
                told = {k: v for k, v in cell.items() if v is not None} | called
                result.append(finding(told, pairs, claim))
    kept = surely(result, claim, True) | surely(result, claim, False)
    return [replace(f, sure=i in kept) for i, f in enumerate(result)]


def sides(claim: Claim, methods: Sequence[str]) -> Iterator[tuple[Table, Table, dict[str, Any]]]:
    """The two sides with one method and one value of each place, and what tells them apart from
    the claim's other pairs. A list that both sides share goes through both together."""
    shared = [k for k in claim.left if k not in OWN and claim.left[k] == claim.right.get(k)]
    others = [m for m in methods if m != claim.left["method"]]
    for left in spread(claim.left, others):
        for right in spread(claim.right, others):
            if any(left[k] != right[k] for k in shared):
                continue
            called = {k: left[k] for k, v in claim.left.items() if k not in OWN and listed(v)}
            for k, v in claim.right.items():
                if k == "method" and (listed(v) or v == EVERY):
                    called["against"] = right[k]
                elif k not in OWN and k not in shared and listed(v):
                    called["against"] = f"{k.rpartition('.')[2]} {right[k]}"
            yield left, right, called


def spread(side: Table, others: Sequence[str]) -> Iterator[Table]:
    """A side for each method and value of a place that it lists."""
    ways = {
        k: others if k == "method" and v == EVERY else v if listed(v) and k != "rounds" else [v]
        for k, v in side.items()
    }
    for chosen in product(*ways.values()):
        yield dict(zip(ways, chosen, strict=True))


def listed(value: Any) -> bool:
    """Whether several values are named."""
    return isinstance(value, list)


def finding(cell: dict[str, Any], pairs: Float64, claim: Claim) -> Finding:
    """What both sides' values for each seed, an array (seeds, 2), say in one cell."""
    sound = pairs[np.isfinite(pairs).all(axis=1)]
    gaps = sound[:, 0] - sound[:, 1]
    a, b, gap = (Interval.of(x) if len(x) else Interval(np.nan, np.nan) for x in (*sound.T, gaps))
    lost = len(pairs) - len(sound)
    decided = None if lost else holds(gap, claim.relation, claim.margin)
    measure = claim.left["measure"]
    return Finding(cell, measure, a, b, gap, tuple(gaps.tolist()), decided, diverged=lost)


def surely(found: Sequence[Finding], claim: Claim, answer: bool) -> set[int]:
    """The cells whose answer stands up to Holm's correction (1979): the clearest at the level of
    one cell of all, the next at that of one of the rest, and so on. Identical runs are no test:
    nothing is left to chance in them."""
    kept: set[int] = set()
    tests = sum(not f.identical for f in found)
    while True:
        rest = max(1, tests - len(kept))
        more = {
            i
            for i, f in enumerate(found)
            if i not in kept
            and f.holds is answer
            and holds(Interval.of(f.each, among=rest), claim.relation, claim.margin) is answer
        }
        if not more:
            return kept
        kept |= more


def values(frame: pl.DataFrame, side: Mapping[str, Any]) -> dict[int, float]:
    """A side's value for each seed, as `over_rounds`; less that of another method where it says
    `minus`."""
    if "value" in side:
        return {}
    here = frame.filter(*(pl.col(k) == v for k, v in side.items() if k not in OWN))
    mine = over_rounds(here.filter(pl.col("method") == side["method"]), side)
    if "minus" not in side:
        return mine
    less = over_rounds(here.filter(pl.col("method") == side["minus"]), side)
    return {seed: mine[seed] - less[seed] for seed in mine.keys() & less.keys()}


def over_rounds(frame: pl.DataFrame, side: Mapping[str, Any]) -> dict[int, float]:
    """Seed by seed, one number from the rounds a side speaks of: its measure after the last round,
    after a round, or the mean over a range. NaN of a seed that has no number in one of them."""
    measure = side["measure"]
    if measure not in frame.columns or frame[measure].is_null().all():
        return {}
    rows = frame.select("seed", "round", measure).iter_rows()
    known = {(s, r): v for s, r, v in rows if v is not None}
    last = int(frame["round"].to_numpy().max())
    rounds = within(side.get("rounds"), {r for _, r in known} | {last}, last)
    each = {
        int(s): [known.get((s, r), np.nan) for r in rounds] for s in frame["seed"].unique().sort()
    }
    return {s: float(np.mean(v)) for s, v in each.items() if v}


def within(rounds: Any, measured: set[int], last: int) -> list[int]:
    """Of the measured rounds those that a side speaks of.

    >>> within([0.0, 0.5], {5, 10, 20}, 20), within([5, 10], {5, 10, 20}, 20)
    ([5, 10], [5, 10])
    """
    if rounds is None:
        return [last]
    if not isinstance(rounds, list):
        return [r for r in measured if r == rounds]
    low, high = rounds
    if isinstance(low, float):
        return sorted(r for r in measured if low * last < r <= high * last)
    return sorted(r for r in measured if low <= r <= high)


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


def word_of(found: Sequence[Finding], relation: Relation) -> str:
    """The verdict in words, from the findings of all cells."""
    if all(f.holds for f in found):
        return "holds"
    if all(f.holds is False for f in found):
        return "does not hold: the opposite is clear"

    def where(some: Sequence[Finding], what: str) -> list[str]:
        return [f"{what} when " + "; ".join(said(f.cell, found) for f in some)] if some else []

    yes = [f for f in found if f.holds and f.sure]
    no = [f for f in found if f.holds is False and f.sure]
    same = [f for f in found if f.identical and f.holds is None]
    rest = [*where(no, "the opposite is clear"), *where(same, "the runs are identical")]
    if yes:
        return ", ".join([*where(yes, "holds"), *rest])
    if len(same) == len(found):
        return "does not hold: the runs are identical"
    if no:
        return "does not hold: " + ", ".join(rest)
    lost = sum(f.diverged for f in found)
    if lost:
        return f"undecided: {lost} of {sum(f.seeds for f in found)} seeds diverged"
    unclear = "undecided: no clear difference"
    return unclear if relation in ("above", "below") else "undecided"


def seeds_lost(finding: Finding) -> str:
    """How many seeds came to no number."""
    return f"{finding.diverged} of {finding.seeds} seeds diverged"


def said(cell: Mapping[str, Any], among: Sequence[Finding]) -> str:
    """A cell in words, without what all cells have in common."""
    differ = [k for k in cell if len({str(f.cell.get(k)) for f in among}) > 1]
    return ", ".join(
        str(cell[k]) if k == "panel" else f"{k.rpartition('.')[2]} {cell[k]}" for k in differ
    )
