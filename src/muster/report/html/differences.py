"""Paired differences to the first method, as intervals against zero."""

from __future__ import annotations

from typing import Any

from ...base.lazy import pl
from ..figure import panel_title
from ..intervals import coverage_notes
from ..text_format import sentence
from .content import Content
from .markup import Section, chart, escape, paragraph, round_numbers, table


def section(content: Content) -> Section:
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
        f"{chart('forest', f'differences/{name}', describe_panel(content, panel))}</figure>"
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


def describe_panel(content: Content, panel: dict[str, Any]) -> str:
    """Describe a panel for screen readers."""
    gaps = [
        f"{content.labels[row['method']]} {row['value']:+}"
        + ("" if row["half"] is None else f" plus or minus {row['half']}")
        + f" after round {row['round']}"
        for row in panel["rows"]
    ]
    return f"{panel['title']}, difference to {content.labels[0]}: {'; '.join(gaps)}"
