"""Findings: a claim compared with matched runs, cell by cell.

The difference between both sides is taken seed by seed; a claim that one side is above the other
holds in a cell if the 95 % interval of the difference lies above zero. Nothing here is decided by
hand.
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
from .paper_experiment import PaperClaim, Relation, select_rounds

OWN = ("method", "minus", "measure", "rounds", "value", "with")  # every other key is a place
EVERY = "*"  # as a method: each of the others
NOT_SWEPT = "none"  # as a value of a swept key: where a panel does not sweep it
LEAST = 2  # seeds with different runs that a test needs
Answer = Literal[
    "holds", "opposite", "less", "lower", "different", "equal", "diverged", "undecided", "no test"
]


@dataclass(frozen=True)
class Finding:
    """A claim in one cell: both sides, their paired difference, and the outcome.

    Attributes:
        cell: the panel, the swept values and, if there are several, the method on the right
        measure: the measure compared
        names: the names of the two sides
        each: the difference of each seed that did not diverge
        holds: True, False where the opposite is clear, None where nothing is
        answer: the same in a word: if False, the difference is the other way round ("opposite"),
            smaller than a claimed margin ("less"), or greater than an allowed one ("lower",
            "different"); if None, the reason ("no test": both sides were the same run in all seeds
            but one or none, which is evidence neither for a difference nor against it)
        sure: True if the answer passes Holm's correction over the claim's cells
        diverged: seeds that diverged on either side; one is enough to decide nothing
        participation: who took part on both sides; empty where that is not known
        why: for a cell that is no test, why both sides were the same run
        ratio: widens its intervals where seeds split the same rows again
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
    participation: str = ""
    why: str = ""
    ratio: float = 0.0

    @property
    def seeds(self) -> int:
        """The number of pairs of runs."""
        return len(self.each) + self.diverged


def compute_findings(claim: PaperClaim, frame: pl.DataFrame, keys: Sequence[str]) -> list[Finding]:
    """Compare the two sides of a claim in every cell of the results."""
    if frame.is_empty():
        return []
    fixed = {k for side in (claim.left, claim.right) for k in side if k not in OWN}
    free = [k for k in ("panel", *keys) if k not in fixed]
    methods = frame["method"].unique(maintain_order=True).to_list()
    result = []
    for cell in frame.select(free).unique(maintain_order=True).to_dicts() if free else [{}]:
        # A key that a panel does not sweep is null there, and its rows do not differ by it.
        here = frame.filter(
            *(pl.col(k).is_null() if v is None else pl.col(k) == v for k, v in cell.items())
        )
        for left, right, called in pair_sides(claim, methods):
            a, b = side_values(here, left), side_values(here, right)
            both = sorted(a) if "value" in right else sorted(a.keys() & b.keys())
            if both:
                pairs = np.array([(a[s], b.get(s, right.get("value", np.nan))) for s in both])
                here_cell = {k: v for k, v in cell.items() if v is not None} | called
                rows = pl.concat(select_rows(here, left, right))
                ratio = correction_ratio(read_variation(rows), MEASURES[claim.left["measure"]])
                found = compute_finding(here_cell, pairs, claim, name_sides(left, right), ratio)
                found = replace(found, participation=describe_participation(here, left, right))
                tested = claim.relation in ("above", "below")
                same = find_same_runs(here, left, right) if tested else []
                if same and len(both) - len(same) < LEAST:
                    why = explain_same_run(here, left, same, len(both))
                    found = replace(found, holds=None, answer="no test", why=why)
                result.append(found)
    sure = correct_by_holm(result, claim, True) | correct_by_holm(result, claim, False)
    return [replace(f, sure=i in sure) for i, f in enumerate(result)]


def pair_sides(
    claim: PaperClaim, methods: Sequence[str]
) -> Iterator[tuple[Table, Table, dict[str, Any]]]:
    """Yield the two sides with one method and one value of each place, and what distinguishes the
    pair from the claim's others. A list that both sides share is stepped through together."""
    shared = [k for k in claim.left if k not in OWN and claim.left[k] == claim.right.get(k)]
    others = [m for m in methods if m != claim.left.get("method")]
    for left in expand_side(claim.left, others):
        for right in expand_side(claim.right, others):
            if any(left[k] != right[k] for k in shared):
                continue
            called = {k: left[k] for k, v in claim.left.items() if k not in OWN and is_list(v)}
            for k, v in claim.right.items():
                if k == "method" and (is_list(v) or v == EVERY):
                    called["against"] = right[k]
                elif k not in OWN and k not in shared and is_list(v):
                    called["against"] = f"{k.rpartition('.')[2]} {right[k]}"
            yield left, right, called


def expand_side(side: Table, others: Sequence[str]) -> Iterator[Table]:
    """Yield a side for each method and value of a place that it lists."""
    ways = {
        k: others if k == "method" and v == EVERY else v if is_list(v) and k != "rounds" else [v]
        for k, v in side.items()
    }
    for chosen in product(*ways.values()):
        yield dict(zip(ways, chosen, strict=True))


