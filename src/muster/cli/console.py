"""Lines on the terminal, as they are: paths, names and labels come from users."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text


def say(console: Console, line: str) -> None:
    """Print a line; `[red]` is no colour and `:x:` no picture, and a terminal's edge no end."""
    console.print(Text(line), soft_wrap=True)
