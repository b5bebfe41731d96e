"""The notebooks in examples/ run from top to bottom, and are kept without what they printed."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    book = json.loads(path.read_text())
    assert book["nbformat"] == 4
    space: dict = {"__name__": "__main__"}
    shown = []
    for cell in book["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == []
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, path.name, "exec"), space)
        if last is not None:  # what a notebook shows of a cell
            value = eval(compile(ast.Expression(last.value), path.name, "eval"), space)
            shown.append(getattr(value, "_repr_html_", value.__repr__)())
    assert sum("<iframe" in text for text in shown) == 2, "a run, and a comparison"
    assert (tmp_path / "report.html").exists()


def test_there_is_one():
    assert NOTEBOOKS
