"""Tables as files."""

from __future__ import annotations

import polars as pl

from muster.federation import Variation
from muster.report.table_files import to_latex


def test_heads_of_a_latex_table_are_distinct():
    row = {"method": "fedalign", "measure": "loss", "seeds": 5, "mean": 0.5, "half": 0.1,
           "clear": False, **Variation("data", 80, 20).table}  # fmt: skip
    cell = {"local.steps": 1, "requirement.steps": 5, "methods.fedalign.local.lr": 0.1, "on": True}
    text = to_latex(pl.DataFrame([{**cell, **row}]), list(cell))
    assert r"local steps & requirement steps & fedalign: lr & on & method & loss \\" in text
    assert r"1 & 5 & 0.1 & true & fedalign & $0.500 \pm 0.100$ \\" in text
    assert "% intervals: 95 % over 5 seeds that each draw new data\n" in text
