"""Gain of each client over training alone: held out, after the same work, over all seeds.

A client gains by a federation if the model is better on rows that nobody trained on than the one
the client would have had alone after as many steps. A loss that fell since the first round shows
neither. What a client has alone is known from the method `local` on the same seeds, or from the
solo models behind its requirement (`muster.with_solo`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..base.arrays import Float64, Int64
from ..base.errors import format_row_points, plural
from ..base.lazy import pl
from ..federation import Variation
from ..results.run import Run
from ..tasks.scores import get_score
from .intervals import Interval, Runs, mean_and_half, seed_variation

HOW = (
    "add the method local to the comparison (--method local), or give clients what they have alone "
    "as their requirement (requirement = 'alone', in Python muster.with_solo with the rounds and "
    "the local work of the run)"
)


@dataclass(frozen=True)
class Gains:
    """The gain of each client over training alone, by a held-out score.

    Attributes:
        score: name of the score, the first of the task
        together: that of the model, [seed, client]; NaN where there is none
        alone: that of each client's model alone, [seed, client]; NaN where there is none
        rows: held-out rows of each client, the mean over seeds; None: not known
        work: work of each client in a run, and alone
        variation: the way seeds vary the data
    """

    score: str
    together: Float64
    alone: Float64
    rows: Int64 | None
    work: str
    variation: Variation

    @cached_property
    def values(self) -> Float64:
        """The gain of each client in each seed, [seed, client]; more is better."""
        sign = 1.0 if get_score(self.score).higher else -1.0
        return sign * (self.together - self.alone)

    @cached_property
    def intervals(self) -> list[Interval]:
        """The mean gain of each client with its 95 % interval."""
        mean, half = mean_and_half(self.values, ratio=self.variation.ratio(held_out=True))
        return [Interval(float(m), float(h)) for m, h in zip(mean, half, strict=True)]


def first_score(run: Run) -> str:
    """Return the name of the task's first score, usually accuracy."""
    tested = [name.removeprefix("test_") for name in run.final.columns if name[:5] == "test_"]
    return next((name for name in tested if name not in ("loss", "rows")), "accuracy")


def serves_own(run: Run) -> bool:
    """Return True if a run is of clients that each train alone."""
    return run.recipe is not None and run.recipe.serves == "own"


def measure_gains(runs: Runs, label: str) -> Gains | str:
    """Return the gain of each client by one method; text that states why it is not known, and how
    to get it, where it is not."""
    mine = runs[label]
    if not all(len(run.final) for run in mine):
        return "the last model has not been evaluated on the clients yet"
    if serves_own(mine[0]):
        return "this is each client's own model, alone: there is no gain over itself"
    if len({len(run.final) for some in runs.values() for run in some}) > 1:
        return "seeds have different numbers of clients, so that no client has a gain over them"
    score = first_score(mine[0])
    together = collect(mine, f"test_{score}")
    if np.isnan(together).all():
        return "there are no held-out rows to measure a gain on; hold out some of each client's"
    alone, work = find_alone(runs, mine, score)
    here = mine[0].facts.get("work", "")  # results of earlier versions do not have it
    if alone is None or np.isnan(alone).all():
        return f"the clients' models alone were not measured: {HOW}"
    if work != here:
        there = f"{work} alone, and {here or 'an unknown amount'} in the run"
        return f"clients had {there}, which is no comparison: {HOW}"
    sizes = collect(mine, "test_rows")
    rows = None if np.isnan(sizes).any() else np.rint(sizes.mean(axis=0)).astype(np.int64)
    return Gains(score, together, alone, rows, here, seed_variation(mine))


def find_alone(runs: Runs, mine: Sequence[Run], score: str) -> tuple[Float64 | None, str]:
    """Return each client's held-out score alone, [seed, client], and the work behind it."""
    own = next((others for others in runs.values() if others and serves_own(others[0])), None)
    if own is None:
        return collect(mine, f"solo_{score}"), mine[0].facts.get("solo_work", "an unknown amount")
    found = collect(own, f"test_{score}")
    # Clients that only evaluate train nothing in that run either.
    unseen = np.stack([run.final["unseen"].to_numpy() for run in own])
    return np.where(unseen, np.nan, found), own[0].facts.get("work", "")


def collect(runs: Sequence[Run], column: str) -> Float64:
    """Return a column of all clients' last evaluation, [run, client]; NaN where it is missing."""
    found = [
        run.final[column].cast(pl.Float64).to_numpy()
        if column in run.final.columns
        else np.full(len(run.final), np.nan)
        for run in runs
    ]
    return np.stack([np.asarray(values, np.float64) for values in found])


def describe_rows(rows: int, score: str) -> str:
    """Describe the held-out rows behind a client's score.

    >>> describe_rows(12, "accuracy")
    '12 test rows: one is 8 points'
    """
    count = plural(rows, "test row")
    if score != "accuracy" or rows < 1:
        return count
    return f"{count}: one is {format_row_points(rows)} points"


def describe_work(runs: Iterable[Run]) -> list[str]:
    """Return a line with the work of each client in a run and alone, where it trained alone."""
    lines = []
    for run in runs:
        work, alone = run.facts.get("work"), run.facts.get("solo_work")
        if alone is None or work is None:
            continue
        same = "" if work == alone else " (not the same: meeting a requirement is no gain)"
        lines.append(f"each client's work: {work} in a run, {alone} alone{same}")
    return list(dict.fromkeys(lines))
