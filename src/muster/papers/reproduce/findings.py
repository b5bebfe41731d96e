"""Findings: what matched runs say of a claim, cell by cell.

The difference between both sides is taken seed by seed; a claim that one side is above the other
holds in a cell where the 95 % interval of the difference lies above zero. Nothing here is decided
by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np

from ...base.arrays import Float64
from ...base.lazy import pl
from ...base.schema import Table
from ...report.intervals import Interval, correction_ratio, read_variation
from ...results.measures import MEASURES
from .claims import Claim, Relation, within

OWN = ("method", "minus", "measure", "rounds", "value", "with")  # every other key is a place
EVERY = "*"  # as a method: each of the others
NOT_SWEPT = "none"  # as a value of a swept key: where a panel does not sweep it
Answer = Literal[
    "holds", "opposite", "less", "lower", "different", "equal", "diverged", "undecided", "no test"
]


@dataclass(frozen=True)
class Finding:
    """A claim in one cell: both sides, their paired difference, and whether it bears it out.

    Attributes:
        cell: the panel, the swept values and, of several, the method on the right
        measure: what is compared
        names: what the two sides are
        each: the difference of each seed that did not diverge
        holds: True, False where the opposite is clear, None where nothing is
        answer: the same in a word: where it is False, whether the difference is the other way round
            ("opposite"), smaller than a margin that is claimed ("less"), or greater than one that
            is allowed ("lower", "different"); where it is None, why ("no test": both sides were one
            and the same run, which speaks neither for a difference nor against it)
        sure: whether that stands up to Holm's correction over the claim's cells
        diverged: seeds that came to no number on either side; one is enough to decide nothing

    took_part who took part on both sides, in words; empty where that is not known

    Attributes:
        why: of a cell that is no test, why both sides were the same run
        ratio: what its intervals are widened by, where seeds split the same rows again
    """

    cell: dict[str, Any]
    measure: str
    names: tuple[str, str]
    left: Interval
    right: Interval
    gap: Interval
    each: tuple[float, ...]
    holds: bool | None
    answer: Answer
    sure: bool = False
    diverged: int = 0
    took_part: str = ""
    why: str = ""
    ratio: float = 0.0

    @property
    def seeds(self) -> int:
        """How many pairs of runs."""
        return len(self.each) + self.diverged


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
                rows = pl.concat(sides_rows(here, left, right))
                ratio = correction_ratio(read_variation(rows), MEASURES[claim.left["measure"]])
                found = finding(told, pairs, claim, names_of(left, right), ratio)
                found = replace(found, took_part=took_part(here, left, right))
                if claim.relation in ("above", "below") and one_run(here, left, right):
                    found = replace(found, holds=None, answer="no test", why=why_one(here, left))
                result.append(found)
    kept = surely(result, claim, True) | surely(result, claim, False)
    return [replace(f, sure=i in kept) for i, f in enumerate(result)]


def sides(claim: Claim, methods: Sequence[str]) -> Iterator[tuple[Table, Table, dict[str, Any]]]:
    """The two sides with one method and one value of each place, and what tells them apart from
    the claim's other pairs. A list that both sides share goes through both together."""
    shared = [k for k in claim.left if k not in OWN and claim.left[k] == claim.right.get(k)]
    others = [m for m in methods if m != claim.left.get("method")]
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


def names_of(left: Table, right: Table) -> tuple[str, str]:
    """What two sides are: their methods, and what else they differ in.

    >>> names_of({"method": "A", "measure": "loss", "k.x": 1}, {"method": "A", "k.x": 2})
    ('A, x 1', 'A, x 2')
    """
    differ = [
        k
        for k in dict.fromkeys((*left, *right))
        if k not in ("method", "minus", "measure", "value", "with") and left.get(k) != right.get(k)
    ]

    def name(side: Table) -> str:
        if "value" in side:
            return ""
        less = f" less {side['minus']}" if "minus" in side else ""
        who = "correlation over methods" if "with" in side else f"{side['method']}{less}"
        if left["measure"] != right.get("measure", left["measure"]):
            who += f", {side['measure'].replace('_', ' ')}"
        return ", ".join([who, *(place(k, side[k]) for k in differ if k in side)])

    return name(left), name(right)


def place(key: str, value: Any) -> str:
    """A place of a claim in words: a panel by its name, anything else by the key's last word.

    >>> place("panel", "fmnist"), place("requirement.steps", 10), place("rounds", [0.1, 0.3])
    ('fmnist', 'steps 10', 'rounds 0.1 to 0.3')
    """
    if key == "panel":
        return str(value)
    word = "round" if key == "rounds" and not listed(value) else key.rpartition(".")[2]
    return f"{word} {' to '.join(map(str, value)) if listed(value) else value}"


def finding(
    cell: dict[str, Any],
    pairs: Float64,
    claim: Claim,
    names: tuple[str, str],
    ratio: float = 0.0,
) -> Finding:
    """What both sides' values for each seed, an array (seeds, 2), say in one cell."""
    sound = pairs[np.isfinite(pairs).all(axis=1)]
    gaps = sound[:, 0] - sound[:, 1]
    a, b, gap = (
        Interval.of(x, ratio=ratio) if len(x) else Interval(np.nan, np.nan)
        for x in (*sound.T, gaps)
    )
    lost = len(pairs) - len(sound)
    decided = None if lost else holds(gap, claim.relation, claim.margin)
    said = answer(decided, gap, claim.relation)
    if decided is None:
        said = "diverged" if lost else "undecided" if gaps.any() else "equal"
    measure = claim.left["measure"]
    return Finding(
        cell, measure, names, a, b, gap, tuple(gaps.tolist()), decided, said, diverged=lost,
        ratio=ratio,
    )  # fmt: skip


