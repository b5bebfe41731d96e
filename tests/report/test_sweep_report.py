"""The report of a sweep: its tables in a terminal, and a figure in which every method is seen."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from muster.federation import Variation
from muster.report.style import LineStyle
from muster.report.sweep_report import (
    SLANTED,
    UPRIGHT,
    draw_sweep_figure,
    draw_sweep_panel,
    sweep_note,
    sweep_tables,
)
from muster.results.measures import MEASURES

KEYS = ["local.steps", "requirement.steps", "methods.b.local.lr"]
COMPARED = ("loss", "test_accuracy", "fairness", "mean_test_accuracy")


def summary(seeds=3, rounds=5):
    """A summary of eight cells and two methods."""
    several = seeds > 1
    rows = [
        {"local.steps": 1 + i // 4, "requirement.steps": 5 + i // 2 % 2,
         "methods.b.local.lr": (0.1, 0.2)[i % 2], "method": method, "round": rounds,
         "measure": measure, "seeds": seeds, "mean": 0.5, "half": 0.1 if several else None,
         "difference": 0.2, "difference_half": 0.1 if several else None, "clear": several,
         **Variation("data", 80, 20).table}
        for i in range(8) for method in "ab" for measure in COMPARED
    ]  # fmt: skip
    return pl.DataFrame(rows, schema_overrides={"half": pl.Float64, "difference_half": pl.Float64})


def test_rows_are_distinguishable_in_every_block():
    console = Console(width=80)
    with console.capture() as capture:
        console.print(*sweep_tables(summary(), KEYS))
    rows = [line.split() for line in capture.get().splitlines() if "0.500±" in line]
    assert sum(len(row) - 4 for row in rows) == 8 * 2 * 4, "every mean is there"
    assert len(rows) == 2 * 8 * 2, "in two blocks"
    assert len({tuple(row[:4]) for row in rows}) == 8 * 2
    assert capture.get().count("requirement") == 4, "two blocks of means, two of differences"


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([summary()], "Mean over 3 seeds after round 5, with its 95 % interval."),
        ([summary(1)], "One seed, after round 5: no intervals."),
        ([summary(1), summary(3)],
         "Mean over 1 to 3 seeds after round 5, with its 95 % interval where there are several."),
        ([summary(), summary(rounds=9)],
         "Mean over 3 seeds after the last round, with its 95 % interval."),
    ],
)  # fmt: skip
def test_the_note_says_what_the_points_are(parts, said):
    assert sweep_note(pl.concat(parts)) == said


@pytest.mark.parametrize(
    ("along", "named"),
    [
        ("methods.b.local.lr", ["b: lr", "local steps = 1, requirement steps = 5"]),
        ("local.steps", ["local steps", "requirement steps = 6, b: lr = 0.2"]),
    ],
)
def test_keys_have_their_names_in_the_figure(tmp_path, along, named):
    drawn = draw_sweep_figure(summary(1), KEYS, along, tmp_path / "a.svg").read_text()
    for said in (*named, "One seed, after round 5: no intervals."):
        assert f"<!-- {said} -->" in drawn


LOOKS = {name: LineStyle.of(i) for i, name in enumerate(("a", "b", "c"))}


def drawn(values, measure="test_accuracy", mean=0.9, half=0.3, ax=None):
    rows = [
        {"data.my_key": value, "method": name, "mean": mean, "half": half}
        for value in values
        for name in LOOKS
    ]
    ax = ax or Figure().subplots()
    frame = pl.DataFrame(rows, schema_overrides={"half": pl.Float64})
    draw_sweep_panel(ax, frame, "data.my_key", LOOKS, MEASURES[measure], "my key")
    return ax


@pytest.mark.parametrize(
    "values", [[1.0, 2.0, 3.0], [0.01, 1.0, 100.0], [0.0, 1.0, 100.0], ["low", "high"]]
)
def test_methods_with_equal_results_are_drawn_side_by_side(values):
    ax = drawn(values)
    ax.figure.canvas.draw()
    ends = [box.lines[0].get_xydata() for box in ax.containers]
    seen = [ax.transData.transform(xy)[:, 0] for xy in ends]
    assert np.diff(seen, axis=0).min() > 3  # pixels


def test_intervals_of_shares_end_at_0_and_1():
    def tops(ax):
        return [s[:, 1].max() for box in ax.containers for s in box.lines[2][0].get_segments()]

    assert max(tops(drawn([1.0, 2.0]))) == pytest.approx(1.0)
    assert max(tops(drawn([1.0, 2.0], "loss"))) == pytest.approx(1.2)


def test_a_single_seed_has_a_point_and_no_interval():
    ax = drawn([1.0, 2.0], half=None)
    assert all(np.isfinite(box.lines[0].get_ydata()).all() for box in ax.containers)
    caps = [cap.get_ydata() for box in ax.containers for cap in box.lines[1]]
    bars = [s[:, 1] for box in ax.containers for s in box.lines[2][0].get_segments() if len(s)]
    assert not np.isfinite(np.concatenate([*caps, *bars])).any()


def test_ticks_do_not_overlap():
    ax = drawn([10, 12, 50, 250])
    assert [t.get_text() for t in ax.get_xticklabels()] == ["10", "", "50", "250"]
    assert ax.get_xlabel() == "my key"


def test_numbers_of_several_sizes_are_spread_by_powers_of_ten_also_next_to_0():
    ax = drawn([5.0, 0.0, 0.1, 0.5])
    ax.figure.canvas.draw()
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "0.1", "0.5", "5"]
    at = ax.transData.transform([(x, 0.5) for x in (0.0, 0.1, 0.5, 5.0)])[:, 0]
    assert np.diff(at).min() > 0.2 * (at[-1] - at[0])


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([0.1, 3.0], "log"),
        ([0.1, 2.9], "linear"),
        ([0.0, 0.1, 3.0], "symlog"),
        ([0.0, 0.1, 2.9], "linear"),
        ([-1.0, 0.1, 3.0], "linear"),
        ([0.0], "linear"),
    ],
)
def test_the_axis_is_chosen_by_the_numbers(values, scale):
    assert drawn(values).get_xscale() == scale


KINDS = ["iid", "shards(per_client=2)", "label_mix(alpha=0.4)", "dirichlet(alpha=0.3)"]


@pytest.mark.parametrize(
    ("words", "angle"),
    [
        (["low", "medium", "high"], 0),
        (KINDS[1:], 0),  # in two lines
        ([*KINDS, "dirichlet(alpha=0.05,min_rows=2)"], SLANTED),
        ([f"/home/somebody/files/of/mine/number{i}.csv" for i in range(5)], SLANTED),
        ([f"dirichlet(alpha={i})" for i in range(18)], UPRIGHT),
        ([f"{'abcdefghij' * 4}{i}" for i in range(3)], SLANTED),
    ],
)
@pytest.mark.parametrize("across", [1, 3])
def test_words_are_all_legible(words, angle, across):
    fig = Figure((3.9 * across, 3.6), layout="constrained")
    ax = drawn(words, ax=np.ravel(fig.subplots(1, across))[0])
    fig.draw_without_rendering()
    texts = ax.get_xticklabels()
    assert [t.get_text().replace("\n", "") for t in texts] == words
    assert {t.get_rotation() for t in texts} == {angle}
    pitch = np.diff(ax.transData.transform([(0, 0.5), (1, 0.5)])[:, 0])[0]
    for text in texts:
        text.set_rotation(0)
    boxes = [t.get_window_extent() for t in texts]
    if angle:
        assert max(box.height for box in boxes) < pitch * np.sin(np.radians(angle))
    else:
        assert all(a.x1 < b.x0 for a, b in pairwise(boxes))
