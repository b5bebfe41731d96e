"""The data: who holds what."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...results.run import Run
from ..style import class_colours
from .content import CLIENTS, Story, names_of
from .markup import Section, behind, chart, paragraph
from .packing import packed

COLOURED = 20  # classes that can be told apart by colour


def counts(run: Run) -> tuple[list[str], Any]:
    """The classes, and how many rows of each every client has, [client, class]; without classes
    one column with all rows."""
    n = len(run.final)
    held = run.holdings
    if not len(held):
        return ["rows"], run.final["rows"].to_numpy().astype(np.uint32)[:, None]
    classes = int(held["label"].max()) + 1  # type: ignore[arg-type]
    names = run.labels or tuple(str(c) for c in range(classes))
    table = np.zeros((n, max(classes, len(names))), np.uint32)
    table[held["client"].to_numpy(), held["label"].to_numpy()] = held["rows"].to_numpy()
    return list(names), table


def section(story: Story) -> Section:
    """The rows of each class that every client has, of each seed."""
    title = "The data: who holds what"
    shown: dict[str, Any] = {}
    names: list[str] = []
    room = CLIENTS // 4
    for s, run in enumerate(story.runs[story.labels[0]]):
        if not len(run.final):
            continue
        names, table = counts(run)
        made = {"shape": list(table.shape), "rows": packed(table), "clients": names_of(run)}
        if shown and made == shown[next(iter(shown))]:
            continue  # the same data for every seed
        room -= len(made["rows"]) + sum(len(name) + 3 for name in made["clients"])
        if room < 0 and shown:
            break
        shown[f"0/{s}"] = made
    if not shown:
        return Section("data", title, paragraph("It is not written down here who holds what."))
    known = names != ["rows"]
    n, total = len(story.every[0].final), int(story.every[0].final["rows"].sum())
    said = paragraph(
        f"{n} clients with {total:,} training rows.",
        "" if known else "Classes are not known: these are rows only.",
    )
    body = (
        f'{said}<div class="pick" data-seeds="1"></div>'
        f"{chart('bars', 'data', 'training rows of each class that every client holds')}"
        f"{behind('Rows of each class', 'data')}"
    )
    colours = class_colours(len(names)) if len(names) <= COLOURED else []
    data = {"classes": names, "colours": [hexadecimal(c) for c in colours], "runs": shown}
    return Section("data", title, body, data)


def hexadecimal(colour: tuple[float, float, float]) -> str:
    """A colour as the page writes it.

    >>> hexadecimal((1.0, 0.5, 0.0))
    '#ff8000'
    """
    return "#" + "".join(f"{round(255 * part):02x}" for part in colour)
