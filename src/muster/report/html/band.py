"""Epsilon and the losses that clients report, with the band of aligned clients.

A non-priority client is aligned while its loss is at most F(w) + eps_t (it joins), and the server
admits it within F(w) ± eps_t.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.lazy import pl
from ...results.run import Run
from .content import CLIENT_BYTES, Content
from .markup import Section, chart, lazy_table, paragraph, quantize, round_numbers, thin

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


def section(content: Content) -> Section:
    """Return the section: the band of each run whose method has one."""
    title = "Epsilon and reported losses"
    runs: dict[str, Any] = {}
    room = CLIENT_BYTES // 2
    for m, s, run in content.enumerate_runs():
        if not len(run.final) or not run.rounds["reference_loss"].is_not_null().any():
            continue
        encoded = encode_losses(run)
        room -= len(encoded["loss"]["codes"]) + 2000
        if room < 0 and runs:
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
