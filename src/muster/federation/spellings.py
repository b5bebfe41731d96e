"""Names that may be one name: values of a column that clients spell differently.

A misspelling is either rare, next to the right name, or it is one site's habit: that site has it in
every row and has the right name in none. But sites also have different things, of which some have
near names (neurology, nephrology). Habits leave out a letter, double, swap or move one, or take one
for another that sounds like it; another word differs at its beginning or end, or in a part of two
letters. Whether names are near says this module; what follows from it is up to the caller.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

SHORTEST = 4  # characters of a name from which one wrong character is a mistake
LONG = 6  # characters from which two are
BEGINNING = 3  # characters of a name that another one may begin with
LONGER = 9  # characters from which a habit may have two mistakes apart
MOST = 1000  # names up to which each is compared with each
MANY = 20  # names up to which a third client need not have one of two that may be one

# Beginnings that turn a name into its opposite: whoever writes one means it.
OPPOSITES = (("hyper", "hypo"), ("macro", "micro"), ("inter", "intra"), ("in", "de"), ("in", "ex"))
NEGATIONS = ("a", "ab", "un", "in", "im", "non", "non-")

# Letters that are mistaken for each other; the first are vowels.
SIMILAR = ("aeiouyäöü", "ckgq", "csz", "fvw", "bp", "dt", "mn")
PLAIN = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "æ": "ae", "œ": "oe", "ø": "oe"})
BETWEEN = re.compile(r"(?<=[^\W_])[\s_/-]+(?=[^\W_])")  # what stands between words


def fold(value: str) -> str:
    """Return a value without the differences of case, spaces and Unicode forms.

    >>> fold("  Nicht  Bekannt"), fold("Mu\\u0308ller")
    ('nicht bekannt', 'müller')
    """
    return " ".join(unicodedata.normalize("NFKC", value).casefold().split())


def count_common(a: str, b: str) -> int:
    """Return how many characters two texts begin with that are the same."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


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
    head = count_common(a, b)
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


def transcribe(value: str) -> str:
    """Return a folded value in plain letters, without what stands between words.

    >>> transcribe("Sulphate"), transcribe("Müller-Lüdenscheidt"), transcribe("A-")
    ('sulfate', 'muellerluedenscheidt', 'a-')
    """
    joined = BETWEEN.sub("", fold(value)).translate(PLAIN).replace("ph", "f")
    return "".join(c for c in unicodedata.normalize("NFKD", joined) if not unicodedata.combining(c))


def find_difference(a: str, b: str) -> tuple[str, str, str, str]:
    """Return the common beginning of two texts, what differs in each, and the common end.

    >>> find_difference("neurology", "nephrology")
    ('ne', 'u', 'ph', 'rology')
    """
    head = count_common(a, b)
    one, other = a[head:], b[head:]
    tail = count_common(one[::-1], other[::-1])
    return a[:head], one[: len(one) - tail], other[: len(other) - tail], one[len(one) - tail :]


def is_habit(one: str, other: str) -> bool:
    """Return True if two names are near, and rather two spellings of one name than two names.

    >>> [is_habit("nephrology", name) for name in ("nephrolgy", "nefrology", "neurology")]
    [True, True, False]
    >>> is_habit("Müller", "Mueller"), is_habit("chest pain", "chest_pain"), is_habit("-1", "1")
    (True, True, False)
    """
    plain = transcribe(one)
    if len(plain) >= SHORTEST and plain == transcribe(other):
        return re.findall(r"\d+", one) == re.findall(r"\d+", other)
    a, b = sorted((fold(one), fold(other)), key=len)
    if not are_near(a, b) or b.startswith(a):
        return are_near(a, b)
    head, x, y, tail = find_difference(*strip_common_words(a, b))
    long = len(a) >= LONGER
    if len(x) == len(y) and sorted(x) != sorted(y):
        pairs = [{p, q} for p, q in zip(x, y, strict=True) if p != q]
        sounds = [{*letters} for letters in (SIMILAR if head else SIMILAR[1:])]
        similar = all(any(pair <= letters for letters in sounds) for pair in pairs)
        return bool(tail) and similar and (len(pairs) == 1 or long)
    return bool(head) and (len(x + y) == 1 or sorted(x) == sorted(y) or (long and len(x) > 1))


def find_own_spellings(
    sets: Mapping[str, set[str]], counts: Mapping[str, int] | None = None
) -> dict[str, str]:
    """Return names that may be some clients' own spelling of the others' (`is_habit`), with that:
    no client has both, and each has one of them. Among few names, and of more than two clients, a
    client may have neither.

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
            if meant not in found and apart and enough and is_habit(value, meant):
                found[value] = meant
                break
    return found
