"""docs/theory.md says of the bound what the kept results say."""

from __future__ import annotations

import re

import pytest

from muster.papers.reproduce import panel_results
from muster.papers.reproduce.paper_experiment import RESULTS, find_checkout
from muster.papers.theory.verdicts import points, verdicts

PAGE = (find_checkout() / "docs" / "theory.md").read_text()


@pytest.fixture(scope="module")
def bound():
    found = panel_results.load(find_checkout() / RESULTS, "bound")
    assert found is not None
    return found.studies["bound"]


def test_at_how_many_points_the_bound_says_something(bound):
    each = points(bound)
    for drawn, text in ((False, "{} of Theorem 1's {} points"), (True, "{} of A.9's {}")):
        mine = each.filter(each["K"].is_not_null() == drawn)
        below = mine.filter(mine["repaired"] < mine["start"])
        assert text.format(len(below), len(mine)) in PAGE.replace("\n", " ")
    from_zero = each.filter(each["case"].is_in(["lam = 0.3", "lam = 3"]))
    theorem, drawn = (from_zero.filter(from_zero["K"].is_null() == x) for x in (True, False))
    useful = [len(m.filter(m["repaired"] < m["start"])) for m in (theorem, drawn)]
    text = f"at {useful[0]} of {len(theorem)} and at none of {len(drawn)}"
    assert useful[1] == 0
    assert text in PAGE


def test_from_which_T_on(bound):
    numbers = {v["id"]: v["numbers"] for v in verdicts(bound)}
    for T in re.findall(r"E = 5: from T = ([\d,]+)", numbers["bound-not-vacuous"]):
        assert f"T = {T}" in PAGE
    assert "lam = 3, E = 1: from T = 28 " in numbers["bound-not-vacuous"]
    assert "at most 0.56 of it" in numbers["theorem1-repaired"]
    assert "the error comes to 0.56 of it" in PAGE


def test_that_inclusion_does_not_help_at_first(bound):
    found = {v["id"]: v for v in verdicts(bound)}["sooner"]
    assert found["verdict"].startswith("does not hold: the opposite is clear in 11 of 12 places")
    assert found["numbers"].count("the same runs") == 1
    assert "wherever anyone was admitted by then" in PAGE
