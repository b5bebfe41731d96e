"""Markup: text from users, files and clients as text, never as code.

Everything that goes into the page passes through here: `say` for text, `embedded` for numbers. A
client may be called `<script>`, or `</script>`, and the page shows that name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from ..style import Look


@dataclass(frozen=True)
class Section:
    """One section of the page.

    Attributes:
        name: its place in links, and of its numbers
        title: its heading
        body: HTML
        data: what its charts are drawn of
    """

    name: str
    title: str
    body: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def html(self) -> str:
        """The section whole."""
        return (
            f'<section id="{self.name}" aria-labelledby="{self.name}-title">\n'
            f'<h2 id="{self.name}-title">{say(self.title)}</h2>\n{self.body}\n</section>'
        )


def say(text: object) -> str:
    """Text as HTML shows it.

    >>> say('<script>"')
    '&lt;script&gt;&quot;'
    """
    return escape(str(text), quote=True)


def paragraph(*sentences: str, kind: str = "") -> str:
    """Sentences as a paragraph; nothing where there are none."""
    text = " ".join(say(sentence) for sentence in sentences if sentence)
    return f"<p{f' class={kind}' if kind else ''}>{text}</p>" if text else ""


def embedded(data: Any) -> str:
    """Data as JSON that may stand inside a script element: no `<`, so that none of it ends it.

    >>> embedded({"name": "</script>"})
    '{"name":"\\\\u003c/script>"}'
    """
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace("&", "\\u0026")


def table(
    name: str, head: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "", text: int = 1
) -> str:
    """A table that can be sorted, and saved as NAME.csv; its first `text` columns are text."""
    cells = "".join(f'<th scope="col">{say(h)}</th>' for h in head)
    body = []
    for row in rows:
        first, *rest = row
        shown = [
            f"<td{_kind(i + 1, text)}>{'–' if cell is None else say(cell)}</td>"
            for i, cell in enumerate(rest)
        ]
        body.append(f'<tr><th scope="row">{say(first)}</th>{"".join(shown)}</tr>')
    above = f"<caption>{say(caption)}</caption>" if caption else ""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{say(caption or name)}">'
        f'<table data-csv="{say(name)}">{above}<thead><tr>{cells}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _kind(i: int, text: int) -> str:
    return "" if i < text else " class=number"


def chart(kind: str, name: str, said: str) -> str:
    """Where a chart is drawn; `said` is what a reader hears who does not see it."""
    names = f'data-name="{say(name)}" data-said="{say(said)}"'
    return f'<div class="chart" data-chart="{kind}" {names}></div>'


def behind(what: str, name: str) -> str:
    """A table that is made of a chart's numbers when it is opened."""
    summary = f"<summary>{say(what)}</summary>"
    return f'<details class="behind" data-behind="{say(name)}">{summary}</details>'


def dashes(look: Look) -> str:
    """A line style as SVG writes it."""
    return "" if isinstance(look.dashes, str) else " ".join(f"{1.5 * d:g}" for d in look.dashes[1])
