"""The data: the training rows of each class that every client has."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...results.run import Run
from ..style import class_colours
from .content import CLIENT_BYTES, Content, client_names
from .markup import Section, chart, lazy_table, pack, paragraph

MAX_COLOURS = 20  # classes that can be distinguished by colour


def count_rows(run: Run) -> tuple[list[str], Any]:
    """Return the classes, and the number of rows of each class per client, [client, class].

    Without classes there is one column with all rows.
    """
    n = len(run.final)
    held = run.holdings
    if not len(held):
        return ["rows"], run.final["rows"].to_numpy().astype(np.uint32)[:, None]
    classes = int(held["label"].max()) + 1  # type: ignore[arg-type]
    names = run.labels or tuple(str(c) for c in range(classes))
    table = np.zeros((n, max(classes, len(names))), np.uint32)
    table[held["client"].to_numpy(), held["label"].to_numpy()] = held["rows"].to_numpy()
    return list(names), table


def section(content: Content) -> Section:
    """Return the section: the rows of each class per client, for each seed."""
    title = "Data per client"
    runs: dict[str, Any] = {}
    names: list[str] = []
    room = CLIENT_BYTES // 4
    for s, run in enumerate(content.runs[content.labels[0]]):
        if not len(run.final):
            continue
        names, table = count_rows(run)
        encoded = {"shape": list(table.shape), "rows": pack(table), "clients": client_names(run)}
        if runs and encoded == runs[next(iter(runs))]:
            continue  # the same data for every seed
        room -= len(encoded["rows"]) + sum(len(name) + 3 for name in encoded["clients"])
        if room < 0 and runs:
            break
        runs[f"0/{s}"] = encoded
    if not runs:
        return Section("data", title, paragraph("The clients' data are not recorded here."))
    known = names != ["rows"]
    n, total = len(content.all_runs[0].final), int(content.all_runs[0].final["rows"].sum())
    text = paragraph(
        f"{n} clients with {total:,} training rows.",
        "" if known else "Classes are unknown: only rows are counted.",
    )
    body = (
        f'{text}<div class="pick" data-seeds="1"></div>'
        f"{chart('bars', 'data', 'training rows of each class that every client has')}"
        f"{lazy_table('Rows of each class', 'data')}"
    )
    colours = class_colours(len(names)) if len(names) <= MAX_COLOURS else []
    data = {"classes": names, "colours": [to_hex(c) for c in colours], "runs": runs}
    return Section("data", title, body, data)


def to_hex(colour: tuple[float, float, float]) -> str:
    """Return a colour in hexadecimal.

    >>> to_hex((1.0, 0.5, 0.0))
    '#ff8000'
    """
    return "#" + "".join(f"{round(255 * part):02x}" for part in colour)
