"""One kind of error for everything a user can get wrong: a single line that says what to do.

Every check in muster raises `MusterError` with one sentence that names the field, what was given
and what is allowed. The command line prints that sentence and exits with code 2.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterable
from typing import Any

INTERRUPTED = 130  # the exit code shells use for Ctrl-C
LISTED = 40  # names an error lists


class MusterError(ValueError):
    """Bad input, explained in one line."""


class MusterWarning(UserWarning):
    """Input that is allowed but probably not what was meant."""


usual_line = warnings.formatwarning

# What a terminal acts on, or shows other text by than there is: control codes (also the second
# set, U+0080 to U+009F), ends of lines of Unicode's own, marks that turn the direction of writing,
# and halves of letters.
UNSEEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """A text in which nothing is left that a terminal acts on; each such letter becomes U+FFFD.

    >>> printable("\\x1b[2Jred\\r\\u202e")
    '�[2Jred��'
    """
    return UNSEEN.sub("\ufffd", text)


def one_line(text: str) -> str:
    """The same, in one line.

    >>> one_line("no such\\nfile")
    'no such file'
    """
    return printable(" ".join(text.splitlines()))


def warning_line(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> str:
    """A warning as the command line and worker processes print it: one of ours without the line
    of code it comes from."""
    if issubclass(category, MusterWarning):
        return f"muster: {one_line(str(message))}\n"
    return usual_line(message, category, *where, **more)


def first_line(error: BaseException) -> str:
    """The reason of another library's error, in one line.

    >>> first_line(ValueError("no header\\nat byte 0")), first_line(EOFError())
    ('no header', 'EOFError')
    """
    return str(error).strip().partition("\n")[0] or type(error).__name__


def plural(n: int, what: str) -> str:
    """A number of things.

    >>> plural(1, "seed"), plural(5, "seed"), plural(2, "class"), plural(3, "reply")
    ('1 seed', '5 seeds', '2 classes', '3 replies')
    """
    if n == 1:
        return f"{n} {what}"
    if what.endswith("y"):
        return f"{n} {what[:-1]}ies"
    return f"{n} {what}{'es' if what.endswith('s') else 's'}"


def format_known(known: Iterable[str]) -> str:
    """The names there are, as the end of an error.

    >>> listed(["warmup", "epsilon"]), listed([])
    ('known: epsilon, warmup', 'there are none')
    """
    names = sorted(known)
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"known: {', '.join(names[:LISTED])}{more}" if names else "there are none"


def nearest(word: str, known: Iterable[str]) -> str:
    """The tail of an error about an unknown name: the nearest known one, then all of them.

    >>> nearest("epsilom", ["epsilon", "warmup"])
    "did you mean 'epsilon'? known: epsilon, warmup"
    """
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    listing = format_known(names)
    return f"did you mean '{close[0]}'? {listing}" if close else listing


def unknown_name(kind: str, word: str, known: Iterable[str]) -> MusterError:
    """The error for a name that is not in a registry or a table."""
    return MusterError(f"unknown {kind} '{word}'; {nearest(word, known)}")
