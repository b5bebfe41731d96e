"""Tables of the documentation's pages, each between two markers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

Row = list[str]


def split_page(text: str, name: str) -> tuple[str, str, str]:
    """Return what stands before the content of two markers, the content, and the rest."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end {name} -->"
    head, found, rest = text.partition(begin)
    block, ended, tail = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"the page has no place for '{name}', between {begin.strip()} and {end}")
    return head + begin, block, end + tail


def replace_block(text: str, name: str, content: str) -> str:
    """Return a page with this content between two markers."""
    head, _, tail = split_page(text, name)
    return f"{head}{content.rstrip()}\n{tail}"


def write_block(page: Path, name: str, content: str) -> None:
    """Write this content between two markers of a page."""
    page.write_text(replace_block(page.read_text(), name, content))


def format_table(rows: Iterable[Sequence[str]]) -> str:
    """Return rows, of which the first is the head, as Markdown."""
    head, *lines = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|" + "---|" * (head.count(" | ") + 1), *lines])


def read_rows(block: str) -> list[Row]:
    """Return the rows of a table without its head."""
    lines = [line for line in block.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines[2:]]


def read_notes(block: str) -> dict[str, str]:
    """Return what a list below a table says of each of its names."""
    return dict(re.findall(r"^- (.*): (.*)$", block, re.MULTILINE))


def format_notes(notes: Mapping[str, str]) -> str:
    """Return what is said of each name, as a list."""
    return "\n".join(f"- {name}: {said}" for name, said in notes.items())


def merge_rows(old: Iterable[Row], new: Iterable[Row], named: int = 1) -> list[Row]:
    """Return the rows of a table with new ones in place of those of the same name; others stay as
    they are, and a name that the table does not have comes last.

    Args:
        named: number of the first cells that name a row; several rows may have one name

    >>> merge_rows([["W1", "3"], ["W2", "5"], ["W2", "6"]], [["W2", "4"], ["W3", "8"]])
    [['W1', '3'], ['W2', '4'], ['W3', '8']]
    """
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in old:
        groups.setdefault(tuple(row[:named]), []).append(row)
    fresh: dict[tuple[str, ...], list[Row]] = {}
    for row in new:
        fresh.setdefault(tuple(row[:named]), []).append(row)
    return [row for group in (groups | fresh).values() for row in group]


def find_machine(block: str) -> str:
    """Return the machine of a table, which the line below it names; "" without one."""
    found = re.search(r"^Machine: (.*)\.$", block, re.MULTILINE)
    return found[1] if found else ""


def check_machine(page: Path, name: str, replaced: Iterable[str], machine: str) -> None:
    """Raise an error if rows that would stay in a table are of another machine.

    Args:
        replaced: names (first cells) of the rows that are measured again
    """
    block, again = split_page(page.read_text(), name)[1], set(replaced)
    stay = dict.fromkeys(row[0] for row in read_rows(block) if row[0] not in again)
    theirs = find_machine(block) or "a machine that it does not name"
    if stay and theirs != machine:
        raise SystemExit(
            f"{page.name}, table '{name}': {', '.join(stay)} would stay, measured on {theirs}; "
            f"this is {machine}; measure those here too, or leave out --write"
        )


def write_rows(page: Path, name: str, table: Sequence[Row], machine: str) -> None:
    """Write rows of one machine into a table, in place of those of the same names (first cells).

    Args:
        table: the head and the rows
    """
    head, *rows = table
    check_machine(page, name, (row[0] for row in rows), machine)
    merged = merge_rows(read_rows(split_page(page.read_text(), name)[1]), rows)
    write_block(page, name, f"{format_table([head, *merged])}\n\nMachine: {machine}.")
