"""Learning curves: every measure over the rounds, its mean over the seeds and 95 % interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...results.measures import Measure
from ..curves import axis_limits, mean_curve, needs_log_scale
from ..figure import choose_panels, panel_title
from ..intervals import coverage_notes
from ..text_format import sentence
from .content import Content
from .markup import Section, chart, escape, lazy_table, paragraph, round_numbers, thin


def make_panel(content: Content, measure: Measure) -> dict[str, Any] | None:
    """Return the data of one chart; None where no method has the measure."""
    found = {label: mean_curve(mine, measure) for label, mine in content.runs.items()}
    curves = {label: curve for label, curve in found.items() if curve is not None}
    if not curves:
        return None
    series = []
    for label, curve in curves.items():
        points = thin(len(curve.x))
        series.append(
            {
                "method": content.labels.index(label),
                "x": [int(t) for t in curve.x[points]],
                "y": round_numbers(curve.mean[points]),
                "half": round_numbers(curve.half[points], 3),
            }
        )
    shown = list(curves.values())
    return {
        "title": panel_title(measure, content.all_priority),
        "name": measure.name,
        "limits": round_numbers(axis_limits(shown, measure)),
        "log": bool(needs_log_scale(shown, measure)),
        "share": measure.share,
        "series": series,
    }


def make_panels(content: Content, measures: Iterable[Measure]) -> dict[str, Any]:
    """Return the charts of the measures that some method has, by name."""
    made = {measure.name: make_panel(content, measure) for measure in measures}
    return {name: panel for name, panel in made.items() if panel is not None}


def render_panels(labels: Sequence[str], data: dict[str, Any], folder: str) -> str:
    """Return the HTML of charts side by side, each with its table."""
    parts = []
    for name, panel in data.items():
        over = f"{panel['title']} over {panel.get('along', 'the rounds')}"
        drawing = chart("lines", f"{folder}/{name}", f"{over}: {describe_ends(labels, panel)}")
        numbers = lazy_table("The numbers", f"{folder}/{name}")
        caption = f"<figcaption>{escape(panel['title'])}</figcaption>"
        parts.append(f"<figure>{caption}{drawing}{numbers}</figure>")
    return f'<div class="panels">{"".join(parts)}</div>'


def describe_ends(labels: Sequence[str], panel: dict[str, Any]) -> str:
    """Describe the end of each curve of a panel."""
    return ", ".join(
        f"{labels[s['method']]} ends at {s['y'][-1]}"
        for s in panel["series"]
        if s["y"] and s["y"][-1] is not None
    )


def section(content: Content) -> Section:
    """Return the section: the usual measures, or those chosen for the report."""
    data = make_panels(content, choose_panels(content.runs, content.measures))
    several = len(content.seeds) > 1
    points = len(thin(content.last))
    text = paragraph(
        "Line: mean over the seeds; band: 95 % interval of the mean, separately for each round."
        if several
        else "One seed: there are no intervals.",
        *map(sentence, coverage_notes(content.runs)),
        "Seeds differ more from each other than methods do: the paired differences below show "
        "whether methods differ."
        if several and len(content.runs) > 1
        else "",
        f"Every {-(-content.last // points)}th round is drawn." if points < content.last else "",
    )
    switches = '<div class="switches" role="group" aria-label="methods shown"></div>'
    body = f"{text}{switches}{render_panels(content.labels, data, 'curves')}"
    return Section("curves", "Learning curves", body, data)
