"""Intervals: several methods on matched seeds, with intervals for means and paired differences.

Methods share everything but themselves: the same data, starting point and batches for each seed.
So the difference between two of them is taken seed by seed, and its interval is usually far
narrower than the intervals of the two means suggest. Seeds that split the same rows again are not
independent: there `ratio_of` says by how much every interval is widened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..base.arrays import Float64
from ..base.errors import MusterError, plural
from ..base.lazy import pl
from ..federation import Variation
from ..results.measures import MEASURES, Measure, named
from ..results.run import Run

Runs = Mapping[str, Sequence[Run]]


def every(runs: Runs) -> list[Run]:
    """The runs of all methods."""
    return [run for mine in runs.values() for run in mine]


def compared(runs: Runs, names: str | Iterable[str] = ()) -> tuple[Measure, ...]:
    """The measures of a comparison: those named, or those of the table that every run took, in its
    own name or (but not in all of them) in that of the measure that stands in for it."""
    columns = [set(run.rounds.columns) for mine in runs.values() for run in mine]
    if names:
        return known_to(columns, named(names))
    return tuple(
        m
        for m in MEASURES.values()
        if m.compared
        and any(m.name in c for c in columns)
        and all(m.name in c or m.otherwise in c for c in columns)
    )


def known_to(columns: Sequence[set[str]], measures: Sequence[Measure]) -> tuple[Measure, ...]:
    """These measures, if each was taken by some run; the first that was not is an error."""
    for m in measures:
        if not any(m.name in c or m.otherwise in c for c in columns):
            raise MusterError(f"measure '{m.name}': no run here took it ({m.title})")
    return tuple(measures)


def variation_of(runs: Iterable[Run]) -> Variation:
    """How the seeds of these runs vary the data; those of an earlier version do not say."""
    return Variation.combine(run.facts.get("varies") for run in runs)


def variation_in(frame: pl.DataFrame) -> Variation:
    """The same of the rows of a frame that has it in its columns."""
    if not {*Variation().table} <= {*frame.columns}:
        return Variation()
    said = frame.select(*Variation().table).drop_nulls().unique(maintain_order=True)
    return Variation.combine(said.iter_rows(named=True))


def ratio_of(variation: Variation, measure: Measure) -> float:
    """The correction of a measure's intervals (`Variation.ratio`). Counts of a round depend on the
    training rows, like measures taken on them."""
    held_out = measure.of is not None and not measure.held_out
    return variation.ratio(held_out, measure.whose)


@dataclass(frozen=True)
class Interval:
    """A mean and the half-width of its 95 % interval (Student's t; NaN from one value)."""

    mean: float
    half: float

    @classmethod
    def of(cls, values: Sequence[float] | Float64, among: int = 1, ratio: float = 0.0) -> Interval:
        """From one value for each seed; wide enough for so many intervals to hold together
        (Bonferroni), and for seeds that split the same rows again (`ratio_of`).

        >>> Interval.of([1.0, 2.0, 3.0])
        2.000 ± 2.484
        """
        mean, half = mean_and_half(np.asarray(values, np.float64), among, ratio)
        return cls(float(mean), float(half))

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies wholly on one side of zero."""
        return abs(self.mean) > self.half

    def __repr__(self) -> str:
        if np.isnan(self.half):
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} ± {self.half:.3f}"


def mean_and_half(values: Float64, among: int = 1, ratio: float = 0.0) -> tuple[Float64, Float64]:
    """The mean over the first axis, and the half-width of its 95 % interval, or of one among so
    many that hold together at 95 %: `t s sqrt(1/n + ratio)`, Student's t with the corrected
    variance of Nadeau and Bengio (2003); NaN from one value."""
    from scipy.special import stdtrit  # takes as long to load as everything else

    n = len(values)
    mean = np.asarray(values.mean(axis=0))
    if n < 2:
        return mean, np.full_like(mean, np.nan)
    return mean, np.asarray(
        stdtrit(n - 1, 1 - 0.025 / among) * values.std(axis=0, ddof=1) * np.sqrt(1 / n + ratio)
    )


def for_everyone(run: Run) -> bool:
    """Whether all clients that take part are priority clients."""
    return bool(run.final.filter(~pl.col("unseen"))["priority"].all())


def at(run: Run, measure: str, round: int) -> float:
    """A measure after a round, or the last one before it that was taken; NaN without one."""
    column = column_of(run, measure)
    if column is None:
        return float("nan")
    taken = run.rounds.filter(pl.col("round") <= round, pl.col(column).is_not_null())
    return float(taken[column][-1]) if len(taken) else float("nan")


def column_of(run: Run, measure: str) -> str | None:
    """The column of a run's rounds that holds a measure, or what stands in for it."""
    otherwise = MEASURES[measure].otherwise if measure in MEASURES else ""
    return next((name for name in (measure, otherwise) if name in run.rounds.columns), None)


def summary(runs: Runs, rounds: Sequence[int], measures: str | Iterable[str] = ()) -> pl.DataFrame:
    """One row for each method, round and measure: mean, interval, and the paired difference
    `this - first method` with its interval; and what the seeds vary (`Variation`). Runs of all
    methods are in the same order of seeds."""
    first = next(iter(runs.values()))
    variation = variation_of(every(runs))
    taken = compared(runs, measures)
    rows = []
    for label, mine in runs.items():
        for round in rounds:
            for measure in taken:
                a = np.array([at(run, measure.name, round) for run in mine])
                b = np.array([at(run, measure.name, round) for run in first])
                ratio = ratio_of(variation, measure)
                mean, gap = Interval.of(a, ratio=ratio), Interval.of(a - b, ratio=ratio)
                rows.append(
                    {
                        "method": label,
                        "round": round,
                        "measure": measure.name,
                        "seeds": len(a),
                        "mean": mean.mean,
                        "half": mean.half,
                        "difference": gap.mean,
                        "difference_half": gap.half,
                        "clear": mine is not first and gap.excludes_zero,
                        **variation.table,
                    }
                )
    return pl.DataFrame(rows).fill_nan(None)


def covered(runs: Runs) -> list[str]:
    """A line that says what the intervals of these runs cover, if there are any."""
    seeds = len(next(iter(runs.values())))
    return [variation_of(every(runs)).interval_note(seeds)] if seeds > 1 else []


def covered_cells(summary: pl.DataFrame) -> list[str]:
    """What the intervals of a summary's rows cover, each thing once."""
    some = summary.filter(pl.col("half").is_not_null())
    return list(dict.fromkeys(
        variation_in(mine).interval_note(seeds_of(mine))
        for _, mine in some.group_by(*Variation().table, maintain_order=True)
    ))  # fmt: skip


def seeds_of(summary: pl.DataFrame) -> str:
    """Over how many seeds the means of a sweep are.

    >>> seeds_of(pl.DataFrame({"seeds": [3, 1, 3]}))
    '1 to 3 seeds'
    """
    least, *more = summary["seeds"].unique().sort().to_list()
    return f"{least} to {plural(more[-1], 'seed')}" if more else plural(least, "seed")
