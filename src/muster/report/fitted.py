"""Tables that fit the terminal with every number whole.

rich makes a table narrower by cutting its cells. Here numbers are never cut: first heads are
broken between words, then the labels in the first column are folded, and then the table goes on
below in a second one, and a third.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from .letters import plain

EDGES, GAP = 2, 3  # what the box takes: in all, and between two columns
LABEL = 12  # a label is not folded to less than that


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    head: str
    cells: Sequence[str]
    left: bool = False

    def plain(self) -> Column:
        """The same in ASCII."""
        return Column(plain(self.head), [plain(cell) for cell in self.cells], self.left)

    @property
    def narrow(self) -> int:
        """Its width with its head broken between words."""
        return max([0, *map(cell_len, self.cells), *map(cell_len, self.head.split())])

    @property
    def wide(self) -> int:
        """Its width with its head in one line."""
        return max(self.narrow, cell_len(self.head))


@dataclass(frozen=True)
class Fitted:
    """A table of labels and columns, below a title, as wide as there is room."""

    title: str
    labels: Column
    columns: Sequence[Column]

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(options.max_width, LABEL), options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        labels, columns = self.labels, list(self.columns)
        title = self.title
        if options.ascii_only:
            labels, columns, title = labels.plain(), [c.plain() for c in columns], plain(title)
        if title:
            yield Text(title, style="table.title")
        for room, part, widths in laid_out(labels, columns, options.max_width):
            table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
            table.add_column(Text(labels.head), width=room, overflow="fold")
            for column, width in zip(part, widths, strict=True):
                table.add_column(
                    Text(column.head),
                    justify="left" if column.left else "right",
                    width=width,
                    overflow="fold",
                )
            for row in zip(labels.cells, *(c.cells for c in part), strict=True):
                table.add_row(*(Text(cell) for cell in row))
            yield table


def laid_out(
    labels: Column, columns: Sequence[Column], width: int
) -> Iterator[tuple[int, list[Column], list[int]]]:
    """The tables that hold all columns within a width: of each, the width of its labels, its
    columns and their widths."""
    rest = width - EDGES
    full = labels.wide
    least = min(full, max(LABEL, width // 3))
    if full + sum(GAP + c.wide for c in columns) <= rest:
        yield full, list(columns), [c.wide for c in columns]
        return
    part: list[Column] = []
    taken = 0
    for column in columns:
        if part and least + taken + GAP + column.narrow > rest:
            yield min(full, rest - taken), part, [c.narrow for c in part]
            part, taken = [], 0
        part.append(column)
        taken += GAP + column.narrow
    # A single column wider than the terminal is folded.
    widths = [min(c.narrow, rest - least - GAP) for c in part]
    yield min(full, max(least, rest - taken)), part, widths
