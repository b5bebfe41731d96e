"""Tables that fit the width of the terminal without cutting a number.

rich makes a table narrower by cutting its cells. Here numbers are never cut: first, heads are
broken between words; then long labels in the first columns are folded; then the table continues in
a second one below, and a third, each with all labels.
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

from .text_format import to_ascii

EDGES, GAP = 2, 3  # width of the box: in all, and between two columns
MIN_LABEL = 12  # a label is not folded to less than that, unless a number would be


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    head: str
    cells: Sequence[str]
    left: bool = False

    def to_ascii(self) -> Column:
        """Return the column in ASCII."""
        return Column(to_ascii(self.head), [to_ascii(cell) for cell in self.cells], self.left)

    @property
    def narrow(self) -> int:
        """The width with the head broken between words."""
        return max([0, *map(cell_len, self.cells), *map(cell_len, self.head.split())])

    @property
    def wide(self) -> int:
        """The width with the head in one line."""
        return max(self.narrow, cell_len(self.head))


@dataclass(frozen=True)
class TerminalTable:
    """A table below a title that fits the width of the terminal.

    Attributes:
        title: the line above
        labels: the columns that identify a row, repeated wherever the table continues below
        columns: the other columns
    """

    title: str
    labels: Sequence[Column]
    columns: Sequence[Column]

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(options.max_width, MIN_LABEL), options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        labels, columns = list(self.labels), list(self.columns)
        title = self.title
        if options.ascii_only:
            labels, columns = ([c.to_ascii() for c in some] for some in (labels, columns))
            title = to_ascii(title)
        if title:
            yield Text(title, style="table.title")
        for part in split_table(labels, columns, options.max_width):
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


def split_table(
    labels: Sequence[Column], columns: Sequence[Column], width: int
) -> Iterator[list[tuple[Column, int]]]:
    """Yield the tables that fit a width: the columns of each with their widths, labels first."""
    rest = width - EDGES
    everything = [*labels, *columns]
    if total_width(c.wide for c in everything) <= rest:
        yield [(c, c.wide) for c in everything]
        return
    reserved = label_width(labels, columns, width)
    for part in chunk_columns(columns, rest - reserved):
        # A single column wider than the terminal is folded.
        widths = [min(c.narrow, rest - reserved - GAP) for c in part]
        room = rest - sum(GAP + w for w in widths)
        yield list(zip([*labels, *part], [*shrink_labels(labels, room), *widths], strict=True))


def label_width(labels: Sequence[Column], columns: Sequence[Column], width: int) -> int:
    """Return the width reserved for all labels together; numbers have the rest.

    No label is folded below MIN_LABEL to make room for a second number next to the first.
    """
    short = total_width(min(c.narrow, MIN_LABEL) for c in labels)
    beside = width - EDGES - GAP - max((c.narrow for c in columns), default=0)
    wanted = total_width(c.narrow for c in labels)
    return min(wanted, max(MIN_LABEL, width // 3, min(short, beside)))


def chunk_columns(columns: Sequence[Column], room: int) -> Iterator[list[Column]]:
    """Yield as many columns at a time as fit next to the labels, at least one."""
    part: list[Column] = []
    for column in columns:
        if part and sum(GAP + c.narrow for c in [*part, column]) > room:
            yield part
            part = []
        part.append(column)
    yield part


def shrink_labels(labels: Sequence[Column], room: int) -> list[int]:
    """Return the widths of labels that share this room; the widest shrink first."""
    widths = [c.narrow for c in labels]
    while total_width(widths) > room and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    return widths


def total_width(widths: Iterable[int]) -> int:
    """Return the width of columns side by side.

    >>> total_width([4, 5])
    12
    """
    return sum(GAP + w for w in widths) - GAP
