"""docs/trust.md has the tables that its two files of results say, and the command runs."""

from __future__ import annotations

import polars as pl
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'muster-fl[flower]'")


def test_the_page_has_the_tables_that_its_results_say(benchmark):
    trust = benchmark("trust")
    text = trust.PAGE.read_text()
    assert trust.page(text) == text
    assert trust.page(text.replace("| met |", "| missed |")) == text
    wanted = {(c.rule, c.fault, c.place, c.seed) for c in trust.faults.cases()}
    done = set(pl.read_parquet(trust.BROKEN).select(trust.faults.KEYS).rows())
    assert done <= wanted, "no row of a run that the command does not run"


def test_a_run_that_is_there_is_not_run_again(benchmark, monkeypatch, tmp_path):
    trust = benchmark("trust")
    place, ran = tmp_path / "rows.parquet", []

    def row(job):
        ran.append(job)
        return {"a": job, "b": 2 * job}

    trust.go_on(place, {(1,): 1, (2,): 2}, ("a",), row)
    trust.go_on(place, {(2,): 2, (3,): 3}, ("a",), row)
    assert ran == [1, 2, 3]
    assert pl.read_parquet(place).rows() == [(1, 2), (2, 4), (3, 6)]


def test_a_fault_costs_the_same_wherever_it_is(benchmark, monkeypatch):
    faults = benchmark("faults")
    monkeypatch.setattr(faults, "ROUNDS", 2)
    rows = [
        faults.row(faults.Case("fedalign, trust", fault, place, 0))
        for fault in (faults.NONE, "scaled")
        for place in faults.PLACES
    ]
    frame = pl.DataFrame(rows)
    for fault in (faults.NONE, "scaled"):
        mine = frame.filter(fault=fault)
        assert mine.select("accuracy", "refused", "skipped").n_unique() == 1
    said = faults.table(frame)
    assert "| fault | stacked | loop | grid |" in said
    assert faults.cell(frame, "fedalign, trust", "no word", "loop") == "–"
    assert faults.cell(frame, "fedalign, trust", "no word", "grid") == ""
