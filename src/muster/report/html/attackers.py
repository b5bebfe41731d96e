"""The attackers' weight in the steps, and the weight they would have had if honest."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.lazy import pl
from ...results.measures import MEASURES
from ..curves import Curve, axis_limits
from ..intervals import correction_ratio, mean_and_half
from .content import Content
from .learning_curves import render_panels
from .markup import Section, paragraph, round_numbers, table, thin


def section(content: Content) -> Section:
    """Return the section: one row per method, and the attackers' weight over the rounds."""
    title = "What attackers gained"
    attacked = {
        label: mine
        for label, mine in content.runs.items()
        if any(len(run.attackers) for run in mine)
    }
    if not attacked:
        text = "These runs have no attackers. Set `attack` in a configuration to make some clients"
        return Section("attackers", title, paragraph(f"{text} attackers."))
    rows: list[list[Any]] = []
    series, curves = [], []
    for label, mine in attacked.items():
        attacks = pl.concat([run.attackers for run in mine])
        admitted = attacks["admitted"].sum() / len(attacks)
        weight, honest = attacks.select(pl.col("weight", "honest_weight").mean()).row(0)
        means = [f"{admitted:.3f}", f"{weight:.4f}", f"{honest:.4f}", f"{weight - honest:+.4f}"]
        rows.append([label, attacks["client"].n_unique(), *means])
        rounds = min(len(run.rounds) for run in mine)
        shares = np.zeros((len(mine), rounds))
        for i, run in enumerate(mine):
            each = run.attackers.group_by("round").agg(pl.col("weight").sum())
            inside = each.filter(pl.col("round") <= rounds)
            shares[i, inside["round"].to_numpy() - 1] = inside["weight"].to_numpy()
        ratio = correction_ratio(content.variation, MEASURES["theta"])
        mean, half = mean_and_half(shares, ratio=ratio)
        points = thin(rounds)
        curves.append(Curve(np.arange(1.0, rounds + 1), mean, half))
        series.append(
            {
                "method": content.labels.index(label),
                "x": [t + 1 for t in points],
                "y": round_numbers(mean[points]),
                "half": round_numbers(half[points], 3),
            }
        )
    top = max(0.05, *(axis_limits([c], MEASURES["theta"])[1] for c in curves))
    panel = {
        "title": "weight of all attackers in the step",
        "name": "attackers' weight",
        "limits": [0, min(1.0, top)],
        "log": False,
        "share": True,
        "series": series,
    }
    text = paragraph(
        "The mean weight of an attacker in the rounds in which it replied, and the weight that an "
        "honest reply would have had."
    )
    head = ["method", "attackers", "share of replies admitted", "weight in a step", "if honest"]
    body = f"{text}{render_panels(content.labels, {'share': panel}, 'attackers')}"
    body += table("attackers", [*head, "gained by the attack"], rows, "Average per round")
    return Section("attackers", title, body, {"share": panel})
