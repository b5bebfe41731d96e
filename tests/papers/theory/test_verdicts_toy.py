"""Verdicts on mean estimation, the objective's curvature and Theorem 3.1."""

from __future__ import annotations

import polars as pl
import pytest

from muster.papers.theory import study
from muster.papers.theory.study_toy import LEAST
from muster.papers.theory.verdicts import verdicts
from muster.papers.theory.verdicts_toy import slopes


def judged(frame):
    return {v["id"]: v["verdict"] for v in verdicts(frame)}


def changed(frame, y, *where):
    """The frame with other values of y in some rows."""
    return frame.with_columns(y=pl.when(*where).then(y).otherwise(pl.col("y")))


def test_verdicts_of_mean_estimation(toy):
    found = judged(toy)
    assert found.pop("lemma-2.2") == "holds when there are two clients"
    assert found.pop("objective-smoothness") == "holds when L_c <= 3 sqrt(3)/2 = 2.598"
    three = found.pop("three-clients")
    assert three.startswith("holds when two equal; all apart and gamma_G^2 > ")
    assert three.endswith(", not when equally spaced")
    assert set(found.values()) == {"holds"}
    lost = changed(toy, 0.0, pl.col("curve").str.starts_with("MaxFL"))
    assert judged(lost)["fig2a"] == "does not hold"
    assert judged(toy.with_columns(y=pl.col("x") * 0 + 0.5))["lemma-2.1"] == "does not hold"


def test_claims_of_our_own_are_marked(toy):
    ours = {v["id"] for v in verdicts(toy) if v["where"].startswith("our own")}
    assert ours == {"three-clients"}


def test_theorem_2_1_is_judged_at_every_variance_and_by_the_interval(toy):
    numbers = {v["id"]: v["numbers"] for v in verdicts(toy)}["theorem-2.1"]
    assert all(f"gamma^2 = {g}: " in numbers for g in ("0.1", "0.25", "1", "4"))
    here = (pl.col("panel") == "theorem") & (pl.col("curve") == LEAST) & (pl.col("gamma2") == 4)
    bound = toy.filter((pl.col("curve") == "Theorem 2.1") & (pl.col("gamma2") == 4))["y"][0]
    for share, half, verdict in (
        (1.01, 0.0, "holds"),
        (0.99, 0.0, "does not hold"),
        (0.99, 0.1, "undecided"),
        (1.01, 0.1, "undecided"),
    ):
        frame = changed(toy, share * bound, here)
        frame = frame.with_columns(half=pl.when(here).then(half * bound).otherwise(pl.col("half")))
        assert judged(frame)["theorem-2.1"].split(":")[0] == verdict


def test_three_clients_are_judged_one_arrangement_at_a_time(toy):
    def so(clients):
        high = changed(toy, 0.4, (pl.col("clients") == clients) & (pl.col("curve") == "MaxFL"))
        return changed(high, 0.0, (pl.col("clients") == clients) & (pl.col("curve") == "FedAvg"))

    assert judged(so("3, equally spaced"))["three-clients"].endswith("; equally spaced")
    three = judged(so("3, all apart"))["three-clients"]
    assert three == "holds when two equal; all apart, not when equally spaced"
    low = changed(toy, 0.05, (pl.col("curve") == "MaxFL") & (pl.col("clients") != "2"))
    assert judged(low)["three-clients"] == "does not hold"


def test_the_curvature_is_judged_by_what_is_measured(toy):
    measured = (pl.col("panel") == "smoothness") & (pl.col("curve") == "measured")
    for factor, verdict in ((0.2, "holds"), (3.0, "does not hold")):
        found = judged(changed(toy, factor * pl.col("y"), measured))
        assert found["objective-smoothness"] == verdict


def test_no_draw_that_appeals_is_no_certainty(toy):
    numbers = {v["id"]: v["numbers"] for v in verdicts(toy)}
    assert "25: FedAvg 0.000 ± 0.000" not in numbers["fig2a"]
    assert "exact" in numbers["lemma-2.1"]


def test_weights_of_figure_3():
    frame = study.weights()
    assert judged(frame) == {"fig3": "holds"}
    assert judged(frame.with_columns(q=0.25 - pl.col("q"))) == {"fig3": "does not hold"}


# ------------------------------------------------------------------------------- Theorem 3.1


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
