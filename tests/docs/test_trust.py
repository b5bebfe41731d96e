"""docs/trust.md has the tables that its two files of results say, and the command runs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import polars as pl
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'muster-fl[flower]'")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def loaded(name, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_tables_that_its_results_say(monkeypatch):
    trust = loaded("trust", monkeypatch)
    text = trust.PAGE.read_text()
    assert trust.page(text) == text
    assert trust.page(text.replace("| met |", "| missed |")) == text
    wanted = {(c.rule, c.fault, c.place, c.seed) for c in trust.faults.cases()}
    done = set(pl.read_parquet(trust.BROKEN).select(trust.faults.KEYS).rows())
    assert done <= wanted, "no row of a run that the command does not run"


def test_a_run_that_is_there_is_not_run_again(monkeypatch, tmp_path):
    trust = loaded("trust", monkeypatch)
    place, ran = tmp_path / "rows.parquet", []

    def row(job):
        ran.append(job)
        return {"a": job, "b": 2 * job}

    trust.go_on(place, {(1,): 1, (2,): 2}, ("a",), row)
    trust.go_on(place, {(2,): 2, (3,): 3}, ("a",), row)
    assert ran == [1, 2, 3]
    assert pl.read_parquet(place).rows() == [(1, 2), (2, 4), (3, 6)]


def test_a_fault_costs_the_same_wherever_it_is(monkeypatch):
    faults = loaded("faults", monkeypatch)
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
