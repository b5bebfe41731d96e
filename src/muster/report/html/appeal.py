"""Appeal, fairness, held-out and preferred scores over the rounds."""

from __future__ import annotations

import numpy as np

from ...results.measures import MEASURES, Measure
from ..intervals import value_at
from .content import Content
from .headline import format_interval
from .learning_curves import make_panels, render_panels
from .markup import Section, paragraph, table

# The beginnings of the measures' names; the names of scores follow.
PREFIXES = ["gm_appeal", "fairness", "preferred_", "test_", "mean_test_", "own_test_"]
PREFIXES.append("others_test_")


def appeal_measures(content: Content) -> list[Measure]:
    """Return the measures of appeal, fairness and held-out scores that any run has."""
    measured = {name for run in content.all_runs for name in run.rounds.columns}
    return [
        measure
        for start in PREFIXES
        for name, measure in MEASURES.items()
        if name.startswith(start) and not name.endswith("loss") and name in measured
    ]


def section(content: Content) -> Section:
    """Return the section: these measures as curves, and after the last round in a table."""
    measures = appeal_measures(content)
    curves = make_panels(content, [m for m in measures if not m.name.startswith("test_")])
    rows = []
    for measure in measures:
        cells: list[str | None] = []
        for mine in content.runs.values():
            values = np.array([value_at(run, measure.name, content.last) for run in mine])
            known = bool(np.isfinite(values).all())
            cells.append(
                format_interval(content.interval(values, measure), measure) if known else None
            )
        rows.append([measure.title, *cells])
    required = any(
        run.final["requirement"].is_not_null().any()
        for run in content.all_runs
        if "requirement" in run.final.columns
    )
    text = paragraph(
        "Appeal is the share of clients whose requirement the model meets; the preferred model is "
        "the federated one if it appeals to a client, else the client's own."
        if required
        else "No client has a requirement, so appeal is unknown; set one with [requirement] in a "
        "configuration, or with muster.with_solo in Python.",
        "Fairness is the share of clients for which the model is useful at all.",
    )
    body = f"{text}{render_panels(content.labels, curves, 'appeal')}"
    head = ["measure", *content.labels]
    body += table("appeal", head, rows, f"after round {content.last}, mean ± 95 % interval")
    return Section("appeal", "Appeal and fairness", body, curves)