def answer(decided: bool | None, gap: Interval, relation: Relation) -> Answer:
    """What a cell came to, in a word."""
    if decided is not False:
        return "holds" if decided else "undecided"
    if relation in ("about", "not below"):
        return "different" if relation == "about" else "lower"
    reversed_ = gap.mean < 0 if relation == "above" else gap.mean > 0
    return "opposite" if reversed_ and gap.excludes_zero else "less"


def one_run(frame: pl.DataFrame, left: Table, right: Table) -> bool:
    """True where both sides were the same run in every seed: every measure of their
    models is the same in every round. Then a difference between them was never put to the test.
    Sides that speak of other rounds or measures, of what rounds count, or of several methods, are
    no such pair."""
    if any(key in side for key in ("value", "with", "minus") for side in (left, right)):
        return False
    if MEASURES[left["measure"]].of is None or any(
        left.get(key) != right.get(key) for key in ("measure", "rounds")
    ):
        return False
    measures = [c for c in frame.columns if c in MEASURES and MEASURES[c].of is not None]
    a, b = (
        matching(frame, side).select("seed", "round", *measures).sort("seed", "round")
        for side in (left, right)
    )
    return not a.is_empty() and a.equals(b)


def why_one(frame: pl.DataFrame, left: Table) -> str:
    """Why two sides were the same run, as far as is known."""
    admitted = mean_of(matching(frame, left), "admitted_nonpriority")
    return "nobody was admitted" if admitted == 0 else "both were one and the same run"


def took_part(frame: pl.DataFrame, left: Table, right: Table) -> str:
    """Who took part on both sides: how many of the others were admitted, on average over the rounds
    that are kept, and in how many runs everybody had left at the end. Nothing is said of nobody."""
    if "with" in left:
        return ""
    sides = sides_rows(frame, left, right)
    admitted = [mean_of(rows, "admitted_nonpriority") for rows in sides]
    deserted = [empty_at_end(rows) for rows in sides]
    said = []
    if None not in admitted and any(admitted):
        said.append(f"others admitted {' / '.join(f'{n:.1f}' for n in admitted)}")
    if None not in deserted and any(deserted):
        said.append(f"everybody left in {' / '.join(map(str, deserted))} runs")
    return "; ".join(said)


def sides_rows(frame: pl.DataFrame, left: Table, right: Table) -> list[pl.DataFrame]:
    """The rows of both sides, or of the one that is no plain number; of a correlation over all
    methods, all rows."""
    if "with" in left:
        return [frame]
    return [matching(frame, side) for side in (left, right) if "value" not in side]


def mean_of(rows: pl.DataFrame, measure: str) -> float | None:
    """A measure's mean over all rows; None where it was not kept."""
    taken = rows[measure].drop_nulls() if measure in rows.columns else pl.Series([])
    return float(taken.to_numpy().mean()) if len(taken) else None


def empty_at_end(rows: pl.DataFrame) -> int | None:
    """In how many runs nobody was left in the pool at the end; None where that was not kept."""
    if "pool" not in rows.columns or rows.is_empty():
        return None
    last = rows.filter(pl.col("round") == rows["round"].max())["pool"]
    return None if last.is_null().all() else int((last == 0).sum())


def surely(found: Sequence[Finding], claim: Claim, answer: bool) -> set[int]:
    """The cells whose answer stands up to Holm's correction (1979): the clearest at the level of
    one cell of all, the next at that of one of the rest, and so on. Equal numbers are no test, and
    cells of the same differences are one."""
    kept: set[int] = set()
    while True:
        tests = {f.each for f in found if f.answer not in ("equal", "no test")}
        rest = max(1, len(tests - {found[i].each for i in kept}))
        more = {
            i
            for i, f in enumerate(found)
            if i not in kept
            and f.holds is answer
            and holds(Interval.of(f.each, rest, f.ratio), claim.relation, claim.margin) is answer
        }
        if not more:
            return kept
        kept |= more


def values(frame: pl.DataFrame, side: Mapping[str, Any]) -> dict[int, float]:
    """A side's value for each seed, as `over_rounds`; less that of another method where it says
    `minus`."""
    if "value" in side:
        return {}
    if "with" in side:
        return correlations(frame, side)
    mine = over_rounds(matching(frame, side), side)
    if "minus" not in side:
        return mine
    less = over_rounds(matching(frame, {**side, "method": side["minus"]}), side)
    return {seed: mine[seed] - less[seed] for seed in mine.keys() & less.keys()}


def correlations(frame: pl.DataFrame, side: Mapping[str, Any]) -> dict[int, float]:
    """Seed by seed, the correlation (Pearson's) of two measures over the methods."""
    methods = frame["method"].unique(maintain_order=True).to_list()
    plain = {key: value for key, value in side.items() if key != "with"}
    first, second = (
        [values(frame, {**plain, "method": m, "measure": measure}) for m in methods]
        for measure in (side["measure"], side["with"])
    )
    seeds = set.intersection(*(set(one) for one in (*first, *second)))
    return {
        s: float(np.corrcoef([one[s] for one in first], [one[s] for one in second])[0, 1])
        for s in sorted(seeds)
    }


def matching(frame: pl.DataFrame, side: Mapping[str, Any]) -> pl.DataFrame:
    """The rows of a side: its method's, at its place. A key that no panel sweeps has no column."""
    place = {k: v for k, v in side.items() if k not in OWN}
    frame = frame.with_columns(pl.lit(None).alias(k) for k in place if k not in frame.columns)
    at = (pl.col(k).is_null() if v == NOT_SWEPT else pl.col(k) == v for k, v in place.items())
    return frame.filter(*at, pl.col("method") == side["method"])


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
