"""Intervals of means and paired differences, of several methods on matched seeds.

Methods share the data, the starting point and the batches of each seed. So the difference between
two methods is taken seed by seed, and its interval is usually far narrower than the intervals of
the two means suggest. Seeds that split the same rows again are not independent: for those,
`correction_ratio` widens every interval (Nadeau and Bengio 2003).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.arrays import Float64
from ..base.errors import MusterError, plural
from ..base.lazy import pl, special
from ..federation import Variation
from ..results.measures import MEASURES, Measure, find_measures, lead_with_held_out
from ..results.run import Run

Runs = Mapping[str, Sequence[Run]]


def all_runs(runs: Runs) -> list[Run]:
    """Return the runs of all methods as one list."""
    return [run for mine in runs.values() for run in mine]


def choose_measures(runs: Runs, names: str | Iterable[str] = ()) -> tuple[Measure, ...]:
    """Return the measures of a comparison: those named, or the default ones that every run has,
    with those of held-out rows first.

    Some runs, but not all, may have the substitute of a measure (`Measure.otherwise`) instead.
    """
    columns = [set(run.rounds.columns) for run in all_runs(runs)]
    if names:
        return require_measures(columns, find_measures(names))
    return default_measures(
        m
        for m in MEASURES.values()
        if any(m.name in c for c in columns)
        and all(m.name in c or m.otherwise in c for c in columns)
    )


def default_measures(available: Iterable[Measure]) -> tuple[Measure, ...]:
    """Return the measures that are compared by default, of those available: held-out rows first,
    by their loss where the task has no score there."""
    known = {m.name: m for m in available}
    chosen = [m for m in known.values() if m.compared]
    if "test_loss" in known and not any(m.is_held_out for m in chosen):
        chosen.insert(0, known["test_loss"])
    return lead_with_held_out(chosen)


def require_measures(
    columns: Sequence[set[str]], measures: Sequence[Measure]
) -> tuple[Measure, ...]:
    """Return these measures; the first that no run has is an error."""
    for m in measures:
        if not any(m.name in c or m.otherwise in c for c in columns):
            raise MusterError(f"measure '{m.name}': none of these runs has it ({m.title})")
    return tuple(measures)


def seed_variation(runs: Iterable[Run]) -> Variation:
    """Return how the seeds of these runs vary the data; runs of earlier versions do not have it."""
    return Variation.combine(run.facts.get("varies") for run in runs)


def read_variation(frame: pl.DataFrame) -> Variation:
    """Return how seeds vary the data, from the columns of a summary."""
    rows = frame.select(variation_columns(frame)).drop_nulls().unique(maintain_order=True)
    return Variation.combine(rows.iter_rows(named=True))


def variation_columns(frame: pl.DataFrame) -> list[str]:
    """Return the columns of a summary that state how seeds vary the data; those of earlier versions
    have fewer, or none."""
    return [name for name in Variation().table if name in frame.columns]


def correction_ratio(variation: Variation, measure: Measure) -> float:
    """Return the correction of a measure's intervals (`Variation.ratio`).

    Counts of a round depend on the training rows, like measures of those rows.
    """
    return variation.ratio(measure.is_held_out, measure.whose)


@dataclass(frozen=True)
class Interval:
    """A mean and the half-width of its 95 % interval (Student's t; NaN for one value)."""

    mean: float
    half: float

    @classmethod
    def of(cls, values: Sequence[float] | Float64, among: int = 1, ratio: float = 0.0) -> Interval:
        """Return the interval of one value per seed.

        Args:
            values: one value per seed
            among: number of intervals that hold together at 95 % (Bonferroni)
            ratio: correction for seeds that split the same rows again (`correction_ratio`)

        >>> Interval.of([1.0, 2.0, 3.0])
        2.000 ± 2.484
        """
        mean, half = mean_and_half(np.asarray(values, np.float64), among, ratio)
        return cls(float(mean), float(half))

    @property
    def excludes_zero(self) -> bool:
        """True if the whole interval lies on one side of zero."""
        return abs(self.mean) > self.half

    def __repr__(self) -> str:
        if np.isnan(self.half):
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} ± {self.half:.3f}"


@dataclass(frozen=True)
class SampleMoments:
    """Number, mean and standard deviation of values: all that an interval needs to know of them.

    >>> SampleMoments.of(np.array([1.0, 2.0, 3.0])).interval()
    2.000 ± 2.484
    """

    count: int
    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Float64) -> SampleMoments:
        """Return the moments of values."""
        deviation = float(values.std(ddof=1)) if len(values) > 1 else float("nan")
        return cls(len(values), float(values.mean()), deviation)

    def interval(self, among: float = 1.0, ratio: float = 0.0) -> Interval:
        """Return the interval of the mean (`Interval.of`)."""
        half = half_width(np.asarray(self.deviation), self.count, among, ratio)
        return Interval(self.mean, float(half))

    def chance(self, ratio: float = 0.0, sign: float = 1.0) -> float:
        """Return the p-value of the mean times `sign` being at most 0 (Student's t)."""
        error = self.deviation * np.sqrt(1 / self.count + ratio)
        if not error > 0:
            return 0.0 if sign * self.mean > 0 and error == 0 else 1.0
        return float(special.stdtr(self.count - 1, -sign * self.mean / error))


