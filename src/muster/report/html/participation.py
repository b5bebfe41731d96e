"""Who took part: a client by round picture of everything that happened to each."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.lazy import pl
from ...results.run import Run
from .content import CLIENTS, Story
from .markup import Section, behind, chart, paragraph
from .packing import packed

# What a cell of the picture can be, in the order of the legend.
STATES = (
    "not asked",
    "admitted, by right",
    "admitted, as a helper",
    "silent by choice",
    "refused",
    "failed",
    "left",
)
NOT_ASKED, BY_RIGHT, HELPER, SILENT, REFUSED, FAILED, LEFT = range(len(STATES))
MOST = 240  # different reasons that are told apart


def picture(run: Run) -> dict[str, Any]:
    """The cells of a run: `kinds` says of each code what happened and why, `cells` has a code for
    each client and round."""
    # Of a run under way it is known up to its last checkpoint.
    n, rounds = len(run.final), int(run.facts.get("ledger_until", len(run.rounds)))
    happened = run.clients.select(
        "round", "client", "reason",
        pl.when(pl.col("reason").str.starts_with("failed")).then(FAILED)
        .when(pl.col("admitted") & pl.col("priority")).then(BY_RIGHT)
        .when(pl.col("admitted")).then(HELPER)
        .when(pl.col("joined")).then(REFUSED)
        .otherwise(SILENT).alias("state"),
    )  # fmt: skip
    kinds = [(NOT_ASKED, ""), (LEFT, "")]
    found = happened.group_by("state", "reason").len().sort("len", descending=True)
    usual = found.head(MOST).select("state", "reason").sort("state", "reason").rows()
    kinds += [(state, reason or "") for state, reason in usual]
    if len(found) > MOST:  # what is too rare to have a code of its own has that of its state
        states = (BY_RIGHT, HELPER, SILENT, REFUSED, FAILED)
        kinds += [(state, "another reason") for state in states]
    code = {kind: i for i, kind in enumerate(kinds)}
    rare = {state: code.get((state, "another reason"), 0) for state in range(len(STATES))}
    keyed = pl.DataFrame(
        [(s, r or "", code.get((s, r or ""), rare[s])) for s, r, _ in found.rows()],
        schema={"state": pl.Int32, "reason": pl.String, "code": pl.Int64},
        orient="row",
    )
    told = happened.with_columns(pl.col("reason").fill_null(""), pl.col("state").cast(pl.Int32))
    told = told.join(keyed, on=["state", "reason"], how="left")
    cells = np.zeros((n, rounds), np.uint8)
    for k, since, until in absences(run, rounds):
        cells[k, since - 1 : until - 1] = code[LEFT, ""]
    cells[told["client"].to_numpy(), told["round"].to_numpy() - 1] = told["code"].to_numpy()
    return {"kinds": [[s, r] for s, r in kinds], "shape": [n, rounds], "cells": packed(cells)}


def absences(run: Run, rounds: int) -> list[tuple[int, int, int]]:
    """(client, since, until): the rounds in which clients that left were away."""
    found: list[tuple[int, int, int]] = []
    gone: dict[int, int] = {}
    moves = run.moves.filter(pl.col("move").is_in(["left", "returned"])).sort("round")
    for t, k, move in moves.select("round", "client", "move").rows():
        if move == "left":
            gone[k] = t
        elif k in gone:
            found.append((k, gone.pop(k), t))
    return found + [(k, t, rounds + 1) for k, t in gone.items()]


def moves_of(run: Run) -> list[list[Any]]:
    """Who left, who came back, and what else happened to a client: [round, client, what]."""
    return [list(row) for row in run.moves.select("round", "client", "move").head(5000).rows()]


def section(story: Story) -> Section:
    """The picture of each run, as far as there is room for them all."""
    title = "Who took part"
    shown: dict[str, Any] = {}
    room = CLIENTS
    for m, s, run in story.numbered():
        if not len(run.final) or not len(run.clients):
            continue
        made = {**picture(run), "moves": moves_of(run)}
        room -= len(made["cells"]) + 30 * len(made["moves"])
        if room < 0 and shown:
            break
        shown[f"{m}/{s}"] = made
    if not shown:
        said = "It is not written down here who was asked and what came of it."
        return Section("presence", title, paragraph(said))
    run = story.every[0]
    left_out = len(story.every) - len(shown)
    said = paragraph(
        "One row for each client, one column for each round. Point at a cell, or go to it with the "
        "arrow keys, to read what happened and why.",
        f"{left_out} of {len(story.every)} runs are left out here, so that the file stays small."
        if left_out else "",
    )  # fmt: skip
    spoken = f"{len(run.final)} clients by {len(run.rounds)} rounds: what happened to each"
    body = (
        f'{said}<div class="pick" data-sorts="1"></div><ul class="legend"></ul>'
        f"{chart('picture', 'presence', spoken)}{behind('Counts for each client', 'presence')}"
    )
    data = {"states": STATES, "runs": shown}
    return Section("presence", title, body, data)


def counts_of(run: Run) -> pl.DataFrame:
    """For each client, how often it was asked, joined, stayed silent, was admitted or refused, and
    its share of all steps."""
    failed = pl.col("reason").str.starts_with("failed").fill_null(False)
    return run.clients.group_by("client").agg(
        asked=pl.len(),
        admitted=pl.col("admitted").sum(),
        silent=(~pl.col("joined") & ~failed).sum(),
        refused=(pl.col("joined") & ~pl.col("admitted") & ~failed).sum(),
        failed=failed.sum(),
        weight=pl.col("weight").sum(),
        up=pl.col("bytes_up").sum(),
    )
