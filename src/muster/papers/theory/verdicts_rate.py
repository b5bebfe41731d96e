"""Verdicts on MaxFL's Theorem 3.1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...base.arrays import Float64
from ...base.lazy import pl
from ...report.intervals import Interval
from .statement import Verdict, half, stated


@dataclass(frozen=True)
class Slopes:
    """Of a frame of `rate`, over every T.

    Attributes:
        least: `min_t` of the mean of |grad Ftilde|^2 over the seeds
        last: whether each of these lies in the last round that was measured
        each: for each seed the slope of its logarithm over log T, at the rounds where those minima
            lie and over the three largest T: the theorem speaks of a T that is large enough
    """

    T: Float64
    least: Float64
    last: bool
    each: Float64


def slopes(frame: pl.DataFrame) -> Slopes:
    """How the smallest gradient falls with T."""
    mean = frame.group_by("T", "round").agg(pl.col("gradient2").mean())
    best = mean.sort("gradient2", "round").group_by("T").first().sort("T")
    ends = frame.group_by("T").agg(pl.col("round").max()).sort("T")
    there = frame.join(best.select("T", "round"), on=["T", "round"]).sort("seed", "T")
    each = there["gradient2"].to_numpy().reshape(-1, len(best))
    logs = np.log(best["T"].to_numpy())
    slope = np.polyfit(logs[-3:], np.log(each).T[-3:], 1)[0]
    return Slopes(
        best["T"].to_numpy().astype(float),
        best["gradient2"].to_numpy(),
        best["round"].to_list() == ends["round"].to_list(),
        np.asarray(slope),
    )


def of_rate(frame: pl.DataFrame) -> list[Verdict]:
    """Theorem 3.1: the slope over T, and that the objective falls."""
    found = slopes(frame)
    slope = Interval.of(found.each)
    begin = float(frame.filter(pl.col("round") == 0)["surrogate"][0])
    longest = frame.filter(pl.col("T") == frame["T"].max())
    ends = Interval.of(
        longest.filter(pl.col("round") == longest["round"].max())["surrogate"].to_numpy()
    )
    steep = slope.mean + half(slope) <= -0.5
    told = "; ".join(f"T = {t:.0f}: {g:.2e}" for t, g in zip(found.T, found.least, strict=True))
    told += f"; slope over the last three {slope!r} ({len(found.each)} seeds)"
    if steep:
        told += ", consistent with the theorem's -0.5, which bounds it for large T"
    if found.last:
        told += "; every smallest one is in the last round measured: runs had not levelled off"
    return [
        stated(
            "theorem-3.1-rate",
            "the objective's smallest expected squared gradient falls at least like 1/sqrt(T)",
            "MaxFL Theorem 3.1",
            told,
            steep,
        ),
        stated(
            "theorem-3.1-objective",
            "with its learning rates MaxFL's objective falls",
            "our own; the learning rates are those of MaxFL Theorem 3.1",
            f"objective {begin:.3f} at the start, {ends!r} after {int(found.T[-1])} rounds",
            ends.mean + half(ends) < begin,
        ),
    ]
