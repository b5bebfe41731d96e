"""What attackers gained: their share of the steps, and what honesty would have got them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.lazy import pl
from ...results.measures import MEASURES
from ..curves import Curve, limits
from ..intervals import mean_and_half, ratio_of
from .content import Story, numbers, thinned
from .learning_curves import drawn
from .markup import Section, paragraph, table


def section(story: Story) -> Section:
    """One row per method, and the attackers' share of the step over the rounds."""
    title = "What attackers gained"
    attacked = {label: mine for label, mine in story.runs.items()
                if any(len(run.attackers) for run in mine)}  # fmt: skip
    if not attacked:
        said = "Nobody lied in these runs. `attack` in a configuration makes a share of the clients"
        return Section("attackers", title, paragraph(f"{said} attackers."))
    rows: list[list[Any]] = []
    series, curves = [], []
    for label, mine in attacked.items():
        every = pl.concat([run.attackers for run in mine])
        let_in = every["admitted"].sum() / len(every)
        got, honest = every.select(pl.col("weight", "honest_weight").mean()).row(0)
        rows.append([
            label, every["client"].n_unique(), f"{let_in:.3f}", f"{got:.4f}",
            f"{honest:.4f}", f"{got - honest:+.4f}",
        ])  # fmt: skip
        rounds = min(len(run.rounds) for run in mine)
        shares = np.zeros((len(mine), rounds))
        for i, run in enumerate(mine):
            each = run.attackers.group_by("round").agg(pl.col("weight").sum())
            inside = each.filter(pl.col("round") <= rounds)
            shares[i, inside["round"].to_numpy() - 1] = inside["weight"].to_numpy()
        mean, half = mean_and_half(shares, ratio=ratio_of(story.variation, MEASURES["theta"]))
        keep = thinned(rounds)
        curves.append(Curve(np.arange(1.0, rounds + 1), mean, half))
        series.append({
            "method": story.labels.index(label), "x": [t + 1 for t in keep],
            "y": numbers(mean[keep]), "half": numbers(half[keep], 3),
        })  # fmt: skip
    top = max(0.05, *(limits([c], MEASURES["theta"])[1] for c in curves))
    data = {"share": {"title": "the attackers' share of the step", "name": "attackers' share",
                      "limits": [0, min(1.0, top)], "log": False, "share": True,
                      "series": series}}  # fmt: skip
    said = "What lying got each attacker in a round in which it replied, and what the truth would."
    head = ["method", "attackers", "share of replies admitted", "share of a step",
            "... had it been honest", "gained by lying"]  # fmt: skip
    body = f"{paragraph(said)}{drawn(story.labels, data, 'attackers')}"
    return Section("attackers", title, body + table("attackers", head, rows, "A round, on average"),
                   data)  # fmt: skip
