"""Text for terminals and figures: ASCII replacements, escaping, wrapping, names of swept keys.

`muster` prints on any terminal. `replace_unprintable` makes a stream replace the characters its
encoding does not have; tables, whose column widths depend on the length of a text, replace them
before layout (`to_ascii`).
"""

from __future__ import annotations

import codecs
import io
import re
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import Any, TextIO

from ..base.errors import printable
from ..base.schema import label_and_key

NEAREST = {
    "±": "+-",
    "…": "...",
    "×": "x",
    "·": ".",
    "★": "*",
    "≤": "<=",
    "≥": ">=",
    "┆": "|",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
    "ß": "ss",
    "æ": "ae",
    "ø": "o",
    "ł": "l",
    **dict(zip("▁▂▃▄▅▆▇█", ".:-=+*#@", strict=True)),
    **dict.fromkeys("−–—─━═╸╺╴╶", "-"),
    **dict.fromkeys("│┃║", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯╞╡╪┏┓┗┛┡┩┳╇╈┻", "+"),
}
HANDLER = "muster.nearest"


def to_ascii(text: str) -> str:
    """Return a text in ASCII, each character replaced by the nearest one.

    >>> to_ascii("Zürich 0.5±0.1"), to_ascii("\\u6771")
    ('Zurich 0.5+-0.1', '?')
    """
    return text if text.isascii() else "".join(map(_letter_to_ascii, text))


def _letter_to_ascii(letter: str) -> str:
    if letter.isascii():
        return letter
    if letter in NEAREST:
        return NEAREST[letter]
    base = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return base or "?"


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return to_ascii(error.object[error.start : error.end]), error.end


def replace_unprintable(*streams: TextIO) -> None:
    """Make streams print any text, with the nearest ASCII for characters they cannot encode."""
    codecs.register_error(HANDLER, _replace)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=HANDLER)


def sentence(line: str) -> str:
    """Turn a line below a table into a sentence.

    >>> sentence("data: a subset")
    'Data: a subset.'
    """
    return f"{line[:1].upper()}{line[1:]}."


def escape_mathtext(text: str) -> str:
    """Escape a text for matplotlib: `$` starts no formula, control characters are made visible.

    >>> escape_mathtext("a $ a day")
    'a \\\\$ a day'
    """
    return printable(text).replace("$", r"\$")


def wrap_label(text: str, width: int, lines: int = 3) -> str:
    """Wrap a user's label to a width and a number of lines, escaped for matplotlib.

    >>> wrap_label("fedalign with a very long name", 16)
    'fedalign with a\\nvery long name'
    """
    wrapped = textwrap.wrap(text, width, max_lines=lines, placeholder="…") or [text]
    return escape_mathtext("\n".join(wrapped))


def shorten(name: str, most: int = 14) -> str:
    """Cut a name to fit below a bar, escaped for matplotlib."""
    return escape_mathtext(name if len(name) <= most else f"{name[: most - 1]}…")


def split_value(value: str, width: int) -> list[str]:
    """Split a value into lines of about this width, between its parts; no part is broken.

    >>> split_value("dirichlet(alpha=0.3,min_rows=5)", 14)
    ['dirichlet', '(alpha=0.3,', 'min_rows=5)']
    """
    lines = [""]
    for part in re.split(r"(?<=[\s,+/_])|(?=\()", value):
        if lines[-1] and len(lines[-1] + part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines]


def name_keys(keys: Sequence[str], labels: Sequence[str]) -> dict[str, str]:
    """Return short names of swept keys: as much of each key's end as makes it unique.

    A key of one method (`methods.LABEL.KEY`) has the method's label before it, since the rows of
    other methods ran with another value.

    Args:
        keys: the swept keys, such as `local.lr`
        labels: the labels of the methods

    >>> name_keys(["local.batch_size", "methods.fedavg.local.lr"], ["fedavg"])
    {'local.batch_size': 'batch size', 'methods.fedavg.local.lr': 'fedavg: lr'}
    >>> name_keys(["local.steps", "requirement.steps"], []).values()
    dict_values(['local steps', 'requirement steps'])
    """
    split = {key: _owner_and_parts(key, labels) for key in keys}
    names = {}
    for key, (owner, parts) in split.items():
        others = [p for other, (o, p) in split.items() if other != key and o == owner]
        enough = (n for n in range(1, len(parts)) if parts[-n:] not in [p[-n:] for p in others])
        end = " ".join(parts[-next(enough, len(parts)) :]).replace("_", " ")
        names[key] = f"{owner}: {end}" if owner else end
    return names


def _owner_and_parts(key: str, labels: Sequence[str]) -> tuple[str, list[str]]:
    """Return the label of the method a key belongs to, or "", and the parts of the key."""
    head, _, rest = key.partition(".")
    found = label_and_key(labels, rest) if head == "methods" else None
    owner, inner = found or ("", key)
    return owner, inner.split(".")


def format_value(value: Any) -> str:
    """Format a value of a swept key.

    >>> format_value(0.10), format_value(True), format_value("low")
    ('0.1', 'true', 'low')
    """
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def join_words(words: Sequence[str]) -> str:
    """Join names to a list in a sentence.

    >>> join_words(["a"]), join_words(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
