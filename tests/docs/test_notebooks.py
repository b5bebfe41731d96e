"""The notebooks in examples/ run from top to bottom, and are kept with what they show today."""

from __future__ import annotations

import json
import re
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
        kept = "".join(line for out in cell["outputs"] for line in out["data"]["text/plain"])
        words, numbers = split_numbers("" if value is None else repr(value))
        assert split_numbers(kept)[0] == words, "run tests/support/notebooks.py"
        # Numbers differ in the last digits between processors.
        assert split_numbers(kept)[1] == pytest.approx(numbers, rel=0.02, abs=0.002)
    pages = [getattr(value, "_repr_html_", str)() for _, value in shown if value is not None]
    assert sum("<iframe" in text for text in pages) == 2, "a run, and a comparison"
    assert (tmp_path / "report.html").exists()


def split_numbers(text: str) -> tuple[list[list[str]], list[float]]:
    """Return what is between the fractions of a text, and these."""
    parts = re.split(r"(-?\d+\.\d+)", text)
    return [part.split() for part in parts[::2]], [float(part) for part in parts[1::2]]


def test_there_is_one():
    assert NOTEBOOKS
