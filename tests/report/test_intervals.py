"""Intervals, against numbers worked out by hand and against what they must cover."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy import stats

import muster
from muster.base.registry import part
from muster.data import federate, hold_out
from muster.federation import Variation
from muster.parts import Step
from muster.report.figure import figure_caption
from muster.report.intervals import Interval, correction_ratio, mean_and_half
from muster.report.table_files import write_table
from muster.results.measures import MEASURES


@pytest.mark.parametrize("ratio", [0.0, 0.25, 1 / 3, 4.0])
@pytest.mark.parametrize("among", [1, 6])
def test_the_half_width_is_that_of_nadeau_and_bengio(ratio, among):
    values = np.random.default_rng(0).normal(size=(5, 3))
    mean, half = mean_and_half(values, among, ratio)
    deviation = np.sqrt(((values - values.mean(0)) ** 2).sum(0) / 4)
    quantile = stats.t.ppf(1 - 0.025 / among, 4)
    assert mean == pytest.approx(values.mean(0), rel=1e-12)
    assert half == pytest.approx(quantile * deviation * np.sqrt(1 / 5 + ratio), rel=1e-9)
    plain = Interval.of(values[:, 0], among)
    wide = Interval.of(values[:, 0], among, ratio)
    assert wide.half == pytest.approx(plain.half * np.sqrt((1 / 5 + ratio) / (1 / 5)), rel=1e-12)


def test_a_measure_of_training_rows_is_widened_by_what_they_share():
    split = Variation("split", 75, 25)
    assert correction_ratio(split, MEASURES["test_loss"]) == pytest.approx(1 / 3)
    assert correction_ratio(split, MEASURES["loss"]) == pytest.approx(3)
    assert correction_ratio(split, MEASURES["admitted"]) == pytest.approx(3)
    dealt = Variation("deal and split", 75, 25, objective_share=0.2, seen_share=0.6)
    for name, m in (
        ("test_loss", 5),
        ("loss", 15),
        ("gm_appeal", 45),
        ("gm_appeal_test_unseen", 10),
    ):
        assert correction_ratio(dealt, MEASURES[name]) == pytest.approx(m / (100 - m))


def test_every_measure_of_training_rows_names_its_twin_on_held_out_rows():
    """By that the two are told apart: one that looks at training rows and does not say so would get
    intervals that are too narrow."""
    looks_at_training = [
        m for m in MEASURES.values()
        if m.of is not None and "test" not in m.name and "preferred" not in m.name
    ]  # fmt: skip
    assert looks_at_training
    assert all(m.held_out for m in looks_at_training)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            lambda s: muster.data.digits(clients=4, seed=s),
            "2 seeds that deal to clients and split the same 1424 rows",
        ),
        (
            muster.data.digits(clients=4),
            "2 seeds on the same clients and rows: intervals cover the",
        ),
        (lambda s: muster.data.synth(seed=s, max_rows=60), "2 seeds that each draw new data"),
    ],
)
def test_every_view_of_a_comparison_says_what_its_intervals_cover(data, said, tmp_path):
    methods = [muster.methods.fedavg(), muster.methods.fedavg_priority()]
    done = muster.compare(data, methods, muster.models.Softmax(), rounds=1, seeds=2)
    console = Console(width=300, file=io.StringIO())
    console.print(done)
    assert said in console.file.getvalue()
    page = done.report(tmp_path / "report.html").read_text()
    assert page.count(said) >= 3  # the answer, the curves and the differences
    assert said in figure_caption(done.runs)
    assert f"95 % over {said}" in write_table(done.summary(), tmp_path / "a.tex").read_text()
    assert "varies" in write_table(done.summary(), tmp_path / "a.csv").read_text()


# What intervals must cover. Labels hang on two halves of the features alike, so that a model of one
# half is as good as one of the other: over all data sets their difference is 0.
ROWS, HALF = 120, 3


def drawn(seed):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(ROWS, 2 * HALF))
    return x, x.sum(1) + draw.normal(size=ROWS)


def losses(x, y, fit, judge):
    """Held-out and training losses of the two halves, one less the other."""
    gaps = []
    for rows in (judge, fit):
        each = []
        for mine in (slice(0, HALF), slice(HALF, None)):
            w = np.linalg.lstsq(x[fit, mine], y[fit], rcond=None)[0]
            each.append(np.mean((x[rows, mine] @ w - y[rows]) ** 2))
        gaps.append(each[0] - each[1])
    return gaps


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seeds", "dealt", "most"), [(5, 120, 0.9), (20, 120, 0.65), (20, 60, 0.85)]
)
def test_corrected_intervals_cover_what_plain_ones_miss(seeds, dealt, most):
    """Of all rows, or of half of them, which every seed deals again; a quarter is held out."""
    variation = Variation("deal and split", 90, 30, seen_share=dealt / ROWS)
    covered = {"plain": [], "held out": [], "training": [], "training, as if held out": []}
    for data in range(400):
        x, y = drawn(data)
        draw = np.random.default_rng(10_000 + data)
        orders = [draw.permutation(ROWS) for _ in range(seeds)]
        cut = dealt // 4
        held_out, training = np.array([losses(x, y, o[cut:dealt], o[:cut]) for o in orders]).T
        as_test, as_train = variation.ratio(True, "seen"), variation.ratio(False, "seen")
        for name, gaps, ratio in (
            ("plain", held_out, 0.0),
            ("held out", held_out, as_test),
            ("training", training, as_train),
            ("training, as if held out", training, as_test),
        ):
            covered[name].append(not Interval.of(gaps, ratio=ratio).excludes_zero)
    share = {name: np.mean(hits) for name, hits in covered.items()}
    assert share["plain"] < most
    assert share["held out"] > 0.92
    assert share["training"] > 0.92
    assert share["training, as if held out"] < 0.8


@part(Step, "test half of the features")
@dataclass(frozen=True)
class OneHalf:
    """The mean of the replies, with the weights of one half of the features alone."""

    first: bool
    only_mean = False

    def memory(self, model, seen):
        return {}

    def __call__(self, offer, replies, weight, server):
        new = {}
        for name, t in replies.models.items():
            share = torch.from_numpy(weight / weight.sum()).to(t.dtype)
            new[name] = torch.tensordot(share, t, dims=1)
            if new[name].shape[-1] == 2 * HALF:
                new[name][..., slice(HALF, None) if self.first else slice(0, HALF)] = 0
        return new, server


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_comparison_of_equal_methods_stars_few_of_them():
    """The whole way: two clients whose rows every seed splits again, two methods that are equally
    good, and the stars of the table."""
    methods = {
        name: muster.Method(name, step=OneHalf(name == "first")) for name in ("first", "second")
    }
    seeds, stars = 20, {"corrected": 0, "plain": 0}
    for data in range(24):
        x, y = drawn(data)

        def federation(seed, x=x, y=y):
            parts = [np.arange(0, ROWS // 2), np.arange(ROWS // 2, ROWS)]
            train, test = hold_out(parts, np.zeros(ROWS, np.int64), 0.25, seed)
            return federate(x, y, train, test_parts=test, classes=0, varies="split")

        done = muster.compare(
            federation, methods, muster.models.Linear(), rounds=6, seeds=seeds,
            local=muster.Local(steps=4, batch_size=45, lr=0.2),
            task=muster.tasks.regression(), evaluate_every=0,
        )  # fmt: skip
        (row,) = done.summary(measures="test_loss").filter(method="second").to_dicts()
        stars["corrected"] += row["clear"]
        plain = row["difference_half"] / np.sqrt((1 / seeds + 1 / 3) / (1 / seeds))
        stars["plain"] += abs(row["difference"]) > plain
    assert stars["plain"] >= 6  # of 24, where 1 would be right
    assert stars["corrected"] <= 2
