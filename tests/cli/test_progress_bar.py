"""Progress: what is left is worked out from the rounds of this session."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from muster.cli import progress_bar
from muster.cli.progress_bar import Progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that is put forward by hand."""
    now = [100.0]
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("terminal", [True, False])
def test_rounds_of_an_earlier_session_took_no_time(clock, terminal):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=160)
    with Progress(1000, console) as bar:
        bar.start("fedalign", 0, 900)
        assert bar.left() == ""
        for t in range(901, 911):
            clock[0] += 2.0
            bar({"round": t, "loss": 1.0})
        assert bar.left() == "about 3 min left", "90 rounds of 2 s, not 90 of 20 s / 910"
    said = console.file.getvalue()
    assert ("910/1000" in said) == terminal
    assert "about 3 min left" in said


def test_finished_runs_of_a_comparison_took_no_time_either(clock):
    console = Console(file=io.StringIO())
    with Progress(30, console) as lines:
        lines.start("a", 0, 10)
        lines.start("b", 0, 0)
        for t in range(5):
            clock[0] += 3.0
            lines({"round": t + 1})
        assert lines.left() == "about 45 s left"
    assert "a, seed 0: 10 of 30 rounds in all\n" in console.file.getvalue()


def test_a_round_without_a_training_loss_says_nothing_of_one(clock):
    console = Console(file=io.StringIO())
    with Progress(4, console) as lines:
        lines.start("a", 0)
        for t in (1, 2):
            clock[0] += 6.0
            lines({"round": t})
    assert "a, seed 0: round 2, 2 of 4 rounds in all" in console.file.getvalue()


def test_one_round_is_one_round():
    console = Console(file=io.StringIO())
    with Progress(1, console) as lines:
        lines.start("a", 0)
    assert "0 of 1 round in all" in console.file.getvalue()
