"""Participation in a report: what happened to each client in each round, and the band of losses.

A non-priority client is aligned while its loss is at most F(w) + eps_t (it joins), and the server
admits it within F(w) ± eps_t.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.lazy import pl
from ...results.run import Run
from .content import CLIENT_BYTES, Content, PageRoom
from .markup import Section, chart, lazy_table, pack, paragraph, quantize, round_numbers, thin

# The states of a cell, in the order of the legend.
STATES = (
    "not asked",
    "admitted, priority client",
    "admitted, helper",
    "silent by choice",
    "refused",
    "failed",
    "left",
)
NOT_ASKED, PRIORITY, HELPER, SILENT, REFUSED, FAILED, LEFT = range(len(STATES))
MAX_REASONS = 240  # different reasons that have their own code


def encode_cells(run: Run) -> dict[str, Any]:
    """Return the cells of a run: `cells` has a code for each client and round, `kinds` the state
    and the reason of each code."""
    # The ledger of a running run ends at its last checkpoint.
    n, rounds = len(run.final), int(run.facts.get("ledger_until", len(run.rounds)))
    state = (
        pl.when(pl.col("reason").str.starts_with("failed"))
        .then(FAILED)
        .when(pl.col("admitted") & pl.col("priority"))
        .then(PRIORITY)
        .when(pl.col("admitted"))
        .then(HELPER)
        .when(pl.col("joined"))
        .then(REFUSED)
        .otherwise(SILENT)
    )
    events = run.clients.select("round", "client", "reason", state.alias("state"))
    kinds = [(NOT_ASKED, ""), (LEFT, "")]
    found = events.group_by("state", "reason").len().sort("len", descending=True)
    usual = found.head(MAX_REASONS).select("state", "reason").sort("state", "reason").rows()
    kinds += [(state, reason or "") for state, reason in usual]
    if len(found) > MAX_REASONS:  # reasons too rare for their own code share that of their state
        states = (PRIORITY, HELPER, SILENT, REFUSED, FAILED)
        kinds += [(state, "another reason") for state in states]
    code = {kind: i for i, kind in enumerate(kinds)}
    rare = {state: code.get((state, "another reason"), 0) for state in range(len(STATES))}
    codes = pl.DataFrame(
        [(s, r or "", code.get((s, r or ""), rare[s])) for s, r, _ in found.rows()],
        schema={"state": pl.Int32, "reason": pl.String, "code": pl.Int64},
        orient="row",
    )
    events = events.with_columns(pl.col("reason").fill_null(""), pl.col("state").cast(pl.Int32))
    events = events.join(codes, on=["state", "reason"], how="left")
    cells = np.zeros((n, rounds), np.uint8)
    for k, since, until in absences(run, rounds):
        cells[k, since - 1 : until - 1] = code[LEFT, ""]
    cells[events["client"].to_numpy(), events["round"].to_numpy() - 1] = events["code"].to_numpy()
    return {"kinds": [[s, r] for s, r in kinds], "shape": [n, rounds], "cells": pack(cells)}


def absences(run: Run, rounds: int) -> list[tuple[int, int, int]]:
    """Return (client, since, until) of the rounds in which clients that left were away."""
    found: list[tuple[int, int, int]] = []
    away: dict[int, int] = {}
    moves = run.moves.filter(pl.col("move").is_in(["left", "returned"])).sort("round")
    for t, k, move in moves.select("round", "client", "move").rows():
        if move == "left":
            away[k] = t
        elif k in away:
            found.append((k, away.pop(k), t))
    return found + [(k, t, rounds + 1) for k, t in away.items()]


def list_moves(run: Run) -> list[list[Any]]:
    """Return [round, client, move] of clients that left or returned, up to 5,000."""
    return [list(row) for row in run.moves.select("round", "client", "move").head(5000).rows()]


def render_participation(content: Content) -> Section:
    """Return the section: the image of each run, as far as the page has room."""
    title = "Participation"
    runs: dict[str, Any] = {}
    room = PageRoom(CLIENT_BYTES)
    for m, s, run in content.enumerate_runs():
        if not len(run.final) or not len(run.clients):
            continue
        encoded = {**encode_cells(run), "moves": list_moves(run)}
        if not room.take(len(encoded["cells"]) + 30 * len(encoded["moves"])):
            break
        runs[f"{m}/{s}"] = encoded
    if not runs:
        text = "It is not recorded here which clients were asked and what they did."
        return Section("participation", title, paragraph(text))
    run, total = content.all_runs[0], len(content.all_runs)
    left_out = total - len(runs)
    text = paragraph(
        "One row per client, one column per round. Point at a cell, or go to it with the arrow "
        "keys, to read what happened and why.",
        f"{left_out} of {total} runs are left out here to keep the file small." if left_out else "",
    )
    description = f"{len(run.final)} clients by {len(run.rounds)} rounds: what happened to each"
    body = (
        f'{text}<div class="pick" data-sorts="1"></div><ul class="legend"></ul>'
        f"{chart('participation', 'participation', description)}"
        f"{lazy_table('Counts for each client', 'participation')}"
    )
    return Section("participation", title, body, {"states": STATES, "runs": runs})


def count_events(run: Run) -> pl.DataFrame:
    """Count, for each client, how often it was asked, admitted, silent, refused or failed, and sum
    its weight and its upload."""
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


MAX_LINES = 60  # clients whose losses are drawn one by one


def encode_losses(run: Run) -> dict[str, Any]:
    """Return each client's loss at the offered model, round by round, and F(w) and eps_t."""
    points = thin(len(run.rounds), 250)
    losses = np.full((len(run.final), len(run.rounds)), np.nan)
    reported = run.clients.drop_nulls("loss")
    clients, rounds = reported["client"].to_numpy(), reported["round"].to_numpy()
    losses[clients, rounds - 1] = reported["loss"].to_numpy()
    known = np.flatnonzero(np.isfinite(losses).any(axis=1))
    some = known[thin(len(known), MAX_LINES)] if len(known) else known
    at = run.rounds[points]
    return {
        "x": at["round"].to_list(),
        "f": round_numbers(at["reference_loss"].cast(pl.Float64).to_numpy()),
        "eps": round_numbers(at["eps"].cast(pl.Float64).to_numpy()),
        "clients": some.tolist(),
        "of": len(known),
        "loss": quantize(losses[np.ix_(some, np.array(points))]),
    }


def render_band(content: Content) -> Section:
    """Return the section: the band of each run whose method has one."""
    title = "Epsilon and reported losses"
    runs: dict[str, Any] = {}
    room = PageRoom(CLIENT_BYTES // 2)
    for m, s, run in content.enumerate_runs():
        if not len(run.final) or not run.rounds["reference_loss"].is_not_null().any():
            continue
        encoded = encode_losses(run)
        if not room.take(len(encoded["loss"]["codes"]) + 2000):
            break
        runs[f"{m}/{s}"] = encoded
    if not runs:
        text = "No method here compares clients' losses with F(w): there is no band to draw."
        return Section("band", title, paragraph(text))
    most = max(run["of"] for run in runs.values())
    text = paragraph(
        "The line is F(w), the priority clients' loss at the offered model; the band is F(w) ± "
        "eps_t. Each thin line is a client: those in the band are aligned.",
        f"{MAX_LINES} of {most} clients are drawn." if most > MAX_LINES else "",
    )
    body = (
        f'{text}<div class="pick"></div>'
        f"{chart('band', 'band', 'losses of the clients and the band F(w) plus or minus eps')}"
        f"{lazy_table('F(w), eps and the number of clients in the band', 'band')}"
    )
    return Section("band", title, body, {"runs": runs})
