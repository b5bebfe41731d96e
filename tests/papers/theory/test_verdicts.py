"""Verdicts on every study: what a table can hold, and mistakes."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from muster.base.errors import MusterError
from muster.papers.theory import study
from muster.papers.theory.study_bound import FROM_OPTIMUM, OPPOSED
from muster.papers.theory.verdicts import early_gaps, verdicts


def test_every_verdict_fits_into_a_table(bound, corollary2, toy, rate):
    for frame in (bound, corollary2, toy, rate, study.weights()):
        for verdict in verdicts(frame):
            assert set(verdict) == {"id", "says", "where", "numbers", "verdict"}
            assert not set("|*\n") & set("".join(verdict.values()))
            assert verdict["verdict"].startswith(("holds", "does not hold", "undecided"))


def test_mistakes_are_explained(toy):
    with pytest.raises(MusterError, match="give the frame of one study"):
        verdicts(pl.DataFrame({"x": [1]}))
    with pytest.raises(MusterError, match="did you mean 'toy'"):
        verdicts(toy.with_columns(study=pl.lit("tyo")))
    with pytest.raises(MusterError, match="seeds: 0; allowed: whole numbers from 1"):
        study.bound(seeds=0)
    with pytest.raises(MusterError, match="rounds: 100; allowed: whole numbers from 128"):
        study.rate(rounds=100)


REPAIRED = ("theorem1-repaired", "a9-repaired")
BROKEN = (FROM_OPTIMUM, OPPOSED)


def judged(frame):
    return {v["id"]: v["verdict"] for v in verdicts(frame)}


def numbers_by_id(frame):
    return {v["id"]: v["numbers"] for v in verdicts(frame)}


def test_verdicts_of_the_bound(bound):
    found = judged(bound)
    assert all(found[id] == "holds" for id in REPAIRED)
    fails = "does not hold in general: it fails for "
    assert found["theorem1-printed"] == f"{fails}FedALIGN ({FROM_OPTIMUM})"
    assert found["a9-printed"] == f"{fails}FedALIGN, K = 2000 ({OPPOSED})"
    assert found["theta-at-eps-0"] == "does not hold at any T; it tends to 1"
    assert found["c1-distance"].startswith("holds when E <= 8 L/mu = 30.6")
    assert "error 0.016, bound 0.0048" in numbers_by_id(bound)["a9-printed"]


def test_claims_of_our_own_are_marked(bound, corollary2):
    where = {v["id"]: v["where"] for frame in (bound, corollary2) for v in verdicts(frame)}
    ours = {id for id, text in where.items() if text.startswith("our own")}
    assert ours == {*REPAIRED, "bound-not-vacuous", "eps-0-is-enough"}


def at_share_of_the_bound(bound, form, share, spread=0.0):
    """The frame with errors at this share of a bound, and seeds that differ by this share of it."""
    off = pl.col("seed") - bound["seed"].to_numpy().max() / 2
    one = bound.filter(~pl.col("case").is_in(BROKEN))
    return one.with_columns(error=pl.col(f"bound_{form}") * (share + spread * off))


@pytest.mark.parametrize("form", ["printed", "repaired"])
def test_a_bound_is_broken_where_the_whole_interval_is_above_it(bound, form):
    ids = [f"theorem1-{form}", f"a9-{form}"]
    for share, verdict in ((0.999, "holds"), (1.001, "does not hold")):
        found = judged(at_share_of_the_bound(bound, form, share))
        assert [found[id] for id in ids] == [verdict, verdict]
    for share in (0.999, 1.001):
        found = judged(at_share_of_the_bound(bound, form, share, 0.01))
        assert all(found[id].startswith("undecided: ") for id in ids)
    far = at_share_of_the_bound(bound, form, 1.1, 0.01)
    assert [judged(far)[id] for id in ids] == ["does not hold", "does not hold"]


def test_points_where_the_bound_says_something_are_counted(bound):
    """Below the error before the first step, of either form."""
    for form in ("printed", "repaired"):
        for id, those in ((f"theorem1-{form}", pl.col("K").is_null()),
                          (f"a9-{form}", pl.col("K").is_not_null())):  # fmt: skip
            each = bound.filter(those & (pl.col("seed") == 0))
            below = each.filter(pl.col(f"bound_{form}") < pl.col("start"))
            assert f"of {len(each)} points above the bound, 0 undecided" in numbers_by_id(bound)[id]
            assert (
                f"At {len(below)} points the bound is below the error before"
                in numbers_by_id(bound)[id]
            )
    assert "At 0 points" not in numbers_by_id(bound)["theorem1-repaired"]


def test_theta_at_eps_0(bound):
    T, gamma = 5, bound["gamma"][0]
    numbers = numbers_by_id(bound)["theta-at-eps-0"]
    assert f"{4 / (T + gamma - 2):.3f} printed, {5 / (T + gamma - 2):.3f} repaired" in numbers
    assert "both tend to 1" in numbers
    one = bound.with_columns(theta_printed=pl.lit(1.0))
    assert judged(one)["theta-at-eps-0"] == "holds"


def test_theta_falls_and_rho_rises_with_those_who_are_included(bound):
    rho = {"None": 0.0, "FedALIGN, eps to 0": 0.1, "FedALIGN": 0.2, "All": 1.0}
    so = bound.with_columns(
        rho_printed=pl.col("method").replace_strict(rho, default=0.3, return_dtype=pl.Float64)
    )
    so = so.with_columns(theta_printed=1 - 0.5 * pl.col("rho_printed"))
    assert judged(so)["theta-rho"] == "holds"
    here = pl.col("case") == "lam = 3"  # in one case it is enough
    for column in ("rho_printed", "theta_printed"):
        flat = so.with_columns(pl.when(here).then(0.5).otherwise(pl.col(column)).alias(column))
        assert judged(flat)["theta-rho"] == "does not hold"
    # Two that let in the same clients say nothing, but some must differ.
    same = so.filter(pl.col("method") == "None").row(0, named=True)
    for those, verdict in ((["None", "FedALIGN, eps to 0"], "holds"), (list(rho), "does not hold")):
        equal = pl.col("method").is_in(those)
        alike = so.with_columns(
            pl.when(equal).then(same[c]).otherwise(pl.col(c)).alias(c)
            for c in ("rho_printed", "theta_printed")
        )
        assert judged(alike)["theta-rho"] == verdict


def test_from_which_T_on_the_bound_says_something(bound):
    numbers = numbers_by_id(bound)["bound-not-vacuous"]
    assert "lam = 0.3, E = 1: from T = 189 (run to 5)" in numbers
    assert "lam = 0.3, E = 5: from T = 125,745 (run to 5)" in numbers
    assert "lam = 3, E = 1: from T = 28 (run to 5)" in numbers
    assert judged(bound)["bound-not-vacuous"] == "holds when lam = 3, from afar, E = 1"
    long = bound.with_columns(T=pl.when(pl.col("T") == 5).then(189).otherwise(pl.col("T")))
    assert "lam = 0.3, E = 1; " in judged(long)["bound-not-vacuous"]


# ----------------------------------------------------------------------------- sooner, or not


def raced(bound, gap, spread):
    """The frame with None's error 1 and FedALIGN's more by `gap` for each case; seeds differ."""
    off = spread * (pl.col("seed") - bound["seed"].to_numpy().max() / 2)
    more = pl.col("case").replace_strict(gap, default=0.0, return_dtype=pl.Float64)
    mine = pl.col("method") == "FedALIGN"
    return bound.with_columns(error=pl.when(mine).then(1 + more + off).otherwise(1.0))


def test_early_effect_of_inclusion_is_paired_by_seed(bound):
    every = [case for case in bound["case"].unique() if case not in BROKEN]
    faster = raced(bound, dict.fromkeys(every, -0.1), 0.01)
    assert judged(faster)["sooner"] == "holds"
    slower = raced(bound, dict.fromkeys(every, 0.1), 0.01)
    assert judged(slower)["sooner"] == "does not hold: the opposite is clear"
    unclear = raced(bound, dict.fromkeys(every, -0.1), 0.2)
    assert judged(unclear)["sooner"] == "undecided: no clear difference"
    mixed = judged(raced(bound, {"lam = 3": -0.1, "lam = 0.3": 0.1}, 0.01))["sooner"]
    assert mixed.startswith("holds when lam = 3, E = 1, T = 1")
    assert ", the opposite is clear when lam = 0.3, E = 1, T = 1" in mixed
    worse = judged(raced(bound, {"lam = 0.3": 0.1}, 0.01))["sooner"]
    assert worse == "does not hold: the opposite is clear in 2 of 6 places"
    # Clear by itself, and not among six places.
    assert study.find_signs({"a": (1.0, np.array([-0.1, -0.08, -0.12]))}, 1) == {"a": -1}
    some = judged(raced(bound, {"lam = 3": -0.1}, 0.035))["sooner"]
    assert some == "undecided: no clear difference"
    assert judged(raced(bound, {"lam = 3": -0.1}, 0.02))["sooner"].startswith("holds when lam = 3")
    # What all seeds share is no doubt about the difference.
    both = faster.with_columns(error=pl.col("error") + 10 * pl.col("seed"))
    assert judged(both)["sooner"] == "holds"
    same = bound.with_columns(error=pl.lit(1.0))
    assert "the same runs" in numbers_by_id(same)["sooner"]
    assert judged(same)["sooner"].startswith("undecided")


def test_early_is_a_fortieth_and_a_tenth_of_the_run(bound):
    T = np.repeat(np.array([1, 10, 11, 39, 41, 400]), 4)
    some = bound.filter((pl.col("case") == "lam = 3") & (pl.col("steps") == 1))
    frame = pl.concat(
        some.filter((pl.col("method") == method) & (pl.col("T") == 1))[
            [0, 1, 2, 3] * 6
        ].with_columns(T=pl.Series(T), error=pl.Series(T * (0.5 if method == "None" else 1.0)))
        for method in ("None", "FedALIGN")
    )
    gaps = early_gaps(frame)
    assert {place: none for place, (none, _) in gaps.items()} == {
        "lam = 3, E = 1, T = 10": 5.0,
        "lam = 3, E = 1, T = 39": 19.5,
    }
    assert [gap.tolist() for _, gap in gaps.values()] == [[5.0] * 4, [19.5] * 4]


# ------------------------------------------------------------------------------- Corollary 2


def test_verdicts_of_corollary_2(corollary2):
    assert judged(corollary2) == {"corollary2": "does not hold", "eps-0-is-enough": "holds"}
    # Were it to hold, the verdict would say so.
    mended = corollary2.with_columns(error=pl.col("error") / pl.col("round"))
    assert judged(mended)["corollary2"] == "holds"
    stuck = corollary2.with_columns(error=pl.col("limit"))
    assert judged(stuck)["eps-0-is-enough"] == "does not hold"


def test_one_seed_has_no_interval(bound):
    one = bound.filter(pl.col("seed") == 0)
    assert all(judged(one)[id] == "holds" for id in REPAIRED)
