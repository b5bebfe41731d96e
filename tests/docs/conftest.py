"""Benchmarks, for the tests of the pages that they write."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    """A function that imports a file of benchmarks/ by its name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module
