"""The page of advice: first for those who decide, then the researcher's report of its runs.

A site's page has its own numbers only. Charts here are drawn without a script, so that the first
page is whole where scripts are switched off.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...base import durable
from ...base.errors import plural
from ...base.untrusted_files import safe_path
from ..advice_content import (
    Advice,
    ClientContent,
    describe_score,
    format_gain,
    name_class,
)
from ..text_format import sentence
from ..way_content import Outcomes, WayContent
from .content import Content
from .markup import Section, escape, paragraph, table
from .page import assemble, render_sections

REPORT = "report.html"
SHADES = 3  # shades of a gain or harm in the picture of who gains from whom
MOST_HARM = 2.0  # times the loss alone, or the largest gain, from which a chart cuts harm off
WIDTH, ROW = 520, 26  # size of a chart of intervals, and the height of one
LETTER, LONGEST = 9, 26  # width of a letter of a way's name on a phone, and letters shown of it
SIDE = 220  # size of a calibration curve
UNKNOWN = (
    "These verdicts are for rows like those measured here, with this model and this many steps; "
    "another model, or settings tuned for each way, may gain more or less.",
    "Nothing here is about next year's rows, another device or a site that codes its columns "
    "in another way.",
    "A gain is an average over a site's rows: some of them may fare worse. Privacy, work and "
    "contracts are not weighed.",
)


def write_page(advice: Advice, path: Path, title: str = "") -> Path:
    """Write the page for those who decide, with the report of the runs after it."""
    made = make_sections(advice, list(advice.clients.values()))
    labels: list[str] = []
    seeds: list[int] = []
    if advice.runs:
        content = Content(advice.runs)
        behind = render_sections(content)
        head = replace(behind["Result"], title="For the researcher: the runs behind it")
        made |= {**behind, "Result": head}
        labels, seeds = content.labels, content.seeds
    return write_file(path, assemble(title or f"Advice: {advice.data}", made, labels, seeds))


def write_site_page(advice: Advice, name: str, folder: Path, title: str = "") -> Path:
    """Write the page of one client, without the others' numbers, as report-NAME.html."""
    made = make_sections(advice, [advice[name]])
    path = safe_path(folder, f"report-{name}.html")
    return write_file(path, assemble(title or f"Advice for {name}: {advice.data}", made, [], []))


