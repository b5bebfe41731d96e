"""The page of a sweep."""

from __future__ import annotations

import polars as pl

from muster.federation import Variation
from muster.report.html.sweep_page import write_sweep_report


def test_keys_have_the_names_that_tables_and_figures_have(tmp_path):
    over = {"methods.b.local.lr": [0.1, 0.2], "local.steps": [1], "requirement.steps": [5]}
    rows = [
        {"methods.b.local.lr": lr, "local.steps": 1, "requirement.steps": 5, "method": method,
         "round": 2, "measure": "loss", "seeds": 2, "mean": 0.5, "half": 0.1, "difference": 0.2,
         "difference_half": 0.1, "clear": True, **Variation("split", 80, 20).table}
        for lr in (0.1, 0.2) for method in "ab"
    ]  # fmt: skip
    text = write_sweep_report(
        pl.DataFrame(rows), over, "ab", [0, 1], tmp_path / "a.html"
    ).read_text()
    assert "over methods.b.local.lr, local.steps, requirement.steps: 2 cells" in text
    assert "Against b: lr" in text
    assert "2 seeds that split the same 100 rows again (corrected, Nadeau and Bengio 2003)" in text
    heads = ["b: lr", "local steps", "requirement steps", "method"]
    assert "".join(f'<th scope="col">{head}</th>' for head in heads) in text
    assert "(local steps 1, requirement steps 5)" in text
