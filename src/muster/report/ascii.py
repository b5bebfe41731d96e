"""Letters for terminals that have few: what cannot be printed is replaced by what comes nearest.

`muster` must say what it has to say on any terminal. `let_through` tells a stream to replace what
its encoding has no letters for; tables, whose columns depend on how long a text is, replace it
themselves before they are laid out (`plain`).
"""

from __future__ import annotations

import codecs
import io
import unicodedata
from typing import TextIO

NEAREST = {
    "±": "+-", "…": "...", "×": "x", "·": ".", "★": "*", "≤": "<=", "≥": ">=", "−": "-", "–": "-",
    "—": "-", "‘": "'", "’": "'", "“": '"', "”": '"', "ß": "ss", "æ": "ae", "ø": "o", "ł": "l",
    **dict(zip("▁▂▃▄▅▆▇█", ".:-=+*#@", strict=True)),
    **dict.fromkeys("─━═╸╺╴╶", "-"), **dict.fromkeys("│┃║", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯╞╡╪┏┓┗┛┡┩┳╇╈┻", "+"), "┆": "|",
}  # fmt: skip
HANDLER = "muster.nearest"


def plain(text: str) -> str:
    """A text in ASCII.

    >>> plain("Zürich 0.5±0.1"), plain("\\u6771")
    ('Zurich 0.5+-0.1', '?')
    """
    return text if text.isascii() else "".join(map(_plain_letter, text))


def _plain_letter(letter: str) -> str:
    if letter.isascii():
        return letter
    if letter in NEAREST:
        return NEAREST[letter]
    base = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return base or "?"


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return plain(error.object[error.start : error.end]), error.end


def let_through(*streams: TextIO) -> None:
    """Let streams print any text: what they have no letters for becomes what is nearest."""
    codecs.register_error(HANDLER, _replace)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=HANDLER)


def sentence(line: str) -> str:
    """A line of a table as a sentence.

    >>> sentence("data: a subset")
    'Data: a subset.'
    """
    return f"{line[:1].upper()}{line[1:]}."
