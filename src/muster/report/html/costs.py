"""Bytes and seconds, and what silence saved."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.lazy import pl
from ...results.measures import MEASURES
from ...results.run import Run
from .content import Story
from .learning_curves import drawn, panels
from .markup import Section, paragraph, table


def saved(run: Run) -> tuple[int, float, int]:
    """What clients did not do because they stayed silent: times, megabytes they did not upload, and
    local steps they did not take, each as much as a client that joined in the same round."""
    failed = pl.col("reason").str.starts_with("failed").fill_null(False)
    each = run.clients.group_by("round").agg(
        silent=(~pl.col("joined") & ~failed).sum(),
        up=pl.col("bytes_up").filter(pl.col("joined")).mean(),
        quiet=pl.col("bytes_up").filter(~pl.col("joined")).mean(),
        steps=pl.col("steps").filter(pl.col("joined")).mean(),
    )
    spared = pl.col("silent") * (pl.col("up") - pl.col("quiet").fill_null(0))
    silent, up, steps = each.select(
        pl.col("silent").sum(),
        up=spared.sum() / 1e6,
        steps=(pl.col("silent") * pl.col("steps")).sum(),
    ).row(0)
    return int(silent or 0), float(up or 0.0), round(steps or 0)


def section(story: Story) -> Section:
    """Totals of a run on average, and what goes over the wire each round."""
    rows: list[list[Any]] = []
    for label, mine in story.runs.items():
        totals = [
            run.rounds.select(
                pl.col("bytes_up", "bytes_down").sum() / 1e6,
                pl.col("seconds", "steps").sum(),
                pl.col("failed", "refused").sum(),
            ).row(0)
            for run in mine
        ]
        up, down, seconds, steps, failed, refused = np.mean(np.array(totals, float), axis=0)
        quiet, spared, spared_steps = np.mean([saved(run) for run in mine], axis=0)
        rows.append([
            label, f"{up:.2f}", f"{down:.2f}", f"{seconds:.1f}", f"{steps:.0f}", f"{quiet:.0f}",
            f"{spared:.2f}", f"{spared_steps:.0f}", f"{refused:.0f}", f"{failed:.0f}",
        ])  # fmt: skip
    head = ["method", "upload MB", "download MB", "seconds", "local steps", "times silent",
            "upload MB that silence saved", "steps that silence saved", "replies refused",
            "no answer"]  # fmt: skip
    data = panels(story, [MEASURES["bytes_up"], MEASURES["seconds"]])
    said = "A client that stays silent trains nothing and uploads nothing: what it would have sent"
    body = paragraph(f"{said} and computed is counted as what those who joined did on average.")
    body += table("costs", head, rows, "A run, on average over the seeds")
    return Section("costs", "What it took", body + drawn(story.labels, data, "costs"), data)
