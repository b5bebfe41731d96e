"""Learning curves: every measure over the rounds, the mean of the seeds and its 95 % interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...results.measures import Measure
from ..ascii import sentence
from ..curves import by_powers, curve_of, limits
from ..figure import panels_of, title_of
from ..intervals import covered
from .content import Story, numbers, thinned
from .markup import Section, behind, chart, paragraph, say


def panel(story: Story, measure: Measure) -> dict[str, Any] | None:
    """What one chart is drawn of; None where no method took the measure."""
    found = {label: curve_of(mine, measure) for label, mine in story.runs.items()}
    curves = {label: curve for label, curve in found.items() if curve is not None}
    if not curves:
        return None
    series = []
    for label, curve in curves.items():
        keep = thinned(len(curve.x))
        series.append(
            {
                "method": story.labels.index(label),
                "x": [int(t) for t in curve.x[keep]],
                "y": numbers(curve.mean[keep]),
                "half": numbers(curve.half[keep], 3),
            }
        )
    drawn = list(curves.values())
    return {
        "title": title_of(measure, story.everyone),
        "name": measure.name,
        "limits": numbers(limits(drawn, measure)),
        "log": bool(by_powers(drawn, measure)),
        "share": measure.share,
        "series": series,
    }


def panels(story: Story, measures: Iterable[Measure]) -> dict[str, Any]:
    """The panels that have something to show, by the names of their measures."""
    made = {measure.name: panel(story, measure) for measure in measures}
    return {name: drawn for name, drawn in made.items() if drawn is not None}


def drawn(labels: Sequence[str], data: dict[str, Any], folder: str) -> str:
    """Charts next to each other, each with its table."""
    parts = []
    for name, panel in data.items():
        said = f"{panel['title']} over {panel.get('along', 'the rounds')}: {ends(labels, panel)}"
        where = f"{folder}/{name}"
        parts.append(
            f"<figure><figcaption>{say(panel['title'])}</figcaption>{chart('lines', where, said)}"
            f"{behind('The numbers', where)}</figure>"
        )
    return f'<div class="panels">{"".join(parts)}</div>'


def ends(labels: Sequence[str], panel: dict[str, Any]) -> str:
    """Where each curve of a panel ends, in words."""
    said = [
        f"{labels[s['method']]} ends at {s['y'][-1]}"
        for s in panel["series"]
        if s["y"] and s["y"][-1] is not None
    ]
    return ", ".join(said)


def section(story: Story) -> Section:
    """The usual measures, or those that were asked for."""
    data = panels(story, panels_of(story.runs, story.measures))
    few = "Line: mean over the seeds; band: 95 % interval of the mean, for each round by itself."
    thin = len(thinned(story.last)) < story.last
    said = paragraph(
        few if len(story.seeds) > 1 else "One seed: there are no intervals.",
        *map(sentence, covered(story.runs)),
        "Seeds differ more from each other than methods do: whether methods differ is seen below, "
        "seed by seed." if len(story.seeds) > 1 and len(story.runs) > 1 else "",
        f"Every {-(-story.last // len(thinned(story.last)))}th round is drawn." if thin else "",
    )  # fmt: skip
    switches = '<div class="switches" role="group" aria-label="methods shown"></div>'
    body = f"{said}{switches}{drawn(story.labels, data, 'curves')}"
    return Section("curves", "Learning curves", body, data)
