"""Epsilon and the losses that clients report, with the band of those who are aligned.

A client outside the objective is aligned while its loss is at most F(w) + eps_t (it joins), and the
server admits it within F(w) ± eps_t.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.lazy import pl
from ...results.run import Run
from .content import CLIENTS, Story, numbers, thinned
from .markup import Section, behind, chart, paragraph
from .packing import scaled

LINES = 60  # clients whose losses are drawn one by one


def losses(run: Run) -> dict[str, Any]:
    """Each client's loss at the broadcast model, round by round, and F(w) and eps_t."""
    keep = thinned(len(run.rounds), 250)
    n = len(run.final)
    told = np.full((n, len(run.rounds)), np.nan)
    heard = run.clients.drop_nulls("loss")
    told[heard["client"].to_numpy(), heard["round"].to_numpy() - 1] = heard["loss"].to_numpy()
    ever = np.flatnonzero(np.isfinite(told).any(axis=1))
    some = ever[thinned(len(ever), LINES)] if len(ever) else ever
    at = run.rounds[keep]
    return {
        "x": at["round"].to_list(),
        "f": numbers(at["reference_loss"].cast(pl.Float64).to_numpy()),
        "eps": numbers(at["eps"].cast(pl.Float64).to_numpy()),
        "clients": some.tolist(),
        "of": len(ever),
        "loss": scaled(told[np.ix_(some, np.array(keep))]),
    }


def section(story: Story) -> Section:
    """The band of each run whose method has one."""
    title = "Epsilon, and the losses clients report"
    shown: dict[str, Any] = {}
    room = CLIENTS // 2
    for m, s, run in story.numbered():
        if not len(run.final) or not run.rounds["reference_loss"].is_not_null().any():
            continue
        made = losses(run)
        room -= len(made["loss"]["codes"]) + 2000
        if room < 0 and shown:
            break
        shown[f"{m}/{s}"] = made
    if not shown:
        said = "No method here holds clients' losses against F(w): there is no band to draw."
        return Section("band", title, paragraph(said))
    most = max(run["of"] for run in shown.values())
    said = paragraph(
        "The line is F(w), the priority clients' loss at the model that is sent out; the band is "
        "F(w) ± eps_t. Each thin line is a client: those in the band are aligned.",
        f"{LINES} of {most} clients are drawn." if most > LINES else "",
    )
    body = (
        f'{said}<div class="pick"></div>'
        f"{chart('band', 'band', 'losses of the clients against the band F(w) plus or minus eps')}"
        f"{behind('F(w), eps and how many lie in the band', 'band')}"
    )
    return Section("band", title, body, {"runs": shown})