def is_list(value: Any) -> bool:
    """True if several values are named."""
    return isinstance(value, list)


def name_sides(left: Table, right: Table) -> tuple[str, str]:
    """Name two sides by their methods and the keys in which they differ.

    >>> name_sides({"method": "A", "measure": "loss", "k.x": 1}, {"method": "A", "k.x": 2})
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
        return ", ".join([who, *(describe_place(k, side[k]) for k in differ if k in side)])

    return name(left), name(right)


def describe_place(key: str, value: Any) -> str:
    """Describe a place of a claim: a panel by its name, anything else by the key's last word.

    >>> describe_place("panel", "fmnist"), describe_place("requirement.steps", 10)
    ('fmnist', 'steps 10')
    >>> describe_place("rounds", [0.1, 0.3])
    'rounds 0.1 to 0.3'
    """
    if key == "panel":
        return str(value)
    word = "round" if key == "rounds" and not is_list(value) else key.rpartition(".")[2]
    return f"{word} {' to '.join(map(str, value)) if is_list(value) else value}"


def compute_finding(
    cell: dict[str, Any],
    pairs: Float64,
    claim: PaperClaim,
    names: tuple[str, str],
    ratio: float = 0.0,
) -> Finding:
    """Compare both sides in one cell by their values for each seed, an array (seeds, 2)."""
    sound = pairs[np.isfinite(pairs).all(axis=1)]
    gaps = sound[:, 0] - sound[:, 1]
    a, b, gap = (
        Interval.of(x, ratio=ratio) if len(x) else Interval(np.nan, np.nan)
        for x in (*sound.T, gaps)
    )
    diverged = len(pairs) - len(sound)
    decided = None if diverged else holds(gap, claim.relation, claim.margin)
    outcome = find_answer(decided, gap, claim.relation)
    if decided is None:
        outcome = "diverged" if diverged else "undecided" if gaps.any() else "equal"
    measure = claim.left["measure"]
    return Finding(
        cell,
        measure,
        names,
        a,
        b,
        gap,
        tuple(gaps.tolist()),
        decided,
        outcome,
        diverged=diverged,
        ratio=ratio,
    )


def find_answer(decided: bool | None, gap: Interval, relation: Relation) -> Answer:
    """Return the outcome of a cell in a word."""
    if decided is not False:
        return "holds" if decided else "undecided"
    if relation in ("about", "not below"):
        return "different" if relation == "about" else "lower"
    reversed_ = gap.mean < 0 if relation == "above" else gap.mean > 0
    return "opposite" if reversed_ and gap.excludes_zero else "less"


def find_same_runs(frame: pl.DataFrame, left: Table, right: Table) -> list[int]:
    """Return the seeds in which both sides were the same run: every measure of their models is the
    same in every round. A difference between them was not tested there. Sides about other rounds or
    measures, about counts of rounds, or about several methods are no such pair."""
    if any(key in side for key in ("value", "with", "minus") for side in (left, right)):
        return []
    if MEASURES[left["measure"]].of is None or any(
        left.get(key) != right.get(key) for key in ("measure", "rounds")
    ):
        return []
    measures = [c for c in frame.columns if c in MEASURES and MEASURES[c].of is not None]
    a, b = (split_by_seed(match_rows(frame, side), measures) for side in (left, right))
    return [s for s in a if s in b and np.array_equal(a[s], b[s], equal_nan=True)]


def split_by_seed(rows: pl.DataFrame, measures: Sequence[str]) -> dict[int, Float64]:
    """Return the rounds of each seed and their measures, a row a round; NaN where one is missing.

    >>> rows = pl.DataFrame({"seed": [1, 0, 1], "round": [2, 1, 1], "loss": [0.5, 0.7, None]})
    >>> {seed: table.tolist() for seed, table in split_by_seed(rows, ["loss"]).items()}
    {0: [[1.0, 0.7]], 1: [[1.0, nan], [2.0, 0.5]]}
    """
    if rows.is_empty():
        return {}
    rows = rows.sort("seed", "round")
    seeds, starts = np.unique(rows["seed"].to_numpy(), return_index=True)
    table = rows.select(pl.col("round", *measures).cast(pl.Float64)).to_numpy()
    return dict(zip(seeds.tolist(), np.split(table, starts[1:]), strict=True))


def explain_same_run(frame: pl.DataFrame, left: Table, same: Sequence[int], seeds: int) -> str:
    """Explain why two sides were the same run in some seeds, or in all."""
    rows = match_rows(frame, left).filter(pl.col("seed").is_in(list(same)))
    admitted = mean_measure(rows, "admitted_nonpriority")
    why = "nobody was admitted" if admitted == 0 else "both were the same run"
    return why if len(same) == seeds else f"{why} in {len(same)} of {seeds} seeds"


def describe_participation(frame: pl.DataFrame, left: Table, right: Table) -> str:
    """Describe who took part on both sides: the mean number of other clients admitted, over the
    rounds that results keep, and the number of runs that everybody had left at the end."""
    if "with" in left:
        return ""
    sides = select_rows(frame, left, right)
    admitted = [mean_measure(rows, "admitted_nonpriority") for rows in sides]
    deserted = [count_empty_pools(rows) for rows in sides]
    parts = []
    if None not in admitted and any(admitted):
        parts.append(f"others admitted {' / '.join(f'{n:.1f}' for n in admitted)}")
    if None not in deserted and any(deserted):
        parts.append(f"everybody left in {' / '.join(map(str, deserted))} runs")
    return "; ".join(parts)


def select_rows(frame: pl.DataFrame, left: Table, right: Table) -> list[pl.DataFrame]:
    """Select the rows of both sides, or of the one that is no plain number; for a correlation over
    all methods, all rows."""
    if "with" in left:
        return [frame]
    return [match_rows(frame, side) for side in (left, right) if "value" not in side]


def mean_measure(rows: pl.DataFrame, measure: str) -> float | None:
    """Return a measure's mean over all rows; None where it was not kept."""
    taken = rows[measure].drop_nulls() if measure in rows.columns else pl.Series([])
    return float(taken.to_numpy().mean()) if len(taken) else None


