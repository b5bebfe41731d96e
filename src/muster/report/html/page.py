"""The page: all sections, the script and the style in one file that needs no other.

The page may run the one script it came with and nothing else: its policy names that script's
checksum, so that even text which got past the escaping could not become code.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path

from ... import __version__
from ...base import durable
from ..intervals import Runs
from ..style import OKABE_ITO, OKABE_ITO_ON_DARK, Look
from . import (
    appeal,
    attackers,
    band,
    client_table,
    configuration,
    costs,
    data_overview,
    differences,
    headline,
    learning_curves,
    participation,
)
from .content import Story
from .markup import Section, dashes, embedded, say

# In the order a reader asks, each with what links call it.
SECTIONS = {
    "Answer": headline,
    "Curves": learning_curves,
    "Differences": differences,
    "Who took part": participation,
    "Clients": client_table,
    "Whom it serves": appeal,
    "Attackers": attackers,
    "Epsilon": band,
    "Costs": costs,
    "Data": data_overview,
    "How to repeat it": configuration,
}
SCRIPTS = (
    "base.js", "table.js", "axes.js", "lines.js", "forest.js", "picture.js", "gains.js",
    "band.js", "bars.js", "main.js",
)  # fmt: skip
SHAPE = """\
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
<a class="skip" href="#answer">To the answer</a>
<header>
<h1>{title}</h1>
<button type="button" id="theme" aria-label="light or dark">◐ <span>theme: as the system</span></button>
</header>
<nav aria-label="sections"><ul>{links}</ul></nav>
<noscript><p class="attention">The charts are drawn by a script, which is switched off here; the tables are all here.</p></noscript>
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


def page(story: Story, refresh: int = 0) -> str:
    """The whole page as text; with `refresh`, one that loads itself again after that many
    seconds."""
    made = {link: part.section(story) for link, part in SECTIONS.items()}
    return assembled(story.heading, made, story.labels, story.seeds, refresh)


def assembled(
    title: str,
    sections: Mapping[str, Section],
    labels: Sequence[str],
    seeds: Sequence[int],
    refresh: int = 0,
) -> str:
    """A page of sections, each with what links call it."""
    data = {
        "methods": [
            {"label": label, "colour": i % len(OKABE_ITO), "dashes": dashes(Look.of(i)),
             "marker": Look.of(i).marker}
            for i, label in enumerate(labels)
        ],
        "seeds": list(seeds),
        "sections": {part.name: part.data for part in sections.values() if part.data},
    }  # fmt: skip
    style, script = static()
    return SHAPE.format(
        title=say(title),
        style=style,
        script=script,
        style_sum=checksum(style),
        script_sum=checksum(script),
        refresh=f'<meta http-equiv="refresh" content="{refresh}">\n' if refresh else "",
        links="".join(
            f'<li><a href="#{part.name}">{say(link)}</a></li>' for link, part in sections.items()
        ),
        sections="\n".join(part.html() for part in sections.values()),
        data=embedded(data),
        footer=say(f"Made by muster {__version__}."),
    )


@cache
def static() -> tuple[str, str]:
    """The style and the script, each as one text."""
    place = files(__package__) / "static"
    colours = "".join(
        f"--l{i}:{light};--d{i}:{dark};"
        for i, (light, dark) in enumerate(zip(OKABE_ITO, OKABE_ITO_ON_DARK, strict=True))
    )
    style = f":root{{{colours}}}\n{(place / 'report.css').read_text('utf-8')}"
    whole = "\n".join((place / name).read_text("utf-8") for name in SCRIPTS)
    return style, f'"use strict";(()=>{{\n{whole}\n}})();'


def checksum(text: str) -> str:
    """What a policy calls a text by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def report(
    runs: Runs,
    path: str | Path,
    report_at: Iterable[int] = (),
    measures: Iterable[str] = (),
    title: str = "",
    complete: bool = True,
) -> Path:
    """Write the page of these runs to a file."""
    path = Path(path)
    story = Story(runs, tuple(report_at), tuple(measures), title, complete)
    path.parent.mkdir(parents=True, exist_ok=True)
    durable.write(path, page(story))
    return path


def inline(runs: Runs, report_at: Iterable[int] = (), measures: Iterable[str] = ()) -> str:
    """The page as a notebook shows it: the answer, and everything else in a frame of its own,
    which can do nothing to the notebook."""
    story = Story(runs, tuple(report_at), tuple(measures))
    head = headline.answers(story)[0]
    return (
        f"<p><b>{say(head)}</b></p>"
        f'<iframe title="report" sandbox="allow-scripts allow-downloads" width="100%" height="720" '
        f'style="border:1px solid #8888" srcdoc="{escape(page(story), quote=True)}"></iframe>'
    )
