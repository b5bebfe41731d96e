"""Appeal, fairness, held-out and preferred scores: whom the model serves, over the rounds."""

from __future__ import annotations

import numpy as np

from ...results.measures import MEASURES, Measure
from ..intervals import at
from .content import Story
from .headline import shown
from .learning_curves import drawn, panels
from .markup import Section, paragraph, table

# What the names of such measures begin with; scores have names of their own behind it.
SERVES = (
    "gm_appeal", "fairness", "preferred_", "test_", "mean_test_", "own_test_", "others_test_",
)  # fmt: skip


def serving(story: Story) -> list[Measure]:
    """The measures that say whom the model serves, as far as any run took them."""
    taken = {name for run in story.every for name in run.rounds.columns}
    return [
        measure
        for start in SERVES
        for name, measure in MEASURES.items()
        if name.startswith(start) and not name.endswith("loss") and name in taken
    ]


def section(story: Story) -> Section:
    """The measures that say whom the model serves, as far as they were taken."""
    taken = serving(story)
    curves = panels(story, [m for m in taken if not m.name.startswith("test_")])
    rows = []
    for measure in taken:
        cells: list[str | None] = []
        for mine in story.runs.values():
            values = np.array([at(run, measure.name, story.last) for run in mine])
            known = bool(np.isfinite(values).all())
            cells.append(shown(story.interval(values, measure), measure) if known else None)
        rows.append([measure.title, *cells])
    requires = any(run.final["requirement"].is_not_null().any() for run in story.every
                   if "requirement" in run.final.columns)  # fmt: skip
    said = paragraph(
        "Appeal is the share of clients whose requirement the model meets; preferred is the model "
        "if it appeals to a client, else its own."
        if requires
        else "No client stated a requirement, so appeal is not known; [requirement] in a "
        "configuration, or muster.with_solo in Python, sets one.",
        "Fairness is the share of clients to whom the model is useful at all.",
    )
    body = f"{said}{drawn(story.labels, curves, 'appeal')}"
    head = ["measure", *story.labels]
    body += table("appeal", head, rows, f"after round {story.last}, mean ± 95 % interval")
    return Section("appeal", "Whom the model serves", body, curves)
