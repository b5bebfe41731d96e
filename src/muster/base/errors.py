"""Errors and warnings for users: one line that states what was wrong and what to do.

Every check in muster raises `MusterError` with one sentence that names the field, what was given
and what is allowed. The command line prints that sentence and exits with code 2.
"""

from __future__ import annotations

import difflib
import re
import shlex
import warnings
from collections.abc import Iterable
from typing import Any

INTERRUPTED = 130  # the exit code shells use for Ctrl-C
TERMINATED = 143  # exit code after SIGTERM
MOST_NAMES = 40  # names that an error lists


class MusterError(ValueError):
    """Bad input, explained in one line."""


class MusterWarning(UserWarning):
    """Input that is allowed but probably not what was meant."""


usual_line = warnings.formatwarning

# Characters that a terminal acts on or that hide text: control codes (also the second set, U+0080
# to U+009F), Unicode's line ends, marks of writing direction, and lone surrogates.
UNSEEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Return a text with U+FFFD for each character that a terminal acts on.

    >>> printable("\\x1b[2Jred\\r\\u202e")
    '�[2Jred��'
    """
    return UNSEEN.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Return a printable text in one line.

    >>> one_line("no such\\nfile")
    'no such file'
    """
    return printable(" ".join(text.splitlines()))


def warning_line(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> str:
    """Return a warning as the command line and worker processes print it: muster's own without the
    line of code."""
    if issubclass(category, MusterWarning):
        return f"muster: {one_line(str(message))}\n"
    return usual_line(message, category, *where, **more)


def first_line(error: BaseException) -> str:
    """Return the reason of another library's error, in one line.

    >>> first_line(ValueError("no header\\nat byte 0")), first_line(EOFError())
    ('no header', 'EOFError')
    """
    return str(error).strip().partition("\n")[0] or type(error).__name__


def command_line(*words: object) -> str:
    """Return a command as it is typed, with quotes where a shell would split or expand a word.

    >>> command_line("muster", "watch", "runs/demo"), command_line("muster", "watch", "my runs")
    ('muster watch runs/demo', "muster watch 'my runs'")
    """
    return shlex.join(map(str, words))


def plural(n: int, what: str) -> str:
    """Return a number with its noun.

    >>> plural(1, "seed"), plural(5, "seed"), plural(2, "class"), plural(3, "reply")
    ('1 seed', '5 seeds', '2 classes', '3 replies')
    """
    if n == 1:
        return f"{n} {what}"
    if what.endswith("y"):
        return f"{n} {what[:-1]}ies"
    return f"{n} {what}{'es' if what.endswith('s') else 's'}"


def format_row_points(rows: int) -> str:
    """Return what one of so many test rows is in points of accuracy: whole ones from 2 on, halves
    as they are.

    >>> [format_row_points(n) for n in (8, 12, 40, 80, 300, 13333)]
    ['12.5', '8', '2.5', '1.25', '0.3', '0.008']
    """
    points = 100 / rows
    digits = 0 if points >= 2 else 1 if points >= 0.1 else 3
    halfway = points * 10**digits % 1 == 0.5
    return f"{points:.{digits + halfway}f}"


def list_names(known: Iterable[str]) -> str:
    """Return the list of known names for the end of an error, each once.

    >>> list_names(["warmup", "epsilon", "warmup"]), list_names([])
    ('known: epsilon, warmup', 'there are none')
    """
    names = sorted(set(known))
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"known: {', '.join(names[:MOST_NAMES])}{more}" if names else "there are none"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: the nearest known one, then all.

    >>> nearest("epsilom", ["epsilon", "warmup"])
    "did you mean 'epsilon'? known: epsilon, warmup"
    """
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    listing = list_names(names)
    return f"did you mean '{close[0]}'? {listing}" if close else listing


def unknown_name(kind: str, word: str, known: Iterable[str]) -> MusterError:
    """Return the error for a name that is not in a registry or a table."""
    return MusterError(f"unknown {kind} '{word}'; {nearest(word, known)}")
