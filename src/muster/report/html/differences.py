"""Paired differences to the first method, as intervals against zero."""

from __future__ import annotations

from typing import Any

from ...base.lazy import pl
from ..ascii import sentence
from ..figure import title_of
from ..intervals import covered
from .content import Story, numbers
from .markup import Section, chart, paragraph, say, table


def section(story: Story) -> Section:
    """For each measure, every other method's difference to the first after each of the rounds."""
    title = "Paired differences"
    first, *others = story.labels
    if not others:
        said = "There is one method here. With `muster compare` methods run on matched seeds."
        return Section("differences", title, paragraph(said))
    data: dict[str, Any] = {}
    rows: list[list[Any]] = []
    for measure in story.compared:
        found = story.summary.filter(pl.col("measure") == measure.name, pl.col("method") != first)
        scaled = found.with_columns(pl.col("difference", "difference_half") * measure.scale)
        gaps = [row for row in scaled.iter_rows(named=True) if row["difference"] is not None]
        if not gaps:
            continue
        data[measure.name] = {
            "title": title_of(measure, story.everyone),
            "better": "left" if measure.lower else "right",
            "rows": [
                {
                    "method": story.labels.index(row["method"]),
                    "round": row["round"],
                    "value": numbers([row["difference"]])[0],
                    "half": None if row["difference_half"] is None
                    else numbers([row["difference_half"]])[0],
                    "clear": row["clear"],
                }
                for row in gaps
            ],
        }  # fmt: skip
        for row in gaps:
            half = row["difference_half"]
            rows.append([
                row["method"], measure.name.replace("_", " "), row["round"],
                f"{row['difference']:+.4f}", None if half is None else f"{half:.4f}",
                "-" if half is None else "yes" if row["clear"] else "no",
            ])  # fmt: skip
    figures = "".join(
        f"<figure><figcaption>{say(panel['title'])}</figcaption>"
        f"{chart('forest', f'differences/{name}', spoken(story, panel))}</figure>"
        for name, panel in data.items()
    )
    several = len(story.seeds) > 1
    said = paragraph(
        f"Difference to {first}, taken seed by seed, with its 95 % interval: a filled mark where "
        f"the interval excludes 0. {sentence(covered(story.runs)[0])}" if several
        else f"Difference to {first}. One seed: there are no intervals.",
    )  # fmt: skip
    head = ["method", "measure", "round", f"difference to {first}", "± 95 %", "excludes 0"]
    body = f'{said}<div class="panels">{figures}</div>{table("differences", head, rows, "Paired differences", 2)}'  # noqa: E501
    return Section("differences", title, body, data)


def spoken(story: Story, panel: dict[str, Any]) -> str:
    """A panel in words."""
    first = story.labels[0]
    said = [
        f"{story.labels[row['method']]} {row['value']:+}"
        + ("" if row["half"] is None else f" plus or minus {row['half']}")
        + f" after round {row['round']}"
        for row in panel["rows"]
    ]
    return f"{panel['title']}, difference to {first}: {'; '.join(said)}"
