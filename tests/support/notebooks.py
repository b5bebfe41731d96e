"""Run a notebook and keep what it shows as text: `python tests/support/notebooks.py FILE`."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any


def run_cells(book: dict[str, Any], name: str) -> list[tuple[dict[str, Any], Any]]:
    """Run the code cells of a notebook in order; return each with the value it shows, or None."""
    space: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for cell in book["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), space)
        value = None
        if last is not None:
            value = eval(compile(ast.Expression(last.value), name, "eval"), space)
        shown.append((cell, value))
    return shown


def main(path: str) -> None:
    book = json.loads(Path(path).read_text())
    for count, (cell, value) in enumerate(run_cells(book, path), 1):
        cell["execution_count"] = count
        text = [] if value is None else repr(value).splitlines(keepends=True)
        data = {"data": {"text/plain": text}, "metadata": {}, "output_type": "execute_result"}
        cell["outputs"] = [data | {"execution_count": count}] if text else []
    Path(path).write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
