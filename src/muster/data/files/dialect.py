"""Dialects of CSV files: separator, decimal mark and encoding, as a manifest states them or as they
are detected in the first part of a file."""

from __future__ import annotations

import codecs
import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...base.untrusted_files import TABLE, open_file

Separator = Literal[",", ";", "\t", "|"]
Decimal = Literal[".", ","]
Encoding = Literal["utf-8", "latin-1", "cp1252", "utf-16"]

SEPARATORS: tuple[Separator, ...] = (",", ";", "\t", "|")
LOOK_AT = 2**18  # bytes at the beginning of a file by which its dialect is detected
SOME_ROWS = 200  # rows of them that are parsed
CONTROL = bytes(range(0x80, 0xA0))  # control codes in latin-1, quotes and dashes in cp1252
COMMA = r"^([+-]?\d*),(\d+(?:[eE][+-]?\d+)?)$"  # a number with a decimal comma
POINT = r"^[+-]?\d*\.\d+(?:[eE][+-]?\d+)?$"
THOUSANDS = r"^[+-]?\d{1,3}(,\d{3})+(\.\d+)?$"  # "1,234": more likely than decimals
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # how a file in UTF-16 begins
SEPARATOR_LINE = re.compile(r'^"?sep=[,;\t|]"?\r?\n')  # Excel's, before the header


@dataclass(frozen=True)
class Dialect:
    """The way a CSV file is written."""

    separator: Separator = ","
    decimal: Decimal = "."
    encoding: Encoding = "utf-8"

    def __str__(self) -> str:
        shown = {"\t": "tab"}.get(self.separator, f"'{self.separator}'")
        return f"separator {shown}, decimal '{self.decimal}', encoding {self.encoding}"


PLAIN = Dialect()


def detect_dialect(path: Path) -> Dialect:
    """Detect the dialect of a CSV file from its first rows; its encoding from all of its bytes, as
    an umlaut may come late."""
    if path.suffix != ".csv":
        return PLAIN
    encoding = detect_encoding(path)
    with open_file(path, TABLE, follow=True) as file:
        head = file.read(LOOK_AT)
    text = SEPARATOR_LINE.sub("", head.decode(name_codec(encoding), "replace"))
    if len(head) == LOOK_AT:
        text = text.rpartition("\n")[0]  # the last line may be cut
    separator = max(SEPARATORS, key=lambda mark: rate_separator(text, mark))
    values = [value.strip() for row in parse_rows(text, separator)[1:] for value in row]
    commas, points = (sum(bool(re.match(p, v)) for v in values) for p in (COMMA, POINT))
    if separator == "," and all(re.match(THOUSANDS, v) for v in values if "," in v):
        commas = 0
    return Dialect(separator, "," if commas > points else ".", encoding)


def detect_encoding(path: Path) -> Encoding:
    """Return UTF-8 if a file is, UTF-16 if it begins so, and else the Western European encoding
    that fits its bytes."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    valid, control = True, False
    with open_file(path, TABLE, follow=True) as file:
        if file.read(2) in UTF_16:
            return "utf-16"
        file.seek(0)
        while piece := file.read(LOOK_AT):
            control = control or len(piece.translate(None, CONTROL)) < len(piece)
            valid = valid and decodes(decoder, piece)
    if valid and decodes(decoder, b"", final=True):
        return "utf-8"
    return "cp1252" if control else "latin-1"


def name_codec(encoding: Encoding) -> str:
    """Return the name by which text is decoded; the mark at the beginning of a file is dropped."""
    return "utf-8-sig" if encoding == "utf-8" else encoding


def has_separator_line(path: Path, encoding: Encoding) -> bool:
    """Return True if a CSV file begins with a line that names the separator."""
    with open_file(path, TABLE, follow=True) as file:
        head = file.read(32)
    return SEPARATOR_LINE.match(head.decode(name_codec(encoding), "replace")) is not None


def decodes(decoder: codecs.IncrementalDecoder, piece: bytes, final: bool = False) -> bool:
    """Return True if the next piece of a text can be decoded."""
    try:
        decoder.decode(piece, final)
    except UnicodeDecodeError:
        return False
    return True


def parse_rows(text: str, separator: Separator) -> list[list[str]]:
    """Return the first rows of a text, without empty ones."""
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
            rows += [row] if row else []
            if len(rows) > SOME_ROWS:
                break
    except csv.Error:
        return rows
    return rows


def rate_separator(text: str, separator: Separator) -> tuple[float, int]:
    """Return the share of rows as wide as the header, and its width; nothing for one column."""
    rows = parse_rows(text, separator)
    width = len(rows[0]) if rows else 0
    if width < 2:
        return 0.0, 0
    return sum(len(row) == width for row in rows) / len(rows), width
