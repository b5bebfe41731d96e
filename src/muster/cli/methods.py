"""`muster methods`: every method with paper and formula; `muster methods NAME`: its parameters."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..base.errors import unknown_name
from ..base.schema import describe_parameters
from ..methods import METHODS
from .arguments import CommandParser
from .console import print_line
from .help import format_rows, list_parameters


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    text = "method whose parameters are described"
    parser.add_argument("names", nargs="*", metavar="NAME", help=text)
    parser.add_flag("--markdown", action="store_true", help="print the table of docs/methods.md")


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    if arguments.markdown:
        print(format_markdown())
        return 0
    for name in arguments.names:
        if name not in METHODS:
            raise unknown_name("method", name, METHODS)
    for name in arguments.names:
        print_line(console, describe_method(name))
    if arguments.names:
        return 0
    table = Table(show_lines=True)
    for column in ("method", "what it does", "parameters"):
        table.add_column(column)
    for name, target in METHODS.items():
        cells = (name, get_summary(target), "\n".join(list_parameters(target)) or "-")
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
    print_line(console, "muster methods NAME describes its parameters")
    return 0


def get_summary(target: Callable[..., Any]) -> str:
    """Return the first paragraph of a method's docstring."""
    return (inspect.getdoc(target) or "").split("\n\n")[0]


def describe_method(name: str) -> str:
    """Return a method's summary and a line for each of its parameters."""
    target = METHODS[name]
    known = inspect.signature(target).parameters
    defaults = {key: parameter.default for key, parameter in known.items()}
    texts = {key: text for key, text in describe_parameters(target).items() if key in known}
    return "\n".join([f"{name}: {get_summary(target)}", *format_rows(texts, defaults)])


def format_markdown() -> str:
    """Return the table of docs/methods.md: every method by its parts; defaults are blank."""
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
