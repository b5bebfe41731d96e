"""Verdicts on mean estimation and on the objective's curvature."""

from __future__ import annotations

import polars as pl

from muster.papers.theory import study
from muster.papers.theory.study_toy import LEAST
from muster.papers.theory.verdicts import verdicts


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
    assert three.startswith("holds when two alike; all apart and gamma_G^2 > ")
    assert three.endswith(", not when equally spaced")
    assert set(found.values()) == {"holds"}
    lost = changed(toy, 0.0, pl.col("curve").str.starts_with("MaxFL"))
    assert judged(lost)["fig2a"] == "does not hold"
    assert judged(toy.with_columns(y=pl.col("x") * 0 + 0.5))["lemma-2.1"] == "does not hold"


def test_claims_of_our_own_are_said_to_be(toy):
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
    assert three == "holds when two alike; all apart, not when equally spaced"
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
