"""Tables that fit the terminal with every number whole.

rich makes a table narrower by cutting its cells. Here numbers are never cut: first heads are
broken between words, then long labels in the first columns are folded, and then the table goes on
below in a second one, and a third, each with all labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from .ascii import plain

EDGES, GAP = 2, 3  # what the box takes: in all, and between two columns
LABEL = 12  # a label is not folded to less than that, unless a number would be


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
    """A table below a title, as wide as there is room.

    Attributes:
        labels: the columns that say what a row is of: they come first, wherever the table goes on
        columns: the others
    """

    title: str
    labels: Sequence[Column]
    columns: Sequence[Column]

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(options.max_width, LABEL), options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        labels, columns = list(self.labels), list(self.columns)
        title = self.title
        if options.ascii_only:
            labels, columns = ([c.plain() for c in some] for some in (labels, columns))
            title = plain(title)
        if title:
            yield Text(title, style="table.title")
        for part in laid_out(labels, columns, options.max_width):
            table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
            for i, (column, width) in enumerate(part):
                table.add_column(
                    Text(column.head),
                    justify="left" if column.left or i < len(labels) else "right",
                    width=width,
                    overflow="fold",
                )
            for row in zip(*(column.cells for column, _ in part), strict=True):
                table.add_row(*(Text(cell) for cell in row))
            yield table


def laid_out(
    labels: Sequence[Column], columns: Sequence[Column], width: int
) -> Iterator[list[tuple[Column, int]]]:
    """The tables that hold all columns within a width: of each, its columns and their widths, the
    labels first."""
    rest = width - EDGES
    every = [*labels, *columns]
    if taken(c.wide for c in every) <= rest:
        yield [(c, c.wide) for c in every]
        return
    least = least_of(labels, columns, width)
    for part in parted(columns, rest - least):
        # A single column wider than the terminal is folded.
        widths = [min(c.narrow, rest - least - GAP) for c in part]
        room = rest - sum(GAP + w for w in widths)
        yield list(zip([*labels, *part], [*shrunk(labels, room), *widths], strict=True))


def least_of(labels: Sequence[Column], columns: Sequence[Column], width: int) -> int:
    """What labels are left together, so that numbers have the rest: no label is folded below LABEL
    for the sake of a second number next to the first."""
    short = taken(min(c.narrow, LABEL) for c in labels)
    beside = width - EDGES - GAP - max((c.narrow for c in columns), default=0)
    return min(taken(c.narrow for c in labels), max(LABEL, width // 3, min(short, beside)))


def parted(columns: Sequence[Column], room: int) -> Iterator[list[Column]]:
    """As many columns at a time as there is room for next to the labels, and at least one."""
    part: list[Column] = []
    for column in columns:
        if part and sum(GAP + c.narrow for c in [*part, column]) > room:
            yield part
            part = []
        part.append(column)
    yield part


def shrunk(labels: Sequence[Column], room: int) -> list[int]:
    """The widths of labels that share this room: the widest give way first."""
    widths = [c.narrow for c in labels]
    while taken(widths) > room and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    return widths


def taken(widths: Iterable[int]) -> int:
    """The room that columns next to each other take.

    >>> taken([4, 5])
    12
    """
    return sum(GAP + w for w in widths) - GAP
