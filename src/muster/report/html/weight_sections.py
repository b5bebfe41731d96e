"""Weights in a report: how much helpers counted in each round, and attackers.

A helper's weight is its share of the step in which the server moved the model. The shares of all
helpers and of the priority clients sum to 1 in every round that moved the model. The weight of
attackers stands next to the one they would have had if honest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.arrays import Float64
from ...base.lazy import pl
from ...results.measures import MEASURES
from ...results.run import Run
from ..curves import Curve, axis_limits
from ..intervals import correction_ratio, mean_and_half
from .content import CLIENT_BYTES, Content, PageRoom, client_names
from .markup import Section, chart, lazy_table, paragraph, quantize, round_numbers, table, thin
from .measure_sections import render_panels

MAX_ROWS = 60  # helpers that have each their own row


def weigh_helpers(run: Run) -> tuple[list[int], Float64, Float64]:
    """Return the helpers by their total weight, largest first; the weight of each in each round,
    `[helper, round]`, NaN where it was not asked; and their share of each step, NaN where no reply
    counted."""
    # The ledger of a running run ends at its last checkpoint.
    rounds = int(run.facts.get("ledger_until", len(run.rounds)))
    events = run.clients.filter(~pl.col("priority"))
    weight = np.full((len(run.final), rounds), np.nan)
    weight[events["client"].to_numpy(), events["round"].to_numpy() - 1] = events["weight"]
    asked = np.flatnonzero(np.isfinite(weight).any(1))
    order = asked[np.argsort(-np.nansum(weight[asked], 1), kind="stable")]
    whole = np.zeros(rounds)
    np.add.at(whole, run.clients["round"].to_numpy() - 1, run.clients["weight"].to_numpy())
    total = np.nansum(weight, 0)
    share = np.divide(total, whole, out=np.full(rounds, np.nan), where=whole > 0)
    return order.tolist(), weight[order], share


def encode_weights(run: Run) -> dict[str, Any]:
    """Return the rows of the picture, the share of each step, and the sentence about them. Where
    there are too many helpers, the last row has the mean of those that counted least, all that
    never counted among them."""
    order, weight, share = weigh_helpers(run)
    points = thin(weight.shape[1])
    counted = int((np.nansum(weight, 1) > 0).sum())
    shown = len(order) if len(order) <= MAX_ROWS else min(counted, MAX_ROWS)
    rows, rest = weight[:shown], weight[shown:]
    if len(rest):
        rows = np.vstack([rows, np.nansum(rest, 0) / len(rest)])
    encoded = {
        "x": [t + 1 for t in points],
        "rounds": weight.shape[1],
        "helpers": order[:shown],
        "rest": len(rest),
        "weight": quantize(rows[:, points]),
        "mean": round_numbers(np.nansum(rows, 1) / max(1, np.isfinite(share).sum())),
        "counted": (rows > 0).sum(1).tolist(),
        "share": round_numbers(share[points]),
        "text": describe_help(run),
    }
    if "helped" in run.rounds.columns:
        encoded["helped"] = run.rounds["helped"][points].to_list()
    return encoded


def describe_help(run: Run) -> str:
    """Describe in a sentence or two how much helpers counted, who most, and why some never did."""
    order, weight, share = weigh_helpers(run)
    moved = int(np.isfinite(share).sum())
    mean = np.nansum(weight, 1) / max(1, moved)
    never = [k for k, m in zip(order, mean, strict=True) if m == 0]
    why = explain_silence(run, never)
    if len(never) == len(order):
        text = f"No helper ever counted: {why}."
    else:
        best = client_names(run)[order[0]]
        best = best if "name" in run.final.columns else f"client {best}"
        text = (
            f"Helpers counted for {percent(float(np.nanmean(share)))} of the step on average; "
            f"{best} most ({percent(float(mean[0]))})"
        )
        text += f", {len(never)} never: {why}." if never else "."
    if "helped" in run.rounds.columns:
        helped = run.rounds["helped"]
        text += f" The helped model was deployed in {helped.sum()} of {len(helped)} rounds, in the"
        text += " others the model that the priority clients trained alone."
    return text


def explain_silence(run: Run, helpers: list[int]) -> str:
    """Return the reasons of helpers that never counted, each helper's most frequent one; with the
    number of helpers where reasons differ."""
    found = (
        run.clients.filter(pl.col("client").is_in(helpers))
        .group_by("client", pl.col("reason").fill_null("no reason given"))
        .len()
        .sort("client", "len", "reason", descending=[False, True, False])
        .group_by("client", maintain_order=True)
        .first()
        .group_by("reason")
        .len()
        .sort("len", "reason", descending=[True, False])
        .select("reason", "len")
        .rows()
    )
    several = len(helpers) > 1
    words = [(r.replace("it helps", "they help") if several else r, n) for r, n in found]
    if len(words) == 1:
        return str(words[0][0])
    more = [f"other reasons ({sum(n for _, n in words[3:])})"] if len(words) > 3 else []
    return ", ".join([f"{reason} ({n})" for reason, n in words[:3]] + more)


def percent(share: float) -> str:
    """Return a share in percent.

    >>> percent(0.4149), percent(0.00213), percent(0.0)
    ('41 %', '0.2 %', '0 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.0095 or not share else f"{100 * share:.1g} %"


def render_helpers(content: Content) -> Section:
    """Return the section: the picture of each run with a model for all and helpers that were
    asked."""
    title = "How much each helper counted"
    runs: dict[str, Any] = {}
    room = PageRoom(CLIENT_BYTES // 4)
    for m, s, run in content.enumerate_runs():
        own = run.recipe is not None and run.recipe.serves == "own"
        if own or not len(run.final) or run.clients["priority"].all():
            continue
        encoded = encode_weights(run)
        if not room.take(len(encoded["weight"]["codes"]) + 2000):
            break
        runs[f"{m}/{s}"] = encoded
    if not runs:
        text = "No method here asked a helper: there is no weight to draw."
        return Section("helpers", title, paragraph(text))
    first = next(iter(runs.values()))
    every = max(run["x"][1] - run["x"][0] if len(run["x"]) > 1 else 1 for run in runs.values())
    text = paragraph(
        "One row per helper, the one that counted most at the top; one column per round. The "
        "stronger a cell's colour, the larger the helper's share of the step. Point at a cell, tap "
        "it, or go to it with the arrow keys, to read the share and why it is 0.",
        f"One round in {every} is drawn." if every > 1 else "",
    )
    body = (
        f"{paragraph(first['text'], kind='said')}{text}"
        f'<div class="pick"></div><ul class="legend"></ul>'
        f"{chart('helpers', 'helpers', 'share of each helper in the step of each round')}"
        f"{lazy_table('Share of each helper in the steps', 'helpers')}"
    )
    return Section("helpers", title, body, {"runs": runs})


def render_attackers(content: Content) -> Section:
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
