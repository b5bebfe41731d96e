"""Verdicts on Theorem 3.1."""

from __future__ import annotations

import polars as pl
import pytest

from muster.papers.theory.verdicts import verdicts
from muster.papers.theory.verdicts_rate import slopes


def judged(frame):
    return {v["id"]: v["verdict"] for v in verdicts(frame)}


def falling(rate, slope, spread=0.0):
    """The frame with squared gradients that fall with T by this slope; seeds differ by `spread`."""
    off = spread * (pl.col("seed") - rate["seed"].to_numpy().mean())
    return rate.with_columns(gradient2=pl.col("T") ** (slope + off))


@pytest.mark.parametrize(
    ("slope", "spread", "verdict"),
    [
        (-0.51, 0.0, "holds"),
        (-0.49, 0.0, "does not hold"),
        (-0.42, 0.0, "does not hold"),
        (-0.8, 0.01, "holds"),
        (-0.45, 0.3, "does not hold"),
        (-0.55, 0.3, "does not hold"),  # the interval reaches beyond -0.5
    ],
)
def test_the_slope_must_be_clearly_as_steep(rate, slope, spread, verdict):
    frame = falling(rate, slope, spread)
    assert slopes(frame).each.mean() == pytest.approx(slope)
    assert judged(frame)["theorem-3.1-rate"] == verdict


def test_a_slope_that_holds_is_consistent_with_the_theorem_and_says_where_minima_lie(rate):
    numbers = {v["id"]: v["numbers"] for v in verdicts(falling(rate, -0.7))}["theorem-3.1-rate"]
    assert "consistent with the theorem's -0.5" in numbers
    last = rate.with_columns(gradient2=1 / (1 + pl.col("round")))
    first = rate.with_columns(gradient2=1 + pl.col("round"))
    for frame, ends in ((last, True), (first, False)):
        (numbers, _) = (v["numbers"] for v in verdicts(frame))
        assert ("every smallest one is in the last round measured" in numbers) == ends
        assert slopes(frame).last == ends


def test_that_the_objective_falls_is_a_claim_of_our_own(rate):
    where = {v["id"]: v["where"] for v in verdicts(rate)}
    assert set(where) == {"theorem-3.1-rate", "theorem-3.1-objective"}
    assert where["theorem-3.1-objective"].startswith("our own")
    assert judged(rate)["theorem-3.1-objective"] == "holds"
    assert judged(rate.filter(pl.col("seed") == 0))["theorem-3.1-objective"] == "holds"
    stuck = rate.with_columns(gradient2=pl.lit(0.1), surrogate=pl.lit(0.7))
    assert set(judged(stuck).values()) == {"does not hold"}
