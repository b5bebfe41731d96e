"""Names that may be one name: values of a column that clients spell differently.

A misspelling is either rare, next to the right name, or it is one site's habit: that site has it in
every row and has the right name in none. Whether names are near says this module; what follows from
it is up to the caller.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

SHORTEST = 4  # characters of a name from which one wrong character is a mistake
LONG = 6  # characters from which two are
BEGINNING = 3  # characters of a name that another one may begin with
MOST = 1000  # names up to which each is compared with each
MANY = 20  # names up to which a third client need not have one of two that may be one

# Beginnings that turn a name into its opposite: whoever writes one means it.
OPPOSITES = (("hyper", "hypo"), ("macro", "micro"), ("inter", "intra"), ("in", "de"), ("in", "ex"))
NEGATIONS = ("a", "ab", "un", "in", "im", "non", "non-")


def fold(value: str) -> str:
    """Return a value without the differences of case, spaces and Unicode forms.

    >>> fold("  Nicht  Bekannt"), fold("Mu\\u0308ller")
    ('nicht bekannt', 'müller')
    """
    return " ".join(unicodedata.normalize("NFKC", value).casefold().split())


def is_within(a: str, b: str, edits: int) -> bool:
    """Return True if at most so many edits make one text the other: another character, one more,
    one less, or two swapped.

    >>> is_within("abcd", "abdc", 1), is_within("benign", "begnin", 1)
    (True, False)
    """
    if a == b:
        return True
    if not edits or abs(len(a) - len(b)) > edits:
        return False
    pairs = enumerate(zip(a, b, strict=False))
    head = next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))
    a, b = a[head:], b[head:]
    left = edits - 1
    return (
        is_within(a[1:], b[1:], left)
        or is_within(a[1:], b, left)
        or is_within(a, b[1:], left)
        or (a[:2] == b[1::-1] and is_within(a[2:], b[2:], left))
    )


def are_opposites(a: str, b: str) -> bool:
    """Return True if names differ by a beginning that makes one the opposite of the other.

    >>> are_opposites("hypotension", "hypertension"), are_opposites("typical", "atypical")
    (True, True)
    """
    pairs = [*OPPOSITES, *(("", negation) for negation in NEGATIONS)]
    return any(
        one.startswith(x) and other.startswith(y) and one[len(x) :] == other[len(y) :]
        for one, other in ((a, b), (b, a))
        for x, y in pairs
    )


def is_misspelled(value: str, meant: str, edits: int = 1) -> bool:
    """Return True if a folded name is up to so many edits away from another one, and no opposite
    of it; two need long names of one first letter, as few people mistake that. Where only digits
    differ (`grade 2`, `grade 3`) or a short word (`type a`, `type b`), it is another name."""
    a, b = strip_common_words(value, meant)
    few = max(len(a), len(b)) >= SHORTEST and is_within(a, b, 1)
    long = edits > 1 and min(len(a), len(b)) >= LONG and a[0] == b[0]
    if not few and not (long and is_within(a, b, edits)):
        return False
    return drop_digits(a) != drop_digits(b) and not are_opposites(a, b)


def are_near(one: str, other: str) -> bool:
    """Return True if two names may be one: up to two edits apart, or one begins with the other.

    >>> [are_near("benign", name) for name in ("bening", "begnin", "Benign tumour", "begging")]
    [True, True, True, False]
    >>> are_near("stage 1", "stage 10"), are_near("type i", "type ii"), are_near("male", "female")
    (False, False, False)
    """
    a, b = sorted((fold(one), fold(other)), key=len)
    if a == b or is_misspelled(a, b, 2):
        return True
    if not b.startswith(a) or drop_digits(a) == drop_digits(b):
        return False
    start, more = strip_common_words(a, b)
    return len(more) >= SHORTEST and (not start or len(start) >= BEGINNING)


def strip_common_words(a: str, b: str) -> tuple[str, str]:
    """Return two texts without the words at their beginning and end that are the same."""
    one, other = (re.split(r"[\s_/-]+", text) for text in (a, b))
    while one and other and one[0] == other[0]:
        one, other = one[1:], other[1:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    return " ".join(one), " ".join(other)


def drop_digits(text: str) -> str:
    """Return a text without its digits."""
    return "".join(c for c in text if not c.isdigit())


def find_own_spellings(
    sets: Mapping[str, set[str]], counts: Mapping[str, int] | None = None
) -> dict[str, str]:
    """Return names that may be some clients' own spelling of the others', with that: the two are
    near, no client has both, and each has one of them. Among few names, and of more than two
    clients, a client may have neither.

    Args:
        sets: the names that each client has
        counts: number of rows of each name: of two that as many clients have, the rarer is the odd

    >>> find_own_spellings({"a": {"benign", "bad"}, "b": {"benign"}, "c": {"bening", "bad"}})
    {'bening': 'benign'}
    >>> find_own_spellings({"a": {"benign"}, "b": {"benign", "bening"}})
    {}
    """
    holders: dict[str, set[str]] = {}
    for client, names in sets.items():
        for name in names:
            holders.setdefault(name, set()).add(client)
    if len(holders) > MOST:
        return {}
    everyone = {client for client, names in sets.items() if names}
    rows = counts or {}
    frequent = sorted(holders, key=lambda name: (-len(holders[name]), -rows.get(name, 0), name))
    found: dict[str, str] = {}
    for i, value in enumerate(frequent):
        for meant in frequent[:i]:
            apart = not holders[value] & holders[meant]
            all_have = holders[value] | holders[meant] == everyone
            enough = len(frequent) <= MANY or (all_have and len(everyone) > 2)
            if meant not in found and apart and enough and are_near(value, meant):
                found[value] = meant
                break
    return found
