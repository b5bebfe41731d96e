"""What a sweep came to: its tables in a terminal, and what its figure says."""

from __future__ import annotations

import polars as pl
import pytest
from rich.console import Console

from muster.federation import Variation
from muster.report.sweep_figure import draw_sweep_figure, sweep_note
from muster.report.sweep_tables import sweep_tables

KEYS = ["local.steps", "requirement.steps", "methods.b.local.lr"]
MEASURES = ("loss", "test_accuracy", "fairness", "mean_test_accuracy")


def summary(seeds=3, rounds=5):
    """A summary of eight cells and two methods."""
    several = seeds > 1
    rows = [
        {"local.steps": 1 + i // 4, "requirement.steps": 5 + i // 2 % 2,
         "methods.b.local.lr": (0.1, 0.2)[i % 2], "method": method, "round": rounds,
         "measure": measure, "seeds": seeds, "mean": 0.5, "half": 0.1 if several else None,
         "difference": 0.2, "difference_half": 0.1 if several else None, "clear": several,
         **Variation("data", 80, 20).table}
        for i in range(8) for method in "ab" for measure in MEASURES
    ]  # fmt: skip
    return pl.DataFrame(rows, schema_overrides={"half": pl.Float64, "difference_half": pl.Float64})


def test_rows_can_be_told_apart_in_every_block():
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
