"""Lines on the terminal, as they are: paths, names and labels come from users.

This is the terminal's door: whatever a command prints, in tables, lines or a bar of progress, goes
through `Terminal`, and leaves outside what a terminal would act on.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ..base.errors import printable


class Terminal(Console):
    """A console on which nothing acts but what rich itself puts there: colours, and the cursor of
    a bar of progress."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render with control codes taken out of all text."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


def say(console: Console, line: str) -> None:
    """Print a line; `[red]` is no colour and `:x:` no picture, and a terminal's edge no end."""
    console.print(Text(line), soft_wrap=True)
