"""Choices at an edge of what was tried."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import muster
from muster.study.tuning_result import describe_edges, find_edge


def rows(values, chosen, method="q-FFL", key="local.lr"):
    """One method's candidates for one setting."""
    return [{"method": method, key: value, "chosen": value == chosen} for value in values]


@pytest.mark.parametrize(
    ("values", "chosen", "edge"),
    [
        ([0.05, 0.1, 0.2], 0.2, "largest"),
        ([0.2, 0.05, 0.1], 0.05, "smallest"),
        ([0.05, 0.1, 0.2], 0.1, ""),
        ([1, 2], 2, "largest"),
        ([0.1], 0.1, ""),
        ([0.1, 0.1], 0.1, ""),
        ([True, False], True, ""),
        (["sgd", "adam"], "adam", ""),
        ([0.1, "step(0.1)"], 0.1, ""),
    ],
)
def test_only_the_smallest_and_largest_of_several_numbers_are_edges(values, chosen, edge):
    assert find_edge(rows(values, chosen), "local.lr") == edge


def test_a_method_is_held_against_what_it_tried_itself():
    tried = rows([0.1, 0.2], 0.2, "A") + rows([0.1, 0.2, 0.4], 0.2, "B") + rows([1, 2], 1, "C", "q")
    assert describe_edges(tried, ["local.lr", "q"]) == [
        "local.lr = 0.2 is the largest tried (A)",
        "q = 1 is the smallest tried (C)",
    ]


def test_a_tuning_says_which_choices_are_at_an_edge():
    base = {
        "data": {"name": "digits", "clients": 5, "priority": 2},
        "rounds": 2,
        "seeds": 2,
        "methods": ["fedavg"],
    }
    done = muster.tune(base, {"local.lr": [1e-6, 1e-5, 0.01], "seeds": [7]}, jobs=1)
    assert done.chosen == {"fedavg": {"local.lr": 0.01}}
    said = io.StringIO()
    Console(file=said, width=120).print(done)
    assert "at the edge: local.lr = 0.01 is the largest tried (fedavg)" in said.getvalue()
