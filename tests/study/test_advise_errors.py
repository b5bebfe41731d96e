"""The error rates of verdicts where the truth is known: a wrong join in under 5 % of tables."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import muster
from muster.report.intervals import SampleMoments
from muster.study import advise_errors
from muster.study.advise import JOIN, Trials
from muster.study.advise_errors import (
    Study,
    collect,
    judge,
    list_groups,
    measure_errors,
    study_linear,
    study_means,
    summarise,
)


def wrong_joins(frame):
    return frame.filter((pl.col("verdict") == JOIN) & pl.col("wrong"))


@pytest.mark.parametrize("world", ["means", "linear"])
def test_hardly_any_table_has_a_wrong_join(world):
    frame = measure_errors(world, range(5_000, 5_060))
    assert wrong_joins(frame)["federation"].n_unique() <= 3, "5 % of 60"
    assert JOIN in frame["verdict"] or world == "means", "where gains are small"


@pytest.mark.slow
@pytest.mark.parametrize(("world", "count"), [("means", 1000), ("linear", 1000), ("synth", 40)])
def test_wrong_joins_are_under_five_per_cent(world, count):
    frame = measure_errors(world, range(6_000, 6_000 + count))
    bad = wrong_joins(frame)
    assert bad["federation"].n_unique() < 0.05 * count
    assert len(bad) < 0.05 * len(frame)


def test_the_true_loss_of_closed_worlds_is_that_of_many_rows():
    draw = np.random.default_rng(0)
    for study, loss in (
        (study_means, lambda x, e, model, mean: ((mean + x - model) ** 2).sum(1)),
        (study_linear, lambda x, e, model, mean: (x @ mean + e - x @ model) ** 2),
    ):
        seen = {}

        def spy(seed, fit, own, true_loss, sample, by_row, seen=seen):
            seen["true"] = true_loss
            return

        patch = pytest.MonkeyPatch()
        patch.setattr(advise_errors, "study_closed", spy)
        study(0)
        patch.undo()
        model, mean = draw.normal(size=(2, 6))
        x, e = draw.normal(size=(200_000, 6)), draw.normal(size=200_000)
        assert seen["true"](model, mean) == pytest.approx(loss(x, e, model, mean).mean(), rel=0.02)


def test_units_are_rows_or_seeds():
    loss = np.array([[1.0, np.nan, 3.0], [2.0, 5.0, np.nan]])  # [seed, row]
    held_out = {"alone": [loss], "with everyone": [loss - np.array([1.0, 2.0, 4.0])]}
    sizes, tested = np.array([3]), np.array([2])
    rows = collect(held_out, sizes, tested, True)
    assert rows.gains["with everyone", 0] == SampleMoments.of(np.array([1.0, 2.0, 4.0]))
    seeds = collect(held_out, sizes, tested, False)
    assert seeds.gains["with everyone", 0] == SampleMoments.of(np.array([2.5, 1.5]))
    assert seeds.ratio.tolist() == [2.0]


def test_a_verdict_is_judged_by_the_truth():
    gains = {
        ("with 1", 0): SampleMoments(50, 1.0, 0.1),
        ("with 0", 1): SampleMoments(50, -1.0, 0.1),
    }
    trials = Trials(np.ones(2), gains, np.zeros(2), [50, 50], {"with 0": 0, "with 1": 1})
    for better, wrong in ((0.5, False), (-0.5, True)):
        truth = {
            "alone": np.ones((2, 2)),
            "with 0": np.full((2, 2), 2.0),
            "with 1": np.full((2, 2), 1.0 - better),
        }
        first, second = judge(Study(trials, truth))
        assert (first["verdict"], first["wrong"]) == ("join", wrong)
        assert second["verdict"] == "help"


def test_groups_and_names():
    assert list_groups(2).keys() == {"alone", "with 0", "with 1"}
    assert list_groups(3)["with everyone"] == [(0, 1, 2)] * 3
    with pytest.raises(muster.MusterError, match="unknown world 'mean'"):
        measure_errors("mean", [0])


def test_the_summary_counts():
    rows = [
        {"world": "w", "federation": i, "client": 0, "rows": 9, "verdict": "join", "wrong": i == 0,
         "gains": True}
        for i in range(4)
    ]  # fmt: skip
    ((world, tables, clients, joins, wrong, *_, most, share, found),) = summarise(
        pl.DataFrame(rows)
    )
    assert (world, tables, clients, joins, wrong) == ("w", "4", "4", "4", "1")
    assert (most, share, found) == ("75.1 %", "25.0 %", "100 %")
