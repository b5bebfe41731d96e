"""Cells, and what a sweep's frame says: intervals by an independent computation."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy import stats

from muster.base.errors import MusterError
from muster.report.sweep_report import draw_sweep_figure
from muster.study.grid import Cell, grid, parse_lists
from muster.study.sweep_result import Sweep

LABELS = ("a", "b")


def made(over, seeds=4, labels=LABELS, rounds=3):
    """A sweep of random numbers."""
    draw = np.random.default_rng(0)
    rows = [
        {**cell.values, "method": label, "seed": seed, "round": t + 1,
         "loss": draw.normal(), "test_accuracy": draw.uniform()}
        for cell in grid(over) for label in labels for seed in range(seeds) for t in range(rounds)
    ]  # fmt: skip
    return Sweep(pl.DataFrame(rows), dict(over), labels, tuple(range(seeds)))


def values(sweep, label, measure, **cell):
    """What each seed ended with, looked up row by row."""
    rows = sweep.frame.to_dicts()
    last = max(row["round"] for row in rows)
    found = {
        row["seed"]: row[measure]
        for row in rows
        if row["method"] == label and row["round"] == last
        and all(row[key] == value for key, value in cell.items())
    }  # fmt: skip
    return np.array([found[seed] for seed in sorted(found)])


def test_paired_intervals_are_scipys():
    sweep = made({"x": [1, 2, 3], "y": ["p", "q"]})
    summary = sweep.summary("loss, test_accuracy")
    assert len(summary) == 3 * 2 * 2 * 2
    for row in summary.iter_rows(named=True):
        cell = {"x": row["x"], "y": row["y"]}
        mine = values(sweep, row["method"], row["measure"], **cell)
        low, high = stats.t.interval(0.95, 3, mine.mean(), stats.sem(mine))
        assert row["mean"] == pytest.approx(mine.mean())
        assert 2 * row["half"] == pytest.approx(high - low)
        if row["method"] == "a":
            assert (row["difference"], row["clear"]) == (0.0, False)
            continue
        test = stats.ttest_rel(mine, values(sweep, "a", row["measure"], **cell))
        found = test.confidence_interval(0.95)
        assert row["difference"] - row["difference_half"] == pytest.approx(found.low)
        assert row["difference"] + row["difference_half"] == pytest.approx(found.high)
        assert row["clear"] == (test.pvalue < 0.05)


def test_only_seeds_that_every_method_finished_are_paired():
    whole = made({"x": [1, 2]})
    lost = (pl.col("x") == 1) & (pl.col("method") == "b") & (pl.col("seed") == 2)
    part = Sweep(whole.frame.filter(~lost), whole.over, LABELS, whole.seeds, complete=False)
    seeds = dict(part.summary("loss").group_by("x").agg(pl.col("seeds").unique()).iter_rows())
    assert seeds == {1: [3], 2: [4]}
    none = Sweep(whole.frame.filter(pl.col("method") == "a"), whole.over, LABELS, whole.seeds)
    with pytest.raises(MusterError, match="no seed of any cell has been finished by every method"):
        none.summary()
    with pytest.raises(MusterError, match="nothing is finished yet"):
        Sweep(pl.DataFrame(), whole.over, LABELS, whole.seeds).summary()


def test_a_measure_after_a_round_and_one_that_nobody_took():
    sweep = made({"x": [1, 2]})
    first = sweep.frame.filter(pl.col("round") == 1, pl.col("x") == 2, pl.col("method") == "b")
    (row,) = sweep.summary("loss", round=1).filter(x=2, method="b").to_dicts()
    assert row["mean"] == pytest.approx(first["loss"].mean())
    for round in (0, 4, 99):
        with pytest.raises(MusterError) as stop:
            sweep.summary("loss", round=round)
        assert str(stop.value) == f"round: {round}; allowed: whole numbers from 1 to 3"
    with pytest.raises(MusterError, match="measure 'fairness': none of these runs has it"):
        sweep.summary("fairness")
    with pytest.raises(MusterError, match="unknown measure 'speed'"):
        sweep.summary("speed")


def test_a_round_is_one_that_every_run_has(tmp_path):
    whole = made({"x": [1, 2]})
    short = (pl.col("x") == 1) & (pl.col("seed") == 2) & (pl.col("round") == 3)
    part = Sweep(whole.frame.filter(~short), whole.over, LABELS, whole.seeds)
    assert part.summary("loss", round=2)["round"].unique().to_list() == [2]
    with pytest.raises(MusterError, match="round: 3; allowed: whole numbers from 1 to 2"):
        part.figure(tmp_path / "a.png", "loss", round=3)


@pytest.mark.parametrize("ending", ["pdf", "svg"])
def test_it_is_drawn_against_a_key(tmp_path, ending):
    sweep = made({"data.noise": ["low", "high"], "x": [0.01, 0.1, 1.0]})
    for key in (None, "data.noise"):
        path = sweep.figure(tmp_path / f"{key}.{ending}", "loss", key)
        assert path.stat().st_size > 2000
    if ending == "svg":
        said = (tmp_path / "data.noise.svg").read_text()
        assert "<!-- low -->" in said
        assert "x = 0.01" in said
    with pytest.raises(MusterError, match="'y' was not swept; one of data"):
        sweep.figure(tmp_path / "a.png", key="y")


def test_too_many_panels_are_refused(tmp_path):
    sweep = made({"x": [1, 2], "y": list(range(7))})
    with pytest.raises(MusterError, match="7 cells besides 'x', at most 6 fit"):
        draw_sweep_figure(sweep.summary("loss"), sweep.keys, "x", tmp_path / "a.png")


def test_names_of_cells_are_stable_readable_and_different():
    assert Cell({"data.priority": 2, "local.lr": 0.1}).name == "data.priority=2,local.lr=0.1"
    wild = [Cell({"methods.fedavg on all.mu": v}).name for v in ("a/b", "a b", "../x", "é" * 300)]
    assert len(set(wild)) == 4
    assert all("/" not in name and len(name) < 120 and name[0] != "." for name in wild)
    assert Cell({"k": "a/b"}).name == Cell({"k": "a/b"}).name


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ({"x": 3}, "sweep.x: 3; give a list of values"),
        ({"x": "ab"}, "sweep.x: 'ab'; give a list"),
        ({"x": []}, "give a list of values"),
        ({"x": [1, 1]}, "sweep.x: 1, 1; give each value once"),
        ({"x": [None, 1]}, "sweep.x: None"),
    ],
)
def test_lists_are_lists(over, said):
    with pytest.raises(MusterError) as stop:
        parse_lists(over)
    assert said in str(stop.value)
