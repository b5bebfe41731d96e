"""The notebooks in examples/ run from top to bottom, and are kept with what they show as text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from notebooks import run_cells

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    book = json.loads(path.read_text())
    assert book["nbformat"] == 4
    shown = run_cells(book, path.name)
    for cell, value in shown:
        kept = [line for out in cell["outputs"] for line in out["data"]["text/plain"]]
        assert bool(kept) == (value is not None), "run tests/support/notebooks.py"
        if value is not None:  # numbers differ in the last digits between processors
            assert len(repr(value).splitlines()) == len(kept)
    pages = [getattr(value, "_repr_html_", str)() for _, value in shown if value is not None]
    assert sum("<iframe" in text for text in pages) == 2, "a run, and a comparison"
    assert (tmp_path / "report.html").exists()


def test_there_is_one():
    assert NOTEBOOKS