def write_file(path: Path, page: str) -> Path:
    """Write a page, in a folder that may be new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    durable.write(path, page)
    return path


def make_sections(advice: Advice, clients: Sequence[ClientContent]) -> dict[str, Section]:
    """Return the sections about some clients, by the text of their links."""
    whole = len(clients) == len(advice.clients)
    made = {
        "Advice": advice_section(advice, clients, whole),
        "Gains": picture_section(advice, clients, whole),
        "Sites": site_section(advice, clients),
    }
    if any(c.alone.outcomes and c.alone.outcomes.bins for c in clients):
        made["Calibration"] = calibration_section(advice, clients)
    made["Cost"] = price_section(advice, clients)
    made["Not known"] = unknown_section(advice, clients)
    return made


def advice_section(advice: Advice, clients: Sequence[ClientContent], whole: bool) -> Section:
    """Return the section: the verdict of each client with its reasons and a chart."""
    rows = sum(c.rows + c.test_rows for c in clients)
    setup = (
        f"{plural(len(clients), 'client')} with {rows:,} rows. Each trained alone, with others and "
        f"by several methods, {plural(advice.rounds, 'round')} and {advice.steps} local steps each "
        f"time, and was judged on rows held out, in {plural(advice.seeds, 'seed')}."
    )
    cards = "".join(card(client, advice.classes) for client in clients)
    body = paragraph(setup, kind="setup")
    if whole:
        body += paragraph(advice.summary(), kind="headline") + paragraph(advice.describe_method())
    meaning = (
        f"join: some way clearly gains, at least {advice.least:.0%} of its loss alone. help: it is "
        "not shown to gain so, and others clearly gain by it. stay out: every way is shown to gain "
        "less than that, or to harm. cannot tell: the rows do not say."
    )
    of = "of predicted probabilities" if advice.classes else "of predictions"
    reading = (
        f"Loss is the error {of} on rows that the model has not seen: less is better. In a chart, "
        "right of the upright line is better than alone; a bar covers what the gain may be, and "
        "the dot is filled where gain or harm is clear; ◂ and a number is a harm far off the chart."
    )
    body += f'<div class="cards">{cards}</div>'
    body += paragraph(meaning, kind="setup") + paragraph(reading, kind="setup")
    return Section("advice", "Should each site join?", body)


def card(client: ClientContent, classes: Sequence[str]) -> str:
    """Return the verdict of one client, its reasons, its rows of 100, and its gains as a chart."""
    kind = client.verdict.replace(" ", "-")
    return (
        f'<article class="card {kind}"><h3>{escape(client.name)}: '
        f'<span class="verdict">{escape(client.headline())}</span></h3>'
        f"{paragraph(client.sentence())}{paragraph(client.describe_hundred(classes))}"
        f"{interval_chart(client)}</article>"
    )


def interval_chart(client: ClientContent) -> str:
    """Return the gain of every way with its interval, against zero, as SVG."""
    shown = [(way, way.gain) for way in client.ways.values() if way.gain is not None]
    if not shown:
        return ""
    low = min(gain[0] for _, gain in shown)
    high = max(gain[2] for _, gain in shown)
    low = max(low, -MOST_HARM * max(client.alone.loss, high))
    low, high = min(low, -(high - low) / 5), max(high, (high - low) / 5)
    span = (high - low) or 1.0
    names = [shorten(way.name) for way, _ in shown]
    left, right = max(150, 14 + LETTER * max(map(len, names))), WIDTH - 30

    def x(value: float) -> float:
        return round(left + (max(value, low) - low) / span * (right - left), 1)

    height = ROW * len(shown) + 24
    parts = [line(x(0), 4, x(0), height - 20, "zero")]
    for i, (way, (a, mean, b)) in enumerate(shown):
        y = ROW * i + 18
        kind = "m1" if mean < 0 else "m0"
        hollow = "" if way.clear else " hollow"
        parts += [
            text(left - 12, y + 4, names[i], "tick end"),
            line(x(a), y, x(b), y, f"line {kind}"),
            text(left, y + 4, f"◂ {mean:+.3g}", "tick")
            if mean < low
            else f'<circle cx="{x(mean)}" cy="{y}" r="5" class="mark {kind}{hollow}"/>',
        ]
    parts += [text(x(value), height - 6, f"{value:+.2f}", "tick middle") for value in (low, high)]
    parts.append(text(x(0), height - 6, "alone", "tick middle"))
    said = "; ".join(f"{way.name} {format_gain(gain)}" for way, gain in shown)
    return svg(WIDTH, height, f"Gains of {client.name}: {said}", parts)


def picture_section(advice: Advice, clients: Sequence[ClientContent], whole: bool) -> Section:
    """Return the section: who gains from whom, a row for each client, a column for each way."""
    most = max(  # no gain is above the loss alone, and what harms more is as strong
        (
            min(abs(way.gain[1]), c.alone.loss)
            for c in clients
            for way in c.ways.values()
            if way.gain
        ),
        default=0.0,
    )
    head = "".join(f'<th scope="col">{escape(way)}</th>' for way in advice.ways)
    rows = "".join(
        f'<tr><th scope="row">{escape(c.name)}</th>'
        + "".join(picture_cell(c.ways.get(way), most) for way in advice.ways)
        + "</tr>"
        for c in clients
    )
    body = paragraph(
        "A row is who gains, a column by what: the fall of the row's held-out loss against alone. "
        "Blue is a gain, orange a loss, the stronger the more; * is clear over the whole table."
    )
    body += (
        '<div class="wide" tabindex="0" role="region" aria-label="who gains from whom">'
        f'<table class="picture" data-csv="gains"><thead><tr><th scope="col">who</th>{head}</tr>'
        f"</thead><tbody>{rows}</tbody></table></div>"
    )
    title = "Who gains from whom" if whole else f"What {clients[0].name} gains from whom"
    return Section("who-gains", title, body + paragraph(sentence(advice.note)))


def picture_cell(way: WayContent | None, most: float) -> str:
    """Return a cell of the picture, shaded by its gain."""
    if way is None or way.gain is None:
        return '<td class="number">–</td>'
    mean = way.gain[1]
    shade = min(SHADES, 1 + int(SHADES * abs(mean) / most)) if most else 0
    kind = f"{'up' if mean > 0 else 'down'}{shade}" if mean else ""
    return f'<td class="number {kind}">{mean:+.3f}{"*" if way.clear else ""}</td>'


def site_section(advice: Advice, clients: Sequence[ClientContent]) -> Section:
    """Return the section: the numbers of each client alone, and by the way advised or best."""
    scores = list(dict.fromkeys(name for c in clients for name in c.alone.scores))
    two = any(c.alone.outcomes for c in clients)
    head = ["client", "way", "training rows", "held out a seed", "loss"]
    head += [describe_score(name) for name in scores]
    head += ["sensitivity", "specificity"] if two else []
    rows: list[list[Any]] = []
    for c in clients:
        for way in (c.alone, *([c.best] if c.best else [])):
            cells: list[Any] = [c.name, way.name, c.rows, c.test_rows, f"{way.loss:.3f}"]
            cells += [format_number(way.scores.get(name)) for name in scores]
            if two:
                out = way.outcomes
                cells += [None, None] if out is None else [*map(format_number, rates(out))]
            rows.append(cells)
    text = "Means over the seeds, on rows held out."
    if two and advice.classes:
        text += (
            f" Sensitivity: the share of {name_class(advice.classes[1])} that is found; "
            f"specificity: the share of {name_class(advice.classes[0])} that is recognised; both "
            "at a probability of one half."
        )
    body = paragraph(text) + table("sites", head, rows, "Alone, and by the way advised or best", 2)
    return Section("sites", "What each site gets", body)


def rates(outcomes: Outcomes) -> tuple[float | None, float | None]:
    """Return sensitivity and specificity."""
    return outcomes.sensitivity, outcomes.specificity


def calibration_section(advice: Advice, clients: Sequence[ClientContent]) -> Section:
    """Return the section: for each client, how often what is predicted comes true."""
    figures = []
    for c in clients:
        ways = [(way, "m1" if i == 0 else "m0") for i, way in enumerate([c.alone, c.best]) if way]
        chart = calibration_chart(c.name, [(w, kind) for w, kind in ways if w.outcomes])
        key = ", ".join(f"{w.name} {'orange' if kind == 'm1' else 'blue'}" for w, kind in ways)
        figures.append(f"<figure><figcaption>{escape(f'{c.name}: {key}')}</figcaption>{chart}")
        figures.append("</figure>")
    what = name_class(advice.classes[1]) if advice.classes else "the second class"
    body = paragraph(
        f"Of rows with a predicted probability of {what} in one tenth of the scale, the share that "
        "is so, over all seeds; on the diagonal, probabilities are right. Larger dots have more "
        "rows."
    )
    body += f'<div class="panels">{"".join(figures)}</div>'
    return Section("calibration", "Do probabilities mean what they say?", body)


def calibration_chart(name: str, ways: Iterable[tuple[WayContent, str]]) -> str:
    """Return the calibration curves of some ways as SVG."""
    left, bottom = 34, SIDE - 28

    def x(p: float) -> float:
        return round(left + p * (SIDE - 10 - left), 1)

    def y(p: float) -> float:
        return round(bottom - p * (bottom - 10), 1)

    parts = [line(x(0), y(0), x(1), y(1), "axis")]
    for p in (0.0, 0.5, 1.0):
        parts += [text(x(p), SIDE - 12, f"{p:g}", "tick middle")]
        parts += [text(left - 6, y(p) + 4, f"{p:g}", "tick end")]
    parts += [line(x(0), y(0), x(1), y(0), "axis"), line(x(0), y(0), x(0), y(1), "axis")]
    said = []
    for way, kind in ways:
        if way.outcomes is None:
            continue
        points = [(p / n, hits / n, n) for n, p, hits in way.outcomes.bins if n]
        total = sum(n for _, _, n in points)
        path = " ".join(f"{x(a)},{y(b)}" for a, b, _ in points)
        parts.append(f'<polyline points="{path}" class="line {kind}"/>')
        parts += [
            f'<circle cx="{x(a)}" cy="{y(b)}" r="{2 + 8 * (n / total) ** 0.5:.1f}" '
            f'class="mark {kind}"/>'
            for a, b, n in points
        ]
        said.append(f"{way.name}: " + ", ".join(f"{a:.2f} to {b:.2f}" for a, b, _ in points))
    return svg(SIDE, SIDE, f"Calibration of {name}; {'; '.join(said)}", parts)


def price_section(advice: Advice, clients: Sequence[ClientContent]) -> Section:
    """Return the section: rounds and bytes of every way, for a client on average."""
    rows = []
    for name in advice.ways:
        ways = [c.ways[name] for c in clients if name in c.ways]
        if ways:
            sent = sum(way.bytes_up for way in ways) / len(ways)
            received = sum(way.bytes_down for way in ways) / len(ways)
            rows.append([name, advice.rounds, format_kilobytes(sent), format_kilobytes(received)])
    body = paragraph(
        "What a client sends and receives in one whole training that it takes part in. Local work "
        f"is the same everywhere, {advice.steps} steps, as alone; the client that assist is for "
        "takes each step on two halves of its rows."
    )
    head = ["way", "rounds", "sends kB", "receives kB"]
    return Section("price", "What it costs", body + table("price", head, rows, "Cost of a client"))


def unknown_section(advice: Advice, clients: Sequence[ClientContent]) -> Section:
    """Return the section: what these numbers do not say."""
    open_ones = [c.name for c in clients if c.verdict == "cannot tell"]
    lines = [*UNKNOWN, *map(sentence, advice.remarks)]
    if open_ones:
        lines.insert(0, f"Not decided by these rows: {', '.join(open_ones)}.")
    items = "".join(f"<li>{escape(item)}</li>" for item in lines)
    return Section("not-known", "What is not known", f"<ul>{items}</ul>")


def format_number(value: float | None) -> str | None:
    """Format a number for a cell; None where it is missing."""
    return None if value is None or value != value else f"{value:.3f}"


def format_kilobytes(size: float) -> str:
    """Format a number of bytes in kB; models of a few numbers are not nothing.

    >>> format_kilobytes(72.0), format_kilobytes(31_840.0)
    ('0.07', '31.8')
    """
    return f"{size / 1e3:.{1 if size >= 1e3 else 2}f}"


def shorten(name: str) -> str:
    """Return a name with at most `LONGEST` letters."""
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Return a line of a chart."""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{kind}"/>'


def text(x: float, y: float, words: str, kind: str) -> str:
    """Return a text of a chart."""
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(words)}</text>'


def svg(width: int, height: int, description: str, parts: Iterable[str]) -> str:
    """Return a chart; screen readers read the description."""
    return (
        f'<svg class="still" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(description)}">{"".join(parts)}</svg>'
    )
