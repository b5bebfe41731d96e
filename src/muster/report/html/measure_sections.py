"""The measures in a report: learning curves, appeal and fairness, paired differences.

A curve is the mean over the seeds with its 95 % interval; a difference is to the first method, seed
by seed, as an interval against zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...base.lazy import pl
from ...results.measures import MEASURES, Measure
from ..curves import axis_limits, mean_curve, needs_log_scale
from ..figure import choose_panels, panel_title
from ..intervals import coverage_notes, value_at
from ..text_format import sentence
from .content import Content
from .headline import format_interval
from .markup import Section, chart, escape, lazy_table, paragraph, round_numbers, table, thin


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


def render_curves(content: Content) -> Section:
    """Return the section: the usual measures, or those chosen for the report."""
    data = make_panels(content, choose_panels(content.runs, content.measures))
    several = len(content.seeds) > 1
    points = len(thin(content.last))
    text = paragraph(
        "Line: mean over the seeds; band: 95 % interval of the mean, separately for each round."
        if several
        else "One seed: there are no intervals.",
        *map(sentence, coverage_notes(content.runs)),
        "Seeds may differ more from each other than methods do: the paired differences below show "
        "whether methods differ."
        if several and len(content.runs) > 1
        else "",
        f"Every {-(-content.last // points)}th round is drawn." if points < content.last else "",
    )
    switches = '<div class="switches" role="group" aria-label="methods shown"></div>'
    body = f"{text}{switches}{render_panels(content.labels, data, 'curves')}"
    return Section("curves", "Learning curves", body, data)


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


def render_appeal(content: Content) -> Section:
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


def render_differences(content: Content) -> Section:
    """Return the section: for each measure, the differences to the first method after each of the
    rounds shown."""
    title = "Paired differences"
    first, *others = content.labels
    if not others:
        text = "There is only one method here. `muster compare` runs methods on matched seeds."
        return Section("differences", title, paragraph(text))
    data: dict[str, Any] = {}
    rows: list[list[Any]] = []
    for measure in content.compared_measures:
        found = content.summary.filter(pl.col("measure") == measure.name, pl.col("method") != first)
        scaled = found.with_columns(pl.col("difference", "difference_half") * measure.scale)
        gaps = [row for row in scaled.iter_rows(named=True) if row["difference"] is not None]
        if not gaps:
            continue
        panel = data[measure.name] = {
            "title": panel_title(measure, content.all_priority),
            "better": "left" if measure.lower else "right",
            "rows": [],
        }
        for row in gaps:
            value, half, clear = row["difference"], row["difference_half"], row["clear"]
            panel["rows"].append(
                {
                    "method": content.labels.index(row["method"]),
                    "round": row["round"],
                    "value": round_numbers([value])[0],
                    "half": None if half is None else round_numbers([half])[0],
                    "clear": clear,
                }
            )
            name = measure.name.replace("_", " ")
            interval = None if half is None else f"{half:.4f}"
            excludes = "-" if half is None else "yes" if clear else "no"
            rows.append([row["method"], name, row["round"], f"{value:+.4f}", interval, excludes])
    figures = "".join(
        f"<figure><figcaption>{escape(panel['title'])}</figcaption>"
        f"{chart('forest', f'differences/{name}', describe_differences(content, panel))}</figure>"
        for name, panel in data.items()
    )
    text = paragraph(
        f"Difference to {first}, seed by seed, with its 95 % interval: the mark is filled where "
        f"the interval excludes 0. {sentence(coverage_notes(content.runs)[0])}"
        if len(content.seeds) > 1
        else f"Difference to {first}. One seed: there are no intervals.",
    )
    head = ["method", "measure", "round", f"difference to {first}", "± 95 %", "excludes 0"]
    body = f'{text}<div class="panels">{figures}</div>'
    body += table("differences", head, rows, "Paired differences", 2)
    return Section("differences", title, body, data)


def describe_differences(content: Content, panel: dict[str, Any]) -> str:
    """Describe a panel for screen readers."""
    gaps = [
        f"{content.labels[row['method']]} {row['value']:+}"
        + ("" if row["half"] is None else f" plus or minus {row['half']}")
        + f" after round {row['round']}"
        for row in panel["rows"]
    ]
    return f"{panel['title']}, difference to {content.labels[0]}: {'; '.join(gaps)}"
