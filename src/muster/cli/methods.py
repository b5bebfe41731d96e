"""`muster methods`: every method with paper and formula; `muster methods NAME`: its parameters
and its parts."""

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
from .help import format_rows, list_parameters, wrap

ROLES = ("invite", "join", "solver", "admit", "weigh", "step", "claim", "effort")


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
    print_line(console, "muster methods NAME describes its parameters and parts")
    return 0


def get_summary(target: Callable[..., Any]) -> str:
    """Return the first paragraph of a method's docstring."""
    return (inspect.getdoc(target) or "").split("\n\n")[0]


def describe_method(name: str) -> str:
    """Return a method's summary, its parameters, and its parts where they are not FedAvg's."""
    target = METHODS[name]
    known = inspect.signature(target).parameters
    defaults = {key: parameter.default for key, parameter in known.items()}
    texts = {key: text for key, text in describe_parameters(target).items() if key in known}
    own = ", ".join(f"{role}={part}" for role, part in list_own_parts(name).items() if part)
    rows = [*format_rows(texts, defaults), *wrap("parts", own or "FedAvg's")]
    return "\n".join([f"{name}: {get_summary(target)}", *rows])


def list_own_parts(name: str) -> dict[str, str]:
    """Return each role's part of a method as Python writes it; empty where it is FedAvg's."""
    method, plain_method = METHODS[name](), METHODS["fedavg"]()
    parts = {role: getattr(method, role) for role in ROLES}
    same = {role for role in ROLES if parts[role] == getattr(plain_method, role)}
    return {r: "" if r in same and name != "fedavg" else repr(p) for r, p in parts.items()}


def format_markdown() -> str:
    """Return the table of docs/methods.md: every method by its parts; defaults are blank."""
    lines = [f"| method | {' | '.join(ROLES)} | else |", "|---" * (len(ROLES) + 2) + "|"]
    for name, target in METHODS.items():
        method = target()
        cells = [part and f"`{part}`" for part in list_own_parts(name).values()]
        other = []
        if method.refers:
            other.append(f"`epsilon={method.epsilon!r}`")
        if method.warmup:
            other.append(f"`warmup={method.warmup}`")
        if method.serves == "own":
            other.append("judged by each client's own model")
        lines.append(f"| `{name}` | {' | '.join(cells)} | {', '.join(other)} |")
    return "\n".join(lines)
