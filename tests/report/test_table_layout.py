"""Tables that go on below: every block says what its rows are of, and no number is cut."""

from __future__ import annotations

import pytest
from rich.console import Console

from muster.report.table_layout import Column, TerminalTable


def blocks(table, width):
    """What is printed below the heads, block by block: a list of lines, each a list of words."""
    console = Console(width=width, legacy_windows=False)
    with console.capture() as capture:
        console.print(table)
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= width
    found, rows = [], None
    for line in lines:
        if "──" in line:
            found.append(rows := [])
        elif not line.strip():
            rows = None
        elif rows is not None:
            rows.append(line.split())
    return found


ROWS = [["0.1", "1", "fedavg"], ["0.5", "20", "fedalign"]]
LABELS = [
    Column(head, cells) for head, *cells in zip(("lr", "local steps", "method"), *ROWS, strict=True)
]


@pytest.mark.parametrize("width", [40, 50, 65, 80])
def test_every_block_has_every_label(width):
    numbers = [Column(f"number {i}", [f"0.{i}11±0.001", f"0.{i}22±0.002"]) for i in range(6)]
    found = blocks(TerminalTable("", LABELS, numbers), width)
    assert len(found) > 1
    for block in found:
        assert [row[:3] for row in block] == ROWS
    for i, column in enumerate(zip(*(c.cells for c in numbers), strict=True)):
        assert [cell for block in found for cell in block[i][3:]] == list(column)


def test_short_labels_stay_whole_where_long_ones_are_folded():
    long = Column("partition", ["dirichlet(alpha=0.3,min_rows=2)", "x"])
    numbers = [Column("loss", ["1.234±0.001", "2.345±0.001"])]
    (block,) = blocks(TerminalTable("", [*LABELS, long], numbers), 50)
    assert block[0][:3] == ROWS[0]
    assert block[0][-1] == "1.234±0.001"
    rest = [word for row in block[1:-1] for word in row]
    assert block[0][3] + "".join(rest) == long.cells[0]


def test_labels_make_room_for_a_number():
    labels = [Column(name, ["abcdefghijkl"]) for name in "pqrs"]
    (block,) = blocks(TerminalTable("", labels, [Column("loss", ["-1.234±0.001"])]), 50)
    assert "-1.234±0.001" in block[0]


def test_a_column_wider_than_the_terminal_is_folded_in_any_block():
    wide = Column("said", ["w" * 90, "w" * 70], left=True)
    number = Column("loss", ["1.234", "2.345"])
    printed = blocks(TerminalTable("", LABELS, [wide, number]), 60)
    assert printed[0][0][:3] == ROWS[0]
    assert sum(word.count("w") for row in printed[0] for word in row) == 160
    assert [row[-1] for row in printed[1]] == ["1.234", "2.345"]
