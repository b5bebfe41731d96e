"""The terminal: text from users is printed as it is, without control codes.

All output of commands, in tables, lines or progress bars, goes through `Terminal`, which removes
characters that a terminal would act on.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ..base.errors import printable


class Terminal(Console):
    """A console whose only control codes are rich's own: colours, and the cursor of a progress
    bar."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render without the control codes in texts."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


def print_line(console: Console, line: str) -> None:
    """Print a line as it is: no markup such as `[red]` or `:x:`, and no wrapping."""
    console.print(Text(line), soft_wrap=True)