def count_empty_pools(rows: pl.DataFrame) -> int | None:
    """Count the runs with nobody left in the pool at the end; None where that was not kept."""
    if "pool" not in rows.columns or rows.is_empty():
        return None
    last = rows.filter(pl.col("round") == rows["round"].max())["pool"]
    return None if last.is_null().all() else int((last == 0).sum())


def correct_by_holm(found: Sequence[Finding], claim: PaperClaim, wanted: bool) -> set[int]:
    """Return the cells whose answer passes Holm's correction (1979): the clearest at the level of
    one cell of all, the next at that of one of the rest, and so on. Equal numbers are no test, and
    cells of the same differences count as one."""
    sure: set[int] = set()
    while True:
        tests = {f.each for f in found if f.answer not in ("equal", "no test")}
        rest = max(1, len(tests - {found[i].each for i in sure}))
        more = {
            i
            for i, f in enumerate(found)
            if i not in sure
            and f.holds is wanted
            and holds(Interval.of(f.each, rest, f.ratio), claim.relation, claim.margin) is wanted
        }
        if not more:
            return sure
        sure |= more


def side_values(frame: pl.DataFrame, side: Mapping[str, Any]) -> dict[int, float]:
    """Return a side's value for each seed, as `average_rounds`; less that of the method that
    `minus` names."""
    if "value" in side:
        return {}
    if "with" in side:
        return correlations(frame, side)
    mine = average_rounds(match_rows(frame, side), side)
    if "minus" not in side:
        return mine
    less = average_rounds(match_rows(frame, {**side, "method": side["minus"]}), side)
    return {seed: mine[seed] - less[seed] for seed in mine.keys() & less.keys()}


def correlations(frame: pl.DataFrame, side: Mapping[str, Any]) -> dict[int, float]:
    """Return, seed by seed, the correlation (Pearson's) of two measures over the methods."""
    methods = frame["method"].unique(maintain_order=True).to_list()
    plain = {key: value for key, value in side.items() if key != "with"}
    first, second = (
        [side_values(frame, {**plain, "method": m, "measure": measure}) for m in methods]
        for measure in (side["measure"], side["with"])
    )
    seeds = set.intersection(*(set(one) for one in (*first, *second)))
    return {
        s: float(np.corrcoef([one[s] for one in first], [one[s] for one in second])[0, 1])
        for s in sorted(seeds)
    }


def match_rows(frame: pl.DataFrame, side: Mapping[str, Any]) -> pl.DataFrame:
    """Select the rows of a side by method and place. A key that no panel sweeps has no column."""
    place = {k: v for k, v in side.items() if k not in OWN}
    frame = frame.with_columns(pl.lit(None).alias(k) for k in place if k not in frame.columns)
    at = (pl.col(k).is_null() if v == NOT_SWEPT else pl.col(k) == v for k, v in place.items())
    return frame.filter(*at, pl.col("method") == side["method"])


def average_rounds(frame: pl.DataFrame, side: Mapping[str, Any]) -> dict[int, float]:
    """Return, seed by seed, one number from a side's rounds: its measure after the last round,
    after a round, or the mean over a range. NaN for a seed without a number in one of them."""
    measure = side["measure"]
    if measure not in frame.columns or frame[measure].is_null().all():
        return {}
    rows = frame.select("seed", "round", measure).iter_rows()
    known = {(s, r): v for s, r, v in rows if v is not None}
    last = int(frame["round"].to_numpy().max())
    rounds = select_rounds(side.get("rounds"), {r for _, r in known} | {last}, last)
    each = {
        int(s): [known.get((s, r), np.nan) for r in rounds] for s in frame["seed"].unique().sort()
    }
    return {s: float(np.mean(v)) for s, v in each.items() if v}


def holds(gap: Interval, relation: Relation, margin: float = 0.0) -> bool | None:
    """Return True if an interval confirms a relation, False if it contradicts it, None if neither.

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
