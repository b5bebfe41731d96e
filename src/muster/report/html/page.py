"""The page: all sections, the script and the style in one self-contained file.

The page may run its own script and nothing else: its content security policy has the checksum of
that script, so that even text which got past the escaping could not become code.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from ... import __version__
from ...base import durable
from ..intervals import Runs, choose_measures
from ..style import OKABE_ITO, OKABE_ITO_ON_DARK, LineStyle
from .client_sections import render_clients, render_data
from .content import Content
from .headline import describe_hundred, describe_results, render_headline
from .markup import Section, embed_json, escape, svg_dashes
from .measure_sections import render_appeal, render_curves, render_differences
from .participation_sections import render_band, render_participation
from .privacy_section import released_sections, render_privacy
from .run_sections import render_configuration, render_costs
from .weight_sections import render_attackers, render_helpers

# In the order of the page, by the text of their links.
SECTIONS = {
    "Result": render_headline,
    "Curves": render_curves,
    "Differences": render_differences,
    "Participation": render_participation,
    "Helpers": render_helpers,
    "Clients": render_clients,
    "Appeal": render_appeal,
    "Attackers": render_attackers,
    "Epsilon": render_band,
    "Privacy": render_privacy,
    "Costs": render_costs,
    "Data": render_data,
    "Reproduce": render_configuration,
}
CHARTS = ("lines", "forest", "participation", "helpers", "gains", "band", "bars")
SCRIPTS = tuple(f"{name}.js" for name in ("base", "table", "axes", "cells", *CHARTS, "main"))
TEMPLATE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; base-uri 'none'; form-action 'none'; style-src '{style_sum}'; script-src '{script_sum}'">
{refresh}<title>{title}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#{first}">Skip to the result</a>
<header>
<h1>{title}</h1>
<button type="button" id="theme" aria-label="light or dark">◐ <span>theme: system</span></button>
</header>
<nav aria-label="sections"><ul>{links}</ul></nav>
<noscript><p class="attention">The charts need JavaScript, which is switched off here; all tables are shown.</p></noscript>
<main>
{sections}
</main>
<footer><p>{footer}</p></footer>
<div id="tip" role="status" aria-live="polite"></div>
<script type="application/json" id="numbers">{data}</script>
<script>{script}</script>
</body>
</html>
"""  # noqa: E501


def render_page(content: Content, refresh: int = 0) -> str:
    """Return the whole page; with `refresh`, it reloads itself after that many seconds."""
    made = render_sections(content)
    return assemble(content.heading, made, content.labels, content.seeds, refresh)


def render_sections(content: Content) -> dict[str, Section]:
    """Return every section of a report, by the text of its link."""
    return {link: render(content) for link, render in SECTIONS.items()}


def assemble(
    title: str,
    sections: Mapping[str, Section],
    labels: Sequence[str],
    seeds: Sequence[int],
    refresh: int = 0,
) -> str:
    """Return a page of sections, given by the text of their links."""
    data = {
        "methods": [
            {
                "label": label,
                "colour": i % len(OKABE_ITO),
                "dashes": svg_dashes(LineStyle.of(i)),
                "marker": LineStyle.of(i).marker,
            }
            for i, label in enumerate(labels)
        ],
        "seeds": list(seeds),
        "sections": {part.name: part.data for part in sections.values() if part.data},
    }
    style, script = load_static()
    return TEMPLATE.format(
        title=escape(title),
        first=next(iter(sections.values())).name,
        style=style,
        script=script,
        style_sum=checksum(style),
        script_sum=checksum(script),
        refresh=f'<meta http-equiv="refresh" content="{refresh}">\n' if refresh else "",
        links="".join(
            f'<li><a href="#{part.name}">{escape(link)}</a></li>' for link, part in sections.items()
        ),
        sections="\n".join(part.html() for part in sections.values()),
        data=embed_json(data),
        footer=escape(f"Created by muster {__version__}."),
    )


@cache
def load_static() -> tuple[str, str]:
    """Return the style and the script, each as one text."""
    place = files(__package__) / "static"
    colours = "".join(
        f"--l{i}:{light};--d{i}:{dark};"
        for i, (light, dark) in enumerate(zip(OKABE_ITO, OKABE_ITO_ON_DARK, strict=True))
    )
    style = f":root{{{colours}}}\n{(place / 'report.css').read_text('utf-8')}"
    whole = "\n".join((place / name).read_text("utf-8") for name in SCRIPTS)
    return style, f'"use strict";(()=>{{\n{whole}\n}})();'


def checksum(text: str) -> str:
    """Return the checksum of a text for the content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def report(
    runs: Runs,
    path: str | Path,
    report_at: Iterable[int] = (),
    measures: Iterable[str] = (),
    title: str = "",
    complete: bool = True,
) -> Path:
    """Write the report of these runs to an HTML file."""
    path = Path(path)
    content = Content(runs, tuple(report_at), tuple(measures), title, complete)
    path.parent.mkdir(parents=True, exist_ok=True)
    durable.write(path, render_page(content))
    return path


def report_public(runs: Runs, path: str | Path, title: str = "") -> Path:
    """Write a page with the released numbers of private runs alone to an HTML file."""
    path = Path(path)
    content = Content(runs, title=title)
    made = released_sections(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    durable.write(path, assemble(content.heading, made, content.labels, content.seeds))
    return path


def describe(runs: Runs, report_at: Iterable[int], measures: str | Iterable[str]) -> list[str]:
    """Return the result in a sentence or two, for a terminal."""
    names = tuple(measure.name for measure in choose_measures(runs, measures))
    content = Content(runs, tuple(report_at), names)
    return [describe_results(content)[0], *describe_hundred(content)]


def render_inline(runs: Runs, report_at: Iterable[int] = (), measures: Iterable[str] = ()) -> str:
    """Return the report for a notebook: the headline, and the page in a sandboxed frame."""
    content = Content(runs, tuple(report_at), tuple(measures))
    head = describe_results(content)[0]
    return (
        f"<p><b>{escape(head)}</b></p>"
        f'<iframe title="report" sandbox="allow-scripts allow-downloads" width="100%" height="720" '
        f'style="border:1px solid #8888" srcdoc="{escape(render_page(content))}"></iframe>'
    )