def mean_and_half(values: Float64, among: int = 1, ratio: float = 0.0) -> tuple[Float64, Float64]:
    """Return the mean over the first axis and the half-width of its 95 % interval; NaN for one
    value."""
    n = len(values)
    mean = np.asarray(values.mean(axis=0))
    if n < 2:
        return mean, np.full_like(mean, np.nan)
    return mean, half_width(values.std(axis=0, ddof=1), n, among, ratio)


def half_width(deviation: Float64, n: int, among: float, ratio: float) -> Float64:
    """Return the half-width `t s sqrt(1/n + ratio)`: Student's t at level `1 - 0.05 / among`, with
    the corrected variance of Nadeau and Bengio (2003)."""
    quantile = special.stdtrit(n - 1, 1 - 0.025 / among)
    return np.asarray(quantile * deviation * np.sqrt(1 / n + ratio))


def all_priority(run: Run) -> bool:
    """Return True if all participating clients are priority clients."""
    return bool(run.final.filter(~pl.col("unseen"))["priority"].all())


def value_at(run: Run, measure: str, round: int) -> float:
    """Return the last value of a measure up to a round; NaN without one."""
    column = find_column(run, measure)
    if column is None:
        return float("nan")
    measured = run.rounds.filter(pl.col("round") <= round, pl.col(column).is_not_null())
    return float(measured[column][-1]) if len(measured) else float("nan")


def find_column(run: Run, measure: str) -> str | None:
    """Return the column of a run's rounds with a measure, or with its substitute."""
    otherwise = MEASURES[measure].otherwise if measure in MEASURES else ""
    return next((name for name in (measure, otherwise) if name in run.rounds.columns), None)


def summary(runs: Runs, rounds: Sequence[int], measures: str | Iterable[str] = ()) -> pl.DataFrame:
    """Return one row per method, round and measure (`summary_row`).

    Runs of all methods are in the same order of seeds; differences are to the first method.
    """
    first = next(iter(runs.values()))
    variation = seed_variation(all_runs(runs))
    chosen = choose_measures(runs, measures)
    rows = []
    for label, mine in runs.items():
        for round in rounds:
            for measure in chosen:
                a = np.array([value_at(run, measure.name, round) for run in mine])
                b = np.array([value_at(run, measure.name, round) for run in first])
                rows.append(summary_row(label, round, measure, a, b, variation, mine is first))
    return pl.DataFrame(rows).fill_nan(None)


def summary_row(
    label: str,
    round: int,
    measure: Measure,
    values: Float64,
    first: Float64,
    variation: Variation,
    is_first: bool,
) -> dict[str, Any]:
    """Return a row of a summary: the mean, the paired difference `this - first`, both with their
    interval, and how the seeds vary the data."""
    ratio = correction_ratio(variation, measure)
    mean, gap = Interval.of(values, ratio=ratio), Interval.of(values - first, ratio=ratio)
    return {
        "method": label,
        "round": round,
        "measure": measure.name,
        # polars prints the first four columns of many and the last four.
        **variation.table,
        "seeds": len(values),
        "clear": not is_first and gap.excludes_zero,
        "mean": mean.mean,
        "half": mean.half,
        "difference": gap.mean,
        "difference_half": gap.half,
    }


def coverage_notes(runs: Runs) -> list[str]:
    """Return a line that states what the intervals of these runs cover, if there are any."""
    seeds = len(next(iter(runs.values())))
    return [seed_variation(all_runs(runs)).interval_note(seeds)] if seeds > 1 else []


def describe_scope(runs: Runs) -> str:
    """Return the seeds of these runs and what their intervals cover, in a few words."""
    return seed_variation(all_runs(runs)).scope(len(next(iter(runs.values()))))


def cell_coverage_notes(summary: pl.DataFrame) -> list[str]:
    """Return lines that state what the intervals of a summary cover, without repetition."""
    some = summary.filter(pl.col("half").is_not_null())
    groups = some.group_by(variation_columns(some), maintain_order=True)
    return list(
        dict.fromkeys(read_variation(mine).interval_note(format_seeds(mine)) for _, mine in groups)
    )


def format_seeds(summary: pl.DataFrame) -> str:
    """Format the number of seeds behind the means of a sweep.

    >>> format_seeds(pl.DataFrame({"seeds": [3, 1, 3]}))
    '1 to 3 seeds'
    """
    least, *more = summary["seeds"].unique().sort().to_list()
    return f"{least} to {plural(more[-1], 'seed')}" if more else plural(least, "seed")
