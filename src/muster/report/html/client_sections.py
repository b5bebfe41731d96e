"""Clients in a report: each one alone and in the federation, and the rows that it has.

The gain is over training alone, by `report.gains`; where that is not known, the section says how to
get it, and draws training losses, which are no gain: the first a client measured, and the last.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.arrays import Float64
from ...base.errors import plural
from ...base.lazy import pl
from ...results.run import Run
from ...tasks.scores import get_score
from ..gains import Gains, describe_rows, describe_work, first_score, serves_own
from ..intervals import coverage_notes
from ..style import class_colours
from ..text_format import join_words, sentence
from .content import CLIENT_BYTES, Content, PageRoom, client_names
from .markup import Section, chart, column_numbers, lazy_table, pack, paragraph, round_numbers
from .participation_sections import count_events

ROLES = ("priority", "other", "unseen")
COUNTS = ("asked", "admitted", "silent", "refused", "failed")
COLUMNS = (
    *("client", "role", "rows", "test rows", "test score", "alone test score", "gain", "± 95 %"),
    *("first training loss", "last training loss", "useful", *COUNTS, "share of the steps"),
)


def first_losses(run: Run) -> Float64:
    """Return the first loss that each client measured; NaN where it never did."""
    reported = run.clients.drop_nulls("loss").sort("round").group_by("client").first()
    before = np.full(len(run.final), np.nan)
    before[reported["client"].to_numpy()] = reported["loss"].to_numpy()
    return before


def client_columns(run: Run, gains: Gains | str, seed: int) -> dict[str, list[Any]]:
    """Return the table of a run's clients, by column; the gain is that over all seeds."""
    final = run.final
    counts = final.select("client").join(count_events(run), on="client", how="left").sort("client")
    total = max(float(counts["weight"].sum()), 1e-300)
    role = pl.when(pl.col("unseen")).then(2).when(pl.col("priority")).then(0).otherwise(1)
    attacker = final["attacker"].to_list() if "attacker" in final.columns else []
    alone = gain = half = np.full(len(final), np.nan)
    if isinstance(gains, Gains):
        alone = gains.alone[seed]
        gain, half = np.array([(g.mean, g.half) for g in gains.intervals]).T
    return {
        "client": client_names(run),
        "role": final.select(role.alias("role"))["role"].to_list(),
        "attacker": [k for k, lies in enumerate(attacker) if lies],
        "rows": final["rows"].to_list(),
        "test rows": column_numbers(final, "test_rows"),
        "test score": column_numbers(final, f"test_{first_score(run)}"),
        "alone test score": round_numbers(alone),
        "gain": round_numbers(gain),
        "± 95 %": round_numbers(half),
        "first training loss": round_numbers(first_losses(run)),
        "last training loss": column_numbers(final, "train_loss"),
        "useful": final["useful"].cast(pl.Int8).to_list(),
        **{name: counts[name].fill_null(0).to_list() for name in COUNTS},
        "share of the steps": round_numbers((counts["weight"].fill_null(0) / total).to_numpy(), 3),
    }


def describe_gains(content: Content) -> list[str]:
    """Return what a gain is here, and over which rows and seeds; or why there is none."""
    known = [gains for gains in content.gains.values() if isinstance(gains, Gains)]
    unknown: dict[str, list[str]] = {}
    for label, gains in content.gains.items():
        if isinstance(gains, str) and not serves_own(content.runs[label][0]):
            unknown.setdefault(gains, []).append(label)
    missing = [f"{join_words(labels)}: no gain, {why}." for why, labels in unknown.items()]
    if not known:
        return [
            *missing,
            "The picture has training losses, which are no gain: hollow, the first that a client "
            "measured; filled, that of the last model.",
        ]
    score = get_score(known[0].score).title
    text = (
        f"Gain: held-out {score} of the federated model over that of each client's model alone "
        f"after the same work ({known[0].work})"
    )
    n = len(content.seeds)
    text += f", mean over {plural(n, 'seed')} with its 95 % interval." if n > 1 else "."
    notes = coverage_notes(content.runs) or ["one seed: there are no intervals"]
    return [text, *map(sentence, notes), *describe_fewest(content, known[0]), *missing]


def describe_fewest(content: Content, gains: Gains) -> list[str]:
    """Return a sentence about the client with the fewest held-out rows."""
    if gains.rows is None:
        return []
    k = int(np.where(gains.rows > 0, gains.rows, gains.rows.max() + 1).argmin())
    name = client_names(content.all_runs[0])[k]
    return [f"Fewest: client {name}, {describe_rows(int(gains.rows[k]), gains.score)}."]


def render_clients(content: Content) -> Section:
    """Return the section: one mark and one row per client."""
    title = "Clients alone and together"
    runs: dict[str, Any] = {}
    room = PageRoom(CLIENT_BYTES)
    for m, s, run in content.enumerate_runs():
        if not len(run.final):
            continue
        if not room.take(90 * len(run.final)):
            break
        runs[f"{m}/{s}"] = client_columns(run, content.gains[content.labels[m]], s)
    if not runs:
        text = "The last model has not been evaluated on the clients yet."
        return Section("clients", title, paragraph(text))
    body = (
        f"{paragraph(*describe_gains(content))}"
        f"{paragraph(*map(sentence, describe_work(content.all_runs)))}"
        f'<div class="pick" data-sorts="1"></div>'
        f"{chart('gains', 'clients', 'each client alone and in the federation')}"
        f"{lazy_table('All clients in a table', 'clients')}"
    )
    score = first_score(content.all_runs[0])
    data = {
        "roles": ROLES,
        "score": score.replace("_", " "),
        "points": score == "accuracy",
        "columns": COLUMNS,
        "runs": runs,
    }
    return Section("clients", title, body, data)


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


def render_data(content: Content) -> Section:
    """Return the section: the rows of each class per client, for each seed."""
    title = "Data per client"
    runs: dict[str, Any] = {}
    names: list[str] = []
    room = PageRoom(CLIENT_BYTES // 4)
    for s, run in enumerate(content.runs[content.labels[0]]):
        if not len(run.final):
            continue
        names, table = count_rows(run)
        encoded = {"shape": list(table.shape), "rows": pack(table), "clients": client_names(run)}
        if runs and encoded == runs[next(iter(runs))]:
            continue  # the same data for every seed
        if not room.take(len(encoded["rows"]) + sum(len(name) + 3 for name in encoded["clients"])):
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
