"""Where methods end along a key: all of them can be seen, and nothing is drawn that cannot be."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure

from muster.report.style import Look
from muster.report.swept import draw_against
from muster.run.measures import MEASURES

LOOKS = {name: Look.of(i) for i, name in enumerate(("a", "b", "c"))}


def drawn(values, measure="test_accuracy", mean=0.9, half=0.3):
    rows = [
        {"data.my_key": value, "method": name, "mean": mean, "half": half}
        for value in values
        for name in LOOKS
    ]
    ax = Figure().subplots()
    draw_against(ax, pl.DataFrame(rows), "data.my_key", LOOKS, MEASURES[measure], "my key")
    return ax


@pytest.mark.parametrize("values", [[1.0, 2.0, 3.0], [0.01, 1.0, 100.0], ["low", "high"]])
def test_methods_that_come_to_the_same_stand_next_to_each_other(values):
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


def test_ticks_do_not_run_into_each_other():
    ax = drawn([10, 12, 50, 250])
    assert [t.get_text() for t in ax.get_xticklabels()] == ["10", "", "50", "250"]
    assert ax.get_xlabel() == "my key"
