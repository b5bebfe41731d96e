"""Markup: text as escaped HTML, numbers as JSON.

Everything in the page passes through here: `escape` for text, `embed_json` for numbers. A client
may be called `<script>`, or `</script>`, and the page shows that name. Large arrays are compressed
(zlib) and written as base64; the browser unpacks them.
"""

from __future__ import annotations

import base64
import html
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...base.arrays import Float64
from ...base.lazy import pl
from ..style import LineStyle

POINTS = 400  # most points of a curve; more rounds are thinned
MISSING = 65535  # code of a missing number


@dataclass(frozen=True)
class Section:
    """One section of the page.

    Attributes:
        name: its name in links, and in the page's data
        title: its heading
        body: its HTML
        data: the numbers of its charts
    """

    name: str
    title: str
    body: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def html(self) -> str:
        """Return the section with its heading."""
        return (
            f'<section id="{self.name}" aria-labelledby="{self.name}-title">\n'
            f'<h2 id="{self.name}-title">{escape(self.title)}</h2>\n{self.body}\n</section>'
        )


def escape(text: object) -> str:
    """Escape text for HTML.

    >>> escape('<script>"')
    '&lt;script&gt;&quot;'
    """
    return html.escape(str(text), quote=True)


def paragraph(*sentences: str, kind: str = "") -> str:
    """Return sentences as a paragraph; nothing where there are none."""
    text = " ".join(escape(sentence) for sentence in sentences if sentence)
    return f"<p{f' class={kind}' if kind else ''}>{text}</p>" if text else ""


def table(
    name: str, head: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "", text: int = 1
) -> str:
    """Return a table that can be sorted and saved as NAME.csv.

    The first `text` columns are text, the others numbers.
    """
    cells = "".join(f'<th scope="col">{escape(h)}</th>' for h in head)
    body = []
    for row in rows:
        first, *rest = row
        tds = [
            f"<td{_cell_class(i + 1, text)}>{'–' if cell is None else escape(cell)}</td>"
            for i, cell in enumerate(rest)
        ]
        body.append(f'<tr><th scope="row">{escape(first)}</th>{"".join(tds)}</tr>')
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption or name)}">'
        f'<table data-csv="{escape(name)}">{above}<thead><tr>{cells}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _cell_class(i: int, text: int) -> str:
    return "" if i < text else " class=number"


def chart(kind: str, name: str, description: str) -> str:
    """Return the element of a chart; screen readers read the description."""
    names = f'data-name="{escape(name)}" data-description="{escape(description)}"'
    return f'<div class="chart" data-chart="{kind}" {names}></div>'


def lazy_table(title: str, name: str) -> str:
    """Return a table of a chart's numbers that is built when it is opened."""
    summary = f"<summary>{escape(title)}</summary>"
    return f'<details class="lazy" data-table="{escape(name)}">{summary}</details>'


def svg_dashes(style: LineStyle) -> str:
    """Return a line style as SVG's stroke-dasharray."""
    if isinstance(style.dashes, str):
        return ""
    return " ".join(f"{1.5 * d:g}" for d in style.dashes[1])


def embed_json(data: Any) -> str:
    """Return data as JSON for a script element: without `<`, so that it cannot end the element.

    >>> embed_json({"name": "</script>"})
    '{"name":"\\\\u003c/script>"}'
    """
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace("&", "\\u0026")


def thin(n: int, most: int = POINTS) -> list[int]:
    """Return which of n points are drawn: all, or every k-th, always with the first and the last.

    >>> thin(4), thin(10, most=4)
    ([0, 1, 2, 3], [0, 3, 6, 9])
    """
    if n <= most:
        return list(range(n))
    return sorted({*range(0, n, -(-n // most)), n - 1})


def round_numbers(values: ArrayLike, digits: int = 5) -> list[float | None]:
    """Round numbers to a few digits; None where a number is missing.

    >>> round_numbers([0.123456789, float("nan"), 2])
    [0.12346, None, 2.0]
    """
    flat = np.asarray(values, np.float64).tolist()
    return [float(f"{x:.{digits}g}") if np.isfinite(x) else None for x in flat]


def column_numbers(frame: pl.DataFrame, name: str) -> list[Any]:
    """Return a column as rounded numbers; Nones where the frame does not have it."""
    if name not in frame.columns:
        return [None] * len(frame)
    return round_numbers(frame[name].cast(pl.Float64).to_numpy())


def pack(values: NDArray[Any]) -> str:
    """Compress whole numbers, little-endian, to base64."""
    raw = values.astype(values.dtype.newbyteorder("<")).tobytes()
    return base64.b64encode(zlib.compress(raw, 9)).decode()


def quantize(values: Float64) -> dict[str, Any]:
    """Pack numbers to one part in 65,534 of their span: `low + code * step`."""
    finite = np.isfinite(values)
    low = float(values[finite].min()) if finite.any() else 0.0
    span = float(np.ptp(values[finite])) if finite.any() else 0.0
    step = span / (MISSING - 1) or 1.0
    codes = np.where(finite, np.round((np.where(finite, values, low) - low) / step), MISSING)
    return {"low": low, "step": step, "codes": pack(codes.astype(np.uint16))}
