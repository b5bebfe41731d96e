"""`muster methods`: what exists, with paper and formula; `muster methods NAME`: its parameters."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..base.docstrings import describe_parameters
from ..base.errors import unknown_name
from ..methods import METHODS
from .console import say
from .help import rows, taken


def methods(words: argparse.Namespace, console: Console) -> int:
    """`muster methods`, `muster methods NAME ...`, or `muster methods --markdown`."""
    if words.markdown:
        print(markdown())
        return 0
    for name in words.names:
        if name not in METHODS:
            raise unknown_name("method", name, METHODS)
    for name in words.names:
        say(console, explained(name))
    if words.names:
        return 0
    table = Table(show_lines=True)
    for column in ("method", "what it does", "parameters"):
        table.add_column(column)
    for name, target in METHODS.items():
        cells = (name, about(target), "\n".join(taken(target)) or "-")
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
    say(console, "muster methods NAME says what its parameters mean")
    return 0


def about(target: Callable[..., Any]) -> str:
    """What a method does: the first paragraph of its docstring."""
    return (inspect.getdoc(target) or "").split("\n\n")[0]


def explained(name: str) -> str:
    """A method, and what each of its parameters means."""
    target = METHODS[name]
    known = inspect.signature(target).parameters
    defaults = {key: parameter.default for key, parameter in known.items()}
    said = {key: text for key, text in describe_parameters(target).items() if key in known}
    return "\n".join([f"{name}: {about(target)}", *rows(said, defaults)])


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
