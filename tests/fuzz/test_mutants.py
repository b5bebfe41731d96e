"""Whatever is damaged or made up ends in one line: configurations, data files, folders of results.

A finding is named by its number: `python tests/support/mutants.py KIND NUMBER` makes it again.
"""

from __future__ import annotations

import pytest

from mutants import findings


@pytest.mark.parametrize(("kind", "cases"), [("configuration", 40), ("data", 50)])
def test_some_mutants_end_in_one_line(kind, cases):
    assert findings(kind, range(cases)) == []


def test_some_damaged_results_end_in_one_line(base):
    assert findings("results", range(8), base) == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("kind", "cases"), [("configuration", 10_000), ("data", 20_000)])
def test_many_mutants_end_in_one_line(kind, cases):
    assert findings(kind, range(cases)) == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_damaged_results_end_in_one_line(base):
    assert findings("results", range(1000), base) == []
    assert findings("results", range(1000, 1200), base, drawn=True) == []
