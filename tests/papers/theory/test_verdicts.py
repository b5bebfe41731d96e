"""Verdicts on every study: what a table can hold, and mistakes."""

from __future__ import annotations

import polars as pl
import pytest

from muster.base.errors import MusterError
from muster.papers.theory import study
from muster.papers.theory.verdicts import verdicts


def test_a_table_can_hold_what_is_said(bound, corollary2, toy, rate):
    for frame in (bound, corollary2, toy, rate, study.weights()):
        for verdict in verdicts(frame):
            assert set(verdict) == {"id", "says", "where", "numbers", "verdict"}
            assert not set("|*\n") & set("".join(verdict.values()))
            assert verdict["verdict"].startswith(("holds", "does not hold", "undecided"))


def test_mistakes_are_explained(toy):
    with pytest.raises(MusterError, match="give the frame of one study"):
        verdicts(pl.DataFrame({"x": [1]}))
    with pytest.raises(MusterError, match="did you mean 'toy'"):
        verdicts(toy.with_columns(study=pl.lit("tyo")))
    with pytest.raises(MusterError, match="seeds: 0; allowed: whole numbers from 1"):
        study.bound(seeds=0)
    with pytest.raises(MusterError, match="rounds: 100; allowed: whole numbers from 128"):
        study.rate(rounds=100)
