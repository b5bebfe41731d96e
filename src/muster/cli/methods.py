"""`muster methods`: what exists, with paper and formula."""

from __future__ import annotations

import argparse
import inspect

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..methods import METHODS
from .help import taken


def methods(words: argparse.Namespace, console: Console) -> int:
    """`muster methods`, or `muster methods --markdown`."""
    if words.markdown:
        print(markdown())
        return 0
    table = Table(show_lines=True)
    for column in ("method", "what it does", "parameters"):
        table.add_column(column)
    for name, target in METHODS.items():
        cells = (name, inspect.getdoc(target) or "", "\n".join(taken(target)) or "-")
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
    return 0


def markdown() -> str:
    """Every method as its parts, for docs/methods.md. Parts left at their default are blank."""
    columns = ("invite", "join", "solver", "admit", "weigh", "step", "claim", "effort")
    plain_method = METHODS["fedavg"]()
    lines = [f"| method | {' | '.join(columns)} | else |", "|---" * (len(columns) + 2) + "|"]
    for name, target in METHODS.items():
        method = target()
        cells = []
        for column in columns:
            part = getattr(method, column)
            same = part == getattr(plain_method, column) and name != "fedavg"
            cells.append("" if same else f"`{part!r}`")
        other = []
        if method.refers:
            other.append(f"`epsilon={method.epsilon!r}`")
        if method.warmup:
            other.append(f"`warmup={method.warmup}`")
        if method.serves == "own":
            other.append("judged by each client's own model")
        lines.append(f"| `{name}` | {' | '.join(cells)} | {', '.join(other)} |")
    return "\n".join(lines)
