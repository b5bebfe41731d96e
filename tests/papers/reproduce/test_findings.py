"""Claims are judged by paired intervals, checked here against scipy, and by nothing else."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy import stats

from muster.base.errors import MusterError
from muster.federation import Variation
from muster.papers.reproduce.findings import compute_findings, holds, side_values
from muster.papers.reproduce.judge import describe_outcome, find_failures, judge
from muster.papers.reproduce.paper_experiment import PaperClaim
from muster.report.intervals import Interval

WHERE = {"id": "c", "says": "a is above b", "where": "nowhere"}


def runs(values, panel="p", **keys):
    """Results of methods, each a list with one number per seed, after rounds 1 and 2."""
    rows = [
        {
            "panel": panel,
            **keys,
            "method": m,
            "seed": s,
            "round": t,
            "test_accuracy": v - (2 - t) * 0.5,
        }
        for m, mine in values.items()
        for s, v in enumerate(mine)
        for t in (1, 2)
    ]
    return pl.DataFrame(rows)


def claim(left, right, **more):
    return PaperClaim.of(
        {**WHERE, "left": {"measure": "test_accuracy", **left}, "right": right, **more}
    )


def test_the_interval_is_that_of_the_paired_difference():
    draw = np.random.default_rng(0)
    base = draw.normal(size=8)
    a, b = base + 0.3 + 0.1 * draw.normal(size=8), base
    (found,) = compute_findings(claim({"method": "a"}, {"method": "b"}), runs({"a": a, "b": b}), [])
    low, high = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (found.gap.mean - found.gap.half, found.gap.mean + found.gap.half) == pytest.approx(
        (low, high), rel=1e-9
    )
    assert found.seeds == 8
    assert found.holds is True
    # The means alone overlap: only the pairing shows it.
    assert found.left.mean - found.left.half < found.right.mean + found.right.half


@pytest.mark.parametrize(
    ("shift", "word"),
    [
        (0.5, "holds"),
        (-0.5, "does not hold: the opposite is clear"),
        (0.0, "undecided: no clear difference"),
    ],
)
def test_the_verdict_follows_the_interval(shift, word):
    noise = np.array([-0.1, 0.05, 0.1, -0.05, 0.0])
    frame = runs({"a": shift + noise, "b": np.zeros(5)})
    assert judge(claim({"method": "a"}, {"method": "b"}), frame, [], "").word == word


def test_a_claim_that_holds_in_some_cells_says_in_which():
    few, many = (
        runs({"a": [1.0, 1.1], "b": [0.0, 0.101]}, k=1),
        runs({"a": [0.0, 0.1], "b": [1.0, 1.101]}, k=5),
    )
    verdict = judge(claim({"method": "a"}, {"method": "b"}), pl.concat([few, many]), ["k"], "")
    assert verdict.word == "mixed: holds when k 1; the opposite is clear when k 5"
    assert [f.holds for f in verdict.findings] == [True, False]


def test_cells_are_compared_with_each_other_where_a_side_names_one():
    frame = pl.concat([runs({"a": [1.0, 2.0]}, k=1), runs({"a": [3.0, 4.0]}, k=5)])
    asked = claim({"method": "a", "k": 5}, {"k": 1})
    (found,) = compute_findings(asked, frame, ["k"])
    assert found.gap.mean == pytest.approx(2.0)
    assert found.holds


def test_each_other_method_is_a_cell_and_a_number_can_be_a_side():
    frame = runs({"a": [1.0, 1.1], "b": [0.0, 0.101], "c": [2.0, 2.101]})
    verdict = judge(claim({"method": "a"}, {"method": "*"}), frame, [], "")
    assert verdict.word == "mixed: holds when against b; the opposite is clear when against c"
    fixed = claim({"method": "a"}, {"value": 1.05}, **{"is": "about", "margin": 1.0})
    assert judge(fixed, frame, [], "").word == "holds"


def test_rounds_are_the_last_one_until_a_round_or_the_mean_over_some():
    frame = runs({"a": [1.0]})
    side = {"method": "a", "measure": "test_accuracy"}
    assert side_values(frame, side) == {0: 1.0}
    assert side_values(frame, {**side, "rounds": 1}) == {0: 0.5}
    assert side_values(frame, {**side, "rounds": [1, 2]}) == {0: 0.75}


def test_rounds_as_shares_of_the_run_mean_the_same_in_a_short_one():
    side = {"method": "a", "measure": "test_accuracy", "rounds": [0.0, 0.5]}
    long = pl.DataFrame(
        {"method": "a", "seed": 0, "round": range(1, 101), "test_accuracy": range(1, 101)}
    )
    assert side_values(long, side) == {0: 25.5}
    assert side_values(long.filter(pl.col("round") <= 20), side) == {0: 5.5}
    assert side_values(long, {**side, "rounds": [0.1, 0.3]}) == {0: 20.5}
    # A round that was not measured is no value, and never an earlier round's.
    assert side_values(long.filter(pl.col("round") % 4 == 0), {**side, "rounds": 50}) == {}


@pytest.mark.parametrize("lost", [None, float("nan"), float("inf")])
def test_a_seed_that_diverged_leaves_its_cell_undecided(lost):
    frame = runs({"a": [1.0, 1.1, 1.2], "b": [0.0, 0.1, 0.21]})
    there = (pl.col("method") == "b") & (pl.col("seed") == 1) & (pl.col("round") == 2)
    gone = frame.with_columns(
        test_accuracy=pl.when(there).then(lost).otherwise(pl.col("test_accuracy"))
    )
    asked = claim({"method": "a"}, {"method": "b"})
    assert judge(asked, frame, [], "").word == "holds"
    verdict = judge(asked, gone, [], "")
    assert verdict.word == "undecided: 1 of 3 seeds diverged"
    (found,) = verdict.findings
    assert (found.holds, found.diverged, found.seeds) == (None, 1, 3)
    assert found.gap.mean == pytest.approx(0.995)
    assert "1 of 3 seeds diverged" in find_failures(asked, gone, [])[0]
    over = claim({"method": "a", "rounds": [1, 2]}, {"method": "b"})
    assert judge(over, gone, [], "").word == "undecided: 1 of 3 seeds diverged"


def test_panels_that_were_not_run_are_named():
    frame = runs({"a": [1.0, 1.1], "b": [0.0, 0.101]}, "fmnist")
    asked = claim({"method": "a"}, {"method": "b"}, panels=["fmnist", "emnist", "cifar10"])
    assert judge(asked, frame, [], "").word == "holds on fmnist; emnist, cifar10 not run"
    against = claim({"method": "b"}, {"method": "a"}, panels=["fmnist", "emnist"])
    word = "does not hold: the opposite is clear; emnist not run"
    assert judge(against, frame, [], "").word == word


def test_equal_numbers_are_not_unclear_and_refute_what_is_claimed_of_every_cell():
    frame = runs({"a": [1.0, 1.1], "b": [1.0, 1.1], "c": [0.0, 2.0]})
    # The runs are not the same: another measure of their models differs.
    frame = frame.with_columns(loss=pl.col("method").replace_strict({"a": 0.1, "b": 0.2, "c": 0.3}))
    same = judge(claim({"method": "a"}, {"method": "b"}), frame, [], "")
    assert same.word == "does not hold: both are equal in every seed"
    assert same.findings[0].answer == "equal"
    some = judge(claim({"method": "a"}, {"method": ["b", "c"]}), frame, [], "")
    assert some.word == "does not hold: both are equal in every seed when against b"
    for relation in ("about", "not below"):
        asked = claim({"method": "a"}, {"method": "c"}, **{"is": relation, "margin": 0.1})
        assert judge(asked, frame, [], "").word == "undecided: no clear difference"
    both = claim({"method": "a"}, {"method": ["b", "c"]}, **{"is": "about", "margin": 0.1})
    assert judge(both, frame, [], "").word == "holds when against b"


@pytest.mark.parametrize(
    ("relation", "margin", "b", "answer", "word"),
    [
        ("above", 0.5, 0.8, "less", "does not hold: it is clearly less than that"),
        ("above", 0.5, 2.0, "opposite", "does not hold: the opposite is clear"),
        ("below", 0.5, 1.2, "less", "does not hold: it is clearly less than that"),
        ("not below", 0.5, 2.0, "lower", "does not hold: it is clearly lower"),
        ("about", 0.5, 2.0, "different", "does not hold: it clearly differs"),
    ],
)
def test_findings_against_a_claim_are_stated(relation, margin, b, answer, word):
    # Ahead by 0.2 where 0.5 is claimed is less than that, and not the opposite.
    frame = runs({"a": [1.0, 1.01, 0.99], "b": [b, b + 0.011, b - 0.01]})
    asked = claim({"method": "a"}, {"method": "b"}, **{"is": relation, "margin": margin})
    verdict = judge(asked, frame, [], "")
    assert (verdict.findings[0].answer, verdict.word) == (answer, word)


def test_cells_of_the_same_differences_are_one_test():
    draw = np.random.default_rng(1)
    noise = draw.normal(size=6)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    clear, unclear = noise + 1.35, noise * 10
    assert 0.025 / 3 < p_values([clear])[0] < 0.025 / 2
    cells = [clear, clear, unclear]
    frame = pl.concat([runs({"a": gap, "b": 0 * gap}, k=i) for i, gap in enumerate(cells)])
    verdict = judge(claim({"method": "a"}, {"method": "b"}), frame, ["k"], "")
    assert verdict.word == "holds when k 0; k 1"
    other = pl.concat([frame.filter(pl.col("k") != 1),
                       runs({"a": clear + 1e-9, "b": 0 * clear}, k=1)])  # fmt: skip
    verdict = judge(claim({"method": "a"}, {"method": "b"}), other, ["k"], "")
    assert verdict.word == "undecided: no cell is clear among 3 (2 by themselves for it)"


def test_cells_of_one_panel_are_listed_together_and_sides_by_name():
    frame = pl.concat(
        [runs({"a": [1.0, 1.1], "b": [0.0, 0.101], "c": [0.1, 0.201]}, p) for p in ("x", "y")]
        + [runs({"a": [1.0, 1.1], "b": [2.0, 2.101], "c": [2.1, 2.201]}, "z")]
    )
    verdict = judge(claim({"method": "a"}, {"method": "*"}), frame, [], "")
    assert verdict.word == (
        "mixed: holds when x (against b, c); y (against b, c); "
        "the opposite is clear when z (against b, c)"
    )
    assert (verdict.kind, verdict.tally) == ("mixed", "4 of 6")
    assert [f.names for f in verdict.findings[:2]] == [("a", "b"), ("a", "c")]
    early = claim({"method": "a"}, {"rounds": 1})
    assert compute_findings(early, frame, [])[0].names == ("a", "a, round 1")
    lead = claim({"method": "a", "minus": "b", "panel": "x"}, {"panel": "y"})
    assert compute_findings(lead, frame, [])[0].names == ("a less b, x", "a less b, y")


def test_who_took_part_is_stated():
    frame = runs({"a": [1.0, 1.1, 1.2], "b": [0.0, 0.1, 0.2]})
    took = frame.with_columns(
        admitted_nonpriority=pl.when(pl.col("method") == "a").then(3.0).otherwise(0.0),
        pool=pl.when((pl.col("round") == 2) & (pl.col("seed") == 1)).then(0).otherwise(5),
    )
    (found,) = compute_findings(claim({"method": "a"}, {"method": "b"}), took, [])
    assert found.participation == "others admitted 3.0 / 0.0; everybody left in 1 / 1 runs"
    (found,) = compute_findings(claim({"method": "a"}, {"method": "b"}), frame, [])
    assert found.participation == ""
    stayed = took.with_columns(admitted_nonpriority=0.0, pool=5)
    (found,) = compute_findings(claim({"method": "a"}, {"method": "b"}), stayed, [])
    assert found.participation == ""


def p_values(gaps):
    return [stats.ttest_1samp(gap, 0, alternative="greater").pvalue for gap in gaps]


def test_cells_that_a_verdict_names_stand_up_to_holm():
    # Three cells: one clear beyond doubt, one clear by itself alone, one not at all.
    draw = np.random.default_rng(1)
    noise = draw.normal(size=(3, 6))
    noise -= noise.mean(axis=1, keepdims=True)
    noise /= noise.std(axis=1, ddof=1, keepdims=True)
    gaps = noise + np.array([[9.0], [1.1], [0.0]])
    p = p_values(gaps)
    assert p[0] < 0.025 / 3
    assert 0.025 / 2 < p[1] < 0.025
    frame = pl.concat([runs({"a": gap, "b": 0 * gap}, k=i) for i, gap in enumerate(gaps)])
    asked = claim({"method": "a"}, {"method": "b"})
    verdict = judge(asked, frame, ["k"], "")
    assert [(f.holds, f.sure) for f in verdict.findings] == [
        (True, True), (True, False), (None, False),
    ]  # fmt: skip
    assert verdict.word == "holds when k 0"
    # All cells together need no correction: the worst of them decides.
    assert judge(asked, frame.filter(pl.col("k") < 2), ["k"], "").word == "holds"


def test_a_list_of_methods_or_values_is_a_cell_for_each():
    frame = pl.concat(
        [runs({"a": [k, k + 0.1], "b": [0, 0.1], "c": [1, 1.1]}, k=k) for k in (0.0, 2.0, 4.0)]
    )
    some = claim({"method": "a", "k": [2.0, 4.0]}, {"method": ["b", "c"]})
    cells = [f.cell for f in compute_findings(some, frame, ["k"])]
    assert [(c["k"], c["against"]) for c in cells] == [
        (2.0, "b"), (2.0, "c"), (4.0, "b"), (4.0, "c"),
    ]  # fmt: skip
    against = claim({"method": "a", "k": [2.0, 4.0]}, {"k": 0.0})
    assert [f.gap.mean for f in compute_findings(against, frame, ["k"])] == pytest.approx(
        [2.0, 4.0]
    )
    best = compute_findings(claim({"method": "a", "k": 4.0}, {"k": [0.0, 2.0]}), frame, ["k"])
    assert [f.cell["against"] for f in best] == ["k 0.0", "k 2.0"]
    assert [f.gap.mean for f in best] == pytest.approx([4.0, 2.0])


def test_a_lead_over_one_method_can_be_compared_between_cells():
    frame = pl.concat(
        [
            runs({"a": [1.0, 1.2], "b": [0.0, 0.1]}, "x"),
            runs({"a": [3.0, 3.2], "b": [0.0, 0.1]}, "y"),
        ]
    )
    asked = claim({"method": "a", "minus": "b", "panel": "x"}, {"panel": "y"}, **{"is": "below"})
    found = compute_findings(asked, frame, [])
    assert [f.gap.mean for f in found] == [pytest.approx(-2.0)]


def test_two_measures_can_be_correlated_over_the_methods():
    draw = np.random.default_rng(3)
    acc = draw.normal(size=(4, 6))
    other = acc + 0.3 * draw.normal(size=(4, 6))
    frame = runs({f"m{i}": mine for i, mine in enumerate(acc)}).join(
        runs({f"m{i}": mine for i, mine in enumerate(other)}).rename({"test_accuracy": "appeal"}),
        on=["panel", "method", "seed", "round"],
    )
    asked = PaperClaim.of(
        {**WHERE, "left": {"measure": "test_accuracy", "with": "appeal"}, "right": {"value": 0}}
    )
    (found,) = compute_findings(asked, frame, [])
    expected = [stats.pearsonr(acc[:, s], other[:, s]).statistic for s in range(6)]
    assert found.each == pytest.approx(expected)
    assert found.holds
    assert found.names == ("correlation over methods", "")


def test_one_seed_decides_nothing_and_what_was_not_run_is_named():
    one = judge(claim({"method": "a"}, {"method": "b"}), runs({"a": [1.0], "b": [0.0]}), [], "")
    assert one.word == "undecided: no clear difference"
    none = judge(claim({"method": "a"}, {"method": "b"}), None, [], "get it")
    assert (none.word, none.needs) == ("not run here", "get it")


@pytest.mark.parametrize(
    ("relation", "mean", "half", "margin", "expected"),
    [
        ("above", 0.2, 0.1, 0.0, True),
        ("above", -0.2, 0.1, 0.0, False),
        ("below", -0.2, 0.1, 0.0, True),
        ("below", 0.2, 0.3, 0.0, None),
        ("about", 0.0, 0.01, 0.05, True),
        ("about", 0.2, 0.01, 0.05, False),
        ("about", 0.04, 0.02, 0.05, None),
        ("not below", -0.01, 0.01, 0.05, True),
        ("not below", -0.2, 0.01, 0.05, False),
        ("above", 1.0, float("nan"), 0.0, None),
    ],
)
def test_relations(relation, mean, half, margin, expected):
    assert holds(Interval(mean, half), relation, margin) is expected


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"nosuch": 1}, "unknown key 'nosuch'"),
        ({"left": {"measure": "test_accuracy"}}, "left has no method"),
        ({"is": "higher"}, "higher"),
        (
            {"left": {"method": "a", "measure": "test_accuracy", "rounds": 0.5}},
            "give a round, a range",
        ),
        (
            {"left": {"method": "a", "measure": "test_accuracy", "rounds": [0.5, 1]}},
            "give a round, a range",
        ),
    ],
)
def test_a_claim_written_wrong_is_one_line(table, said):
    whole = {
        **WHERE,
        "left": {"method": "a", "measure": "test_accuracy"},
        "right": {"method": "b"},
        **table,
    }
    with pytest.raises(MusterError, match=said):
        PaperClaim.of(whole)


def with_admitted(frame, count):
    return frame.with_columns(admitted_nonpriority=pl.lit(float(count)))


def test_a_run_that_is_compared_with_itself_is_no_test():
    """With nobody admitted FedALIGN is training on the priority clients alone: that its loss is not
    lower says nothing of whom it admits."""
    none = with_admitted(runs({"a": [1.0, 1.1], "b": [1.0, 1.1]}), 0)
    some = with_admitted(runs({"a": [1.0, 1.1], "b": [1.0, 1.1]}), 2)
    (found,) = compute_findings(claim({"method": "a"}, {"method": "b"}), none, [])
    assert (found.answer, found.holds, found.why) == ("no test", None, "nobody was admitted")
    assert describe_outcome(found, [found]) == "no test: nobody was admitted"
    verdict = judge(claim({"method": "a"}, {"method": "b"}), none, [], "")
    assert (verdict.word, verdict.kind) == ("not tested: nobody was admitted", "not tested")
    (found,) = compute_findings(claim({"method": "a"}, {"method": "b"}), some, [])
    assert found.why == "both were the same run"
    # Identity claims are tests of it.
    for relation in ("about", "not below"):
        same = claim({"method": "a"}, {"method": "b"}, **{"is": relation, "margin": 0.1})
        assert judge(same, none, [], "").word == "holds"


def test_one_seed_with_different_runs_is_no_test():
    """In three of four seeds nobody was admitted, and in the fourth the numbers happen to be the
    same after the last round: that is no evidence against a difference."""
    values = [1.0, 1.1, 1.2, 1.3]
    frame = with_admitted(runs({"a": values, "b": values}), 0)
    other = (pl.col("seed") == 3) & (pl.col("method") == "a") & (pl.col("round") == 1)
    moved = pl.col("test_accuracy") + pl.when(other).then(0.1).otherwise(0.0)
    admitted = pl.col("admitted_nonpriority") + pl.when(other).then(2.0).otherwise(0.0)
    one = frame.with_columns(moved, admitted)
    verdict = judge(claim({"method": "a"}, {"method": "b"}), one, [], "")
    assert verdict.word == "not tested: nobody was admitted in 3 of 4 seeds"
    late = (pl.col("seed") == 2) & (pl.col("method") == "a") & (pl.col("round") == 1)
    two = one.with_columns(pl.col("test_accuracy") + pl.when(late).then(0.1).otherwise(0.0))
    (found,) = compute_findings(claim({"method": "a"}, {"method": "b"}), two, [])
    assert found.answer == "equal", "two seeds tell them apart, and have the same numbers"


def test_cells_that_are_no_test_count_neither_for_nor_against():
    shifted = [1.5, 1.61, 1.7]
    frame = pl.concat(
        [
            with_admitted(runs({"a": shifted, "b": [1.0, 1.1, 1.2]}, noise="low"), 2),
            with_admitted(runs({"a": [1.0, 1.1, 1.2], "b": [1.0, 1.1, 1.2]}, noise="high"), 0),
        ]
    )
    for sides, word, kind, tally in (
        (("a", "b"), "holds; no test when noise high", "holds", "1 of 1 (1 no test)"),
        (("b", "a"), "does not hold: the opposite is clear; no test when noise high",
         "does not hold", "0 of 1 (1 no test)"),
    ):  # fmt: skip
        left, right = ({"method": m} for m in sides)
        verdict = judge(claim(left, right), frame, ["noise"], "")
        assert (verdict.word, verdict.kind, verdict.tally) == (word, kind, tally)


def test_what_rounds_count_is_compared_though_the_models_are_the_same():
    frame = with_admitted(runs({"a": [1.0, 1.1], "b": [1.0, 1.1]}), 0)
    asked = PaperClaim.of(
        {**WHERE, "left": {"method": "a", "measure": "admitted_nonpriority"},
         "right": {"method": "b"}}
    )  # fmt: skip
    assert judge(asked, frame, [], "").word == "does not hold: both are equal in every seed"


def test_the_glance_counts_the_cells_that_the_verdict_names():
    """Of many cells that are clear by themselves only those that stand up to the correction are
    named, and only those are counted as holding."""
    draw = np.random.default_rng(3)
    parts = []
    for i, (shift, noise) in enumerate([(1.0, 0.01), *[(0.13, 0.1)] * 9, (0.0, 0.1)]):
        b = draw.normal(size=5)
        parts.append(runs({"a": b + shift + noise * draw.normal(size=5), "b": b}, place=i))
    verdict = judge(claim({"method": "a"}, {"method": "b"}), pl.concat(parts), ["place"], "")
    named = [f for f in verdict.findings if f.answer == "holds" and f.sure]
    alone = [f for f in verdict.findings if f.answer == "holds" and not f.sure]
    assert named
    assert alone
    assert verdict.word.startswith("holds when ")
    assert verdict.word.count("place") == len(named)
    assert verdict.tally.startswith(f"{len(named)} of 11 ({len(alone)} more by ")


def test_seeds_that_split_the_same_rows_again_decide_less():
    a, b = np.array([1.0, 1.12, 1.2, 1.33, 1.4]), np.array([0.9, 1.0, 1.15, 1.2, 1.31])
    plain = runs({"a": a, "b": b})
    told = {"varies": "split", "train_rows": 75, "test_rows": 25}
    split = plain.with_columns(*(pl.lit(v).alias(k) for k, v in (Variation(**told).table).items()))
    asked = claim({"method": "a"}, {"method": "b"})
    (one,), (two,) = compute_findings(asked, plain, []), compute_findings(asked, split, [])
    assert one.gap.half * np.sqrt((1 / 5 + 1 / 3) / (1 / 5)) == pytest.approx(two.gap.half)
    # Holm's correction is by the same intervals.
    wide = plain.with_columns(
        *(pl.lit(v).alias(k) for k, v in Variation("split", 2, 98).table.items())
    )
    assert judge(asked, plain, [], "").word == "holds"
    assert judge(asked, wide, [], "").word == "undecided: no clear difference"
