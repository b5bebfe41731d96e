"""Traffic, time and local steps, and what was saved by clients that stayed silent."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.lazy import pl
from ...results.measures import MEASURES
from ...results.run import Run
from .content import Content
from .learning_curves import make_panels, render_panels
from .markup import Section, paragraph, table


def count_savings(run: Run) -> tuple[int, float, int]:
    """Return how often clients stayed silent, and the megabytes of upload and the local steps that
    saved: per silent client as much as a client that joined in the same round."""
    failed = pl.col("reason").str.starts_with("failed").fill_null(False)
    each = run.clients.group_by("round").agg(
        silent=(~pl.col("joined") & ~failed).sum(),
        up=pl.col("bytes_up").filter(pl.col("joined")).mean(),
        quiet=pl.col("bytes_up").filter(~pl.col("joined")).mean(),
        steps=pl.col("steps").filter(pl.col("joined")).mean(),
    )
    saved = pl.col("silent") * (pl.col("up") - pl.col("quiet").fill_null(0))
    silent, up, steps = each.select(
        pl.col("silent").sum(),
        up=saved.sum() / 1e6,
        steps=(pl.col("silent") * pl.col("steps")).sum(),
    ).row(0)
    return int(silent or 0), float(up or 0.0), round(steps or 0)


HEAD = {  # the columns, with their format
    "upload MB": ".2f",
    "download MB": ".2f",
    "seconds": ".1f",
    "local steps": ".0f",
    "times silent": ".0f",
    "upload MB saved": ".2f",
    "local steps saved": ".0f",
    "replies refused": ".0f",
    "no answer": ".0f",
}


def section(content: Content) -> Section:
    """Return the section: the average totals of a run, and the traffic of each round."""
    rows: list[list[Any]] = []
    for label, mine in content.runs.items():
        totals = [
            run.rounds.select(
                pl.col("bytes_up", "bytes_down").sum() / 1e6,
                pl.col("seconds", "steps").sum(),
                pl.col("refused", "failed").sum(),
            ).row(0)
            for run in mine
        ]
        spent = np.mean(np.array(totals, float), axis=0).tolist()
        saved = np.mean([count_savings(run) for run in mine], axis=0).tolist()
        values = [*spent[:4], *saved, *spent[4:]]
        cells = [f"{value:{form}}" for value, form in zip(values, HEAD.values(), strict=True)]
        rows.append([label, *cells])
    data = make_panels(content, [MEASURES["bytes_up"], MEASURES["seconds"]])
    body = paragraph(
        "A client that stays silent trains and uploads nothing: the steps and the upload it saved "
        "are counted as the average of the clients that joined in the same round."
    )
    body += table("costs", ["method", *HEAD], rows, "Average per run, over the seeds")
    return Section("costs", "Costs", body + render_panels(content.labels, data, "costs"), data)
