"""Readers of table files: the header and columns of a CSV, in any dialect, or of a parquet file."""

from __future__ import annotations

import csv
import re
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path

from ...base.errors import MusterError, first_line
from ...base.lazy import pl
from ...base.untrusted_files import (
    TABLE,
    descriptor_path,
    frame_columns,
    open_file,
    read_frame,
    table_errors,
)
from .dialect import (
    COMMA,
    LOOK_AT,
    PLAIN,
    POINT,
    THOUSANDS,
    Dialect,
    detect_dialect,
    has_separator_line,
    name_codec,
)

CODES = bytes({*range(32), 127} - {*b"\t\n\v\f\r\x1a\x1b"})  # which text hardly ever has
STRAY = 0.01  # share of such codes up to which a file is text with some of them
LONG_LINE = 2**16  # characters in which a line ends
CHECK = "`muster data check` finds it and writes the manifest"


def read_header(path: Path, dialect: Dialect = PLAIN) -> list[str]:
    """Read the column names of a table, which must differ."""
    if path.suffix == ".parquet":
        with file_errors(path):
            return frame_columns(path)
    check_text(path, dialect)
    names = read_names(path, dialect)
    if any("\0" in name for name in names):
        raise MusterError(
            f"{path}: NUL bytes, as text in UTF-16 without its mark has; save it as CSV in UTF-8"
        )
    if not names:
        what = "its first line is empty" if path.stat().st_size else "empty"
        raise MusterError(f"{path}: {what}; give a header line and at least one row")
    if len(names) == 1 and any(mark in names[0] for mark in ",;\t|"):
        mark = detect_dialect(path).separator.replace("\t", "\\t")
        raise MusterError(
            f"{path}: its one column is '{names[0]}'; separate columns by commas, or state "
            f'separator = "{mark}" in the manifest ({CHECK})'
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice == "":
        raise MusterError(
            f"{path}: two columns have no name (commas at the end of the lines?); name them, or "
            "take them out"
        )
    if twice is not None:
        raise MusterError(f"{path}: two columns are called '{twice}'; give them different names")
    return names


def read_names(path: Path, dialect: Dialect) -> list[str]:
    """Read the names in the first line of a CSV, without blanks around them."""
    with file_errors(path, dialect), open_text(path, dialect, "strict") as file:
        return [name.strip() for name in next(csv.reader(file, delimiter=dialect.separator), [])]


def check_text(path: Path, dialect: Dialect = PLAIN) -> None:
    """Refuse a file that is no text, such as an image by another name: in its first part are many
    codes that text hardly ever has. Text in UTF-16 has some, in every second byte."""
    with open_file(path, TABLE, follow=True) as file:
        head = file.read(LOOK_AT)
    wide = max(head[start::2].count(0) for start in (0, 1)) > len(head) / 4
    codes = len(head) - len(head.translate(None, CODES))
    if dialect.encoding != "utf-16" and not wide and codes > STRAY * len(head):
        raise MusterError(f"{path}: not a text file; give a table, saved as CSV in UTF-8")


@contextmanager
def file_errors(path: Path, dialect: Dialect = PLAIN) -> Iterator[None]:
    """Turn any error about the bytes of a file into one line that names it."""
    try:
        yield
    except MusterError:
        raise
    except (
        *(ValueError, OSError, EOFError, KeyError, OverflowError, NotImplementedError, SyntaxError),
        *(zipfile.BadZipFile, zlib.error, csv.Error, tokenize.TokenError),
    ) as error:
        raise read_error(path, error, dialect) from None


def read_error(path: Path, error: Exception, dialect: Dialect = PLAIN) -> MusterError:
    """Return the error for a file that cannot be read, with the first line of the reason."""
    reason = first_line(error)
    if isinstance(error, UnicodeDecodeError) or "utf-8" in reason:
        name = dialect.encoding.upper()
        return MusterError(
            f"{path}: its text is not {name}; save it as CSV in UTF-8, or state encoding = "
            f'"..." in the manifest ({CHECK})'
        )
    return MusterError(f"{path}: not readable as {path.suffix[1:]} ({reason}); write it again")


def read_columns(path: Path, names: Sequence[str], dialect: Dialect = PLAIN) -> pl.DataFrame:
    """Read the named columns; those of a CSV as text, so that errors can quote any wrong value."""
    if path.suffix == ".parquet":
        with file_errors(path):
            return read_frame(path, names, follow=True)
    with file_errors(path, dialect):
        try:
            header = read_names(path, dialect)
            places = sorted(header.index(name) for name in names)
            with open_file(path, TABLE, follow=True) as file, table_errors():
                frame = pl.read_csv(
                    descriptor_path(file, path),
                    glob=False,
                    infer_schema=False,
                    columns=places,
                    separator=dialect.separator,
                    skip_rows=int(has_separator_line(path, dialect.encoding)),
                    encoding="utf8" if dialect.encoding == "utf-8" else dialect.encoding,
                )
            found = [header[place] for place in places]
            if [name.strip() for name in frame.columns] != found:
                raise ValueError("its first line does not end where its header does")
        except ValueError:
            check_fields(path, dialect)
            raise
    frame.columns = found
    frame = frame.select(pl.col(names).str.strip_chars())
    end = len(frame)
    for _ in range(blank_lines(path)):
        if not end or any(value for value in frame.row(end - 1)):
            break
        end -= 1
    return convert_decimals(frame.head(end), path) if dialect.decimal == "," else frame.head(end)


def convert_decimals(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Replace the decimal comma of numbers by a point; refuse numbers that have a point already,
    which may separate thousands."""
    both = frame.select(pl.all().str.contains(POINT).fill_null(False))
    for name in both.columns:
        if both[name].any():
            row = int(both[name].arg_max() or 0)
            raise MusterError(
                f"{path}: column '{name}', row {row + 1}: '{frame[row, name]}' has a decimal "
                'point, and the file decimal = ","; write its numbers in one way'
            )
    return frame.select(pl.all().str.replace(COMMA, "${1}.${2}"))


def recode_values(frame: pl.DataFrame, recode: Mapping[str, Mapping[str, str]]) -> pl.DataFrame:
    """Replace values of columns, by a table for each; "" stands for a missing value."""
    there = [name for name in recode if name in frame.columns]
    return frame.with_columns(
        pl.col(name).cast(pl.String).replace(dict(recode[name])) for name in there
    )


def blank_lines(path: Path) -> int:
    """Count the empty lines at the end of a file, which editors leave there."""
    with open_file(path, TABLE, follow=True) as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - 4096))
        tail = file.read()
    return max(0, tail[len(tail.rstrip()) :].count(b"\n") - 1)


def open_text(path: Path, dialect: Dialect, errors: str) -> TextIOWrapper:
    """Open a file to read it line by line."""
    first = has_separator_line(path, dialect.encoding)
    encoding = name_codec(dialect.encoding)
    text = TextIOWrapper(open_file(path, TABLE, follow=True), encoding, errors, newline="")
    if first:
        text.readline()
    return text


def check_fields(path: Path, dialect: Dialect = PLAIN) -> None:
    """Find the row of a CSV that has more fields than the header, or lines that end as on an old
    Mac, which are taken for one."""
    with open_text(path, dialect, "replace") as file:
        head = file.read(LONG_LINE)
    if "\r" in head and "\n" not in head:
        raise MusterError(f"{path}: its lines end in CR alone; save it with the usual line ends")
    with open_text(path, dialect, "replace") as file:
        rows = csv.reader(file, delimiter=dialect.separator)
        width = len(next(rows))
        for i, row in enumerate(rows, start=1):
            if len(row) > width:
                raise MusterError(
                    f"{path}: row {i} has {len(row)} fields, the header {width}; write it again, "
                    "with values that hold the separator in quotes"
                )


def suggest_decimal(value: object) -> str:
    """Return what to do about a text such as '1,5' or '1,234' where a number belongs; "": it is
    none of them."""
    if not isinstance(value, str):
        return ""
    comma = re.match(COMMA, value) is not None
    if re.match(THOUSANDS, value):
        less = f"write {value.replace(',', '')} if its comma is for thousands"
        return f'{less}, or state decimal = "," in the manifest' if comma else less
    return 'state decimal = "," in the manifest' if comma else ""
