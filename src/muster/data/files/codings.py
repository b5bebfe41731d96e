"""Codings of labels and categories: values that mean the same, typos, and ids taken for categories.

Files from several clients rarely agree on how a value is written: `no` and `No`, `0` and `no`, `f`
and `female`. Here such values are found; what is done about them is up to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...federation.spellings import fold, is_misspelled

# Values of one meaning, in lower case, as records have them in English and German.
MEANINGS: tuple[tuple[str, ...], ...] = (
    ("no", "n", "0", "false", "nein", "negative", "negativ", "neg", "absent"),
    ("yes", "y", "1", "true", "ja", "j", "positive", "positiv", "pos", "present"),
    ("female", "f", "w", "woman", "weiblich", "frau"),
    ("male", "m", "man", "männlich", "mann"),
)
MEANING = {value: words[0] for words in MEANINGS for value in words}
RARE = 0.05  # of the rows of the value that was meant, up to which another may be a typo of it
FEW = 5  # values that a message quotes
LONGEST_CODE = 18  # digits of a number that may be one
FEW_CODES = 10  # different numbers up to which they may be codes
MANY = 20  # levels up to which a category is never taken for an id


def says_yes(value: str) -> bool:
    """Return True if a value means yes: of two classes that is the second, which is to be found."""
    return MEANING.get(fold(value)) == "yes"


def is_number(value: str) -> bool:
    """Return True if a text is a number."""
    try:
        float(value)
    except ValueError:
        return False
    return True


def find_spellings(values: Iterable[str]) -> list[tuple[str, ...]]:
    """Return groups of values that differ only in case, spaces or Unicode forms.

    >>> find_spellings(["no", "yes", "No"])
    [('No', 'no')]
    """
    groups: dict[str, list[str]] = {}
    for value in sorted(set(values)):
        groups.setdefault(fold(value), []).append(value)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def find_codings(sets: Sequence[set[str]]) -> dict[str, list[str]]:
    """Return values of one meaning that clients write in different ways, by meaning. Values that
    one client has next to each other are different to it, and next to other numbers 0 and 1 may
    be anything: of 1 and 2, 1 may be no.

    >>> find_codings([{"no", "yes"}, {"0", "1"}])
    {'no': ['0', 'no'], 'yes': ['1', 'yes']}
    >>> find_codings([{"0", "1", "no"}, {"yes", "no"}]), find_codings([{"1", "2"}, {"yes", "no"}])
    ({}, {})
    """
    found: dict[str, list[str]] = {}
    for value in sorted(set().union(*sets)):
        if (meaning := MEANING.get(fold(value))) is not None:
            found.setdefault(meaning, []).append(value)
    for words in found.values():
        if any(len({fold(word) for word in words} & {fold(v) for v in own}) > 1 for own in sets):
            return {}
    numbers = [{v for v in own if is_number(v)} for own in sets]
    if any(own & {"0", "1"} and own - {"0", "1"} for own in numbers):
        return {}
    return {meaning: words for meaning, words in found.items() if len({fold(w) for w in words}) > 1}


def find_mixture(sets: Mapping[str, set[str]]) -> tuple[str, str] | None:
    """Return two clients of which one has numbers only and the other names only."""
    numbers = [who for who, own in sets.items() if own and all(map(is_number, own))]
    names = [who for who, own in sets.items() if own and not any(map(is_number, own))]
    return (numbers[0], names[0]) if numbers and names else None


def find_shift(sets: Mapping[str, set[str]]) -> tuple[str, str] | None:
    """Return two clients whose codes are the same but for their start: 0, 1 and 1, 2. All that have
    numbers have as many consecutive ones, and all together one more.

    >>> find_shift({"a": {"0", "1"}, "b": {"1", "2"}, "c": {"0", "1"}})
    ('a', 'b')
    >>> find_shift({"a": {"0", "1"}, "b": {"0", "2"}})
    """
    own = {who: values for who, values in sets.items() if any(map(is_number, values))}
    every = set[str]().union(*own.values())
    if len(own) < 2 or not all(v.isdecimal() and len(v) <= LONGEST_CODE for v in every):
        return None
    codes = {who: sorted({int(v) for v in values}) for who, values in own.items()}
    first = min(codes, key=lambda who: codes[who])
    size, start = len(codes[first]), codes[first][0]
    runs = {who: list(range(some[0], some[0] + size)) == some for who, some in codes.items()}
    later = next((who for who in codes if codes[who][0] == start + 1), None)
    if size < 2 or later is None or not all(runs.values()):
        return None
    return (first, later) if all(some[0] <= start + 1 for some in codes.values()) else None


def describe_codings(sets: Mapping[str, set[str]], what: str) -> str:
    """Return how clients write one class or level in different ways, in words; "": they do not.

    Args:
        sets: the values that each client has
        what: the noun for a value

    >>> describe_codings({"north": {"no"}, "south": {"No", "yes"}}, "class")
    "'No' (client 'south') and 'no' (client 'north') seem to be one class"
    """
    spelled = find_spellings(set().union(*sets.values()))
    same = next(iter([*spelled, *find_codings([*sets.values()]).values()]), None)
    if same is not None:
        a, b = [(value, next(who for who in sets if value in sets[who])) for value in same[:2]]
        return f"'{a[0]}' (client '{a[1]}') and '{b[0]}' (client '{b[1]}') seem to be one {what}"
    if (mixture := find_mixture(sets)) is not None:
        one, other = mixture
        return (
            f"client '{one}' has {quote(sets[one])}, client '{other}' {quote(sets[other])}: two "
            "codings"
        )
    return ""


def quote(values: set[str]) -> str:
    """Return some of the values, for a message."""
    shown = sorted(values)
    return ", ".join(map(repr, shown[:FEW])) + (", ..." if len(shown) > FEW else "")


def find_typos(counts: Mapping[str, int], edits: int = 1) -> dict[str, str]:
    """Return rare values that are one wrong, missing, further or swapped character (or so many
    `edits`) away from a frequent one, with that.

    >>> find_typos({"female": 60, "femlae": 1, "male": 70, "mal": 2})
    {'femlae': 'female', 'mal': 'male'}
    >>> find_typos({"benign": 60, "begnin": 3}), find_typos({"benign": 60, "begnin": 3}, edits=2)
    ({}, {'begnin': 'benign'})
    """
    found: dict[str, str] = {}
    frequent = sorted(counts, key=lambda value: -counts[value])
    for value, count in counts.items():
        for other in frequent:
            if counts[other] * RARE < count or counts[other] < 5:
                break
            if is_misspelled(fold(value), fold(other), edits):
                found[value] = other
                break
    return found


def is_id(levels: int, rows: int) -> bool:
    """Return True if a column has so many levels that it tells rows apart, and is no category."""
    return levels > MANY and 2 * levels > rows
