"""Check of one column over all clients: what is wrong with its values, given its kind.

Values are text, null where they are missing. What a model cannot learn from is left out, what
clients write in different ways is recoded where the meaning is beyond doubt.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ...base.arrays import Float64
from ...base.errors import plural
from ...base.lazy import pl
from ...federation.inputs import Range
from ...federation.spellings import find_own_spellings, fold
from .codings import (
    FEW_CODES,
    find_codings,
    find_mixture,
    find_shift,
    find_spellings,
    find_typos,
    is_number,
    quote,
)
from .column_kinds import (
    FEWEST,
    MARKED,
    MOSTLY,
    Kind,
    as_numbers,
    find_kind,
    is_same_within,
    values_by_client,
)

MISSING_WORDS = {"na", "n/a", "#n/a", "nan", "null", "unknown", "unbekannt", "k.a."}
MISSING_WORDS |= {"-", "--", ".", "missing", "not available", "not measured", "not done", "unk"}
MISSING_WORDS |= {"n.a.", "k. a.", "keine angabe", "nicht bekannt", "nicht erhoben", "fehlt"}
MISSING_WORDS |= {"#nv", "#value!", "#wert!", "#div/0!", "#ref!", "#bezug!", "#name?", "#num!"}
SENTINELS = [-9.0, -99.0, -999.0, -9999.0, -1.0, 99.0, 999.0, 9999.0]  # codes of missing numbers
THREE = r"^[1-9]\d{0,2}\.\d{3}$"  # 1.234: a number, or one thousand
LEVELS = 1000  # levels up to which spellings are compared
FAR_RAW, FAR_LOG = 8.0, 5.0  # robust deviations from the median of a value that may be a mistake
UNITS = {10.0: "", 100.0: "", 1000.0: "", 2.54: "inch and cm", 2.205: "lb and kg"}
UNITS |= {18.02: "glucose in mg/dl and mmol/l", 38.67: "cholesterol in mg/dl and mmol/l"}
UNITS |= {88.4: "creatinine in mg/dl and umol/l"}


@dataclass(frozen=True)
class DataProblem:
    """One problem of a folder of data.

    Attributes:
        client: its name; "" if it is not one client's
        column: "" if it is not one column's
        kind: one word for it
        text: what is wrong
        suggestion: what to do, or what the manifest does
    """

    client: str
    column: str
    kind: str
    text: str
    suggestion: str = ""

    def __str__(self) -> str:
        where = f"column '{self.column}'" if self.column else ""
        head = ", ".join(part for part in (self.client, where) if part)
        return ": ".join([*([head] if head else []), self.text]) + (
            f"; {self.suggestion}" if self.suggestion else ""
        )


@dataclass(frozen=True)
class ColumnCheck:
    """A column after its check.

    Attributes:
        recode: values to replace, "" for missing ones
        doubts: values that may be another spelling, with that, for the owner to decide
        counts: number of rows of each level, after recoding; of categories only
        lacks: number of missing values, after recoding, by client
        usual: the range of all but values that may be mistakes, rounded outwards; None: none may be
    """

    name: str
    kind: Kind
    problems: list[DataProblem] = field(default_factory=list)
    recode: dict[str, str] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    lacks: dict[str, int] = field(default_factory=dict)
    usual: Range | None = None

    @property
    def used(self) -> bool:
        """True if a model can learn from it."""
        return self.kind in ("number", "category")


def check_column(
    name: str,
    values: Mapping[str, pl.Series],
    category: bool | None = None,
    known: Collection[str] = (),
    limits: Range | None = None,
) -> ColumnCheck:
    """Check a column, given its values at each client.

    Args:
        category: True if it is known to be one of categories, False if of numbers; None: find out
        known: values that are meant as they are
        limits: the range that was agreed on
    """
    problems: list[DataProblem] = []
    recode = find_missing_words(name, values, known, problems)
    values = {client: apply(column, recode) for client, column in values.items()}
    every = pl.concat(list(values.values())).drop_nulls()
    doubts: dict[str, str] = {}
    usual: Range | None = None
    kind: Kind = "number" if category is False else "category"
    if category is None:
        kind = find_kind(name, every, values)
    if kind == "number":
        usual = check_numbers(name, values, limits, problems, recode)
    elif kind == "marked":
        found = set(every.filter(every.str.contains(MARKED)).unique())
        text = f"numbers with marks for thousands or units ({quote(found)})"
        advice = "left out of features: write them as plain numbers"
        problems.append(DataProblem("", name, "type", text, advice))
    elif kind == "mixed":
        found = set(every.filter(pl.Series(~np.isfinite(as_numbers(every)))).unique())
        text = f"numbers next to what is none ({quote(found)})"
        advice = "left out of features: write numbers alone, and nothing where one is missing"
        problems.append(DataProblem("", name, "type", text, advice))
    elif kind == "category":
        kind = check_levels(name, values, known, problems, recode)
        doubts = check_spellings(
            name, {c: apply(column, recode) for c, column in values.items()}, known, problems
        )
    elif kind in LEFT_OUT:
        problems.append(DataProblem("", name, kind, LEFT_OUT[kind], "left out of features"))
    values = {client: apply(column, recode) for client, column in values.items()}
    counts = count(pl.concat(list(values.values()))) if kind == "category" else {}
    lacks = {client: column.null_count() for client, column in values.items()}
    return ColumnCheck(name, kind, problems, recode, doubts, counts, lacks, usual)


LEFT_OUT = {
    "date": "dates, which are no numbers to learn from",
    "id": "identifies rows, as an id does: a model would memorise them",
    "text": "free text",
    "constant": "one value everywhere",
    "client": "one value at each client, and another at each: it says whose row it is",
    "empty": "no values",
}


def apply(column: pl.Series, recode: Mapping[str, str]) -> pl.Series:
    """Return a column with values replaced; null for missing ones."""
    column = column.replace(dict(recode))
    return column.set(column == "", None)


def count(column: pl.Series) -> dict[str, int]:
    """Return the number of rows of each value, the most frequent first."""
    counted = (
        column.drop_nulls().alias("v").value_counts().sort("count", "v", descending=[True, False])
    )
    return dict(counted.iter_rows())


def find_missing_words(
    name: str, values: Mapping[str, pl.Series], known: Collection[str], problems: list[DataProblem]
) -> dict[str, str]:
    """Return values that seem to say that there is none, such as `k.A.`."""
    recode: dict[str, str] = {}
    for client, column in values.items():
        words = count(column.filter(pl.Series(~np.isfinite(as_numbers(column)))))
        found = {v: n for v, n in words.items() if v not in known and fold(v) in MISSING_WORDS}
        if found:
            recode |= dict.fromkeys(found, "")
            text = f"{quote(set(found))} in {plural(sum(found.values()), 'row')}"
            problems.append(DataProblem(client, name, "missing", text, "read as missing"))
    return recode


def check_numbers(
    name: str,
    values: Mapping[str, pl.Series],
    limits: Range | None,
    problems: list[DataProblem],
    recode: dict[str, str],
) -> Range | None:
    """Find what is no number, numbers that stand for missing values, mistakes, and other units.
    Return the range of the others where there are mistakes and none was agreed on."""
    numbers: dict[str, Float64] = {}
    for client, column in values.items():
        x = as_numbers(column)
        wrong = column.filter(pl.Series(~np.isfinite(x)) & column.is_not_null())
        if len(wrong):
            found = set(wrong.to_list())
            text = f"{plural(len(wrong), 'value')} no numbers ({quote(found)})"
            problems.append(
                DataProblem(client, name, "type", text, "read as missing: write them as numbers")
            )
            recode.update(dict.fromkeys(found, ""))
        numbers[client] = x
    problems += check_shift(name, values)
    if limits is None and not is_same_within(values_by_client(values)):
        units = check_units(name, {c: x[np.isfinite(x)] for c, x in numbers.items()})
        problems += [suggest_thousands(problem, values[problem.client]) for problem in units]
        numbers = {c: x for c, x in numbers.items() if c not in {p.client for p in units}}
    pooled = np.concatenate(list(numbers.values()))
    pooled = pooled[np.isfinite(pooled)]
    far = far_values(pooled)
    if limits is not None:
        far = np.unique(pooled[(pooled < limits[0]) | (pooled > limits[1])])
    usual: Range | None = None
    for client, x in numbers.items():
        rows = np.flatnonzero(np.isin(x, far))
        coded = [i for i in rows if x[i] in SENTINELS]
        if coded:
            found = {str(values[client][int(i)]) for i in coded}
            text = f"{quote(found)} in {plural(len(coded), 'row')}, far from all others"
            problems.append(DataProblem(client, name, "missing", text, "read as missing"))
            recode.update(dict.fromkeys(found, ""))
        rest = [i for i in rows if x[i] not in SENTINELS]
        if rest:
            text = f"row {rest[0] + 1}: {x[rest[0]]:g} is far from all others"
            text += f" (as are {len(rest) - 1} more)" if len(rest) > 1 else ""
            advice = "fix it, or agree on a range with [range] in the manifest"
            problems.append(DataProblem(client, name, "range", text, advice))
            usual = round_outwards(pooled[~np.isin(pooled, far)]) if limits is None else None
    return usual


def round_outwards(x: Float64) -> Range:
    """Return a range of round numbers that holds all of these: the lowest and the highest of them
    would be somebody's own.

    >>> round_outwards(np.array([21.3, 88.1])), round_outwards(np.array([0.12, 0.57]))
    ((20.0, 90.0), (0.1, 0.6))
    """
    low, high = float(x.min()), float(x.max())
    if low == high:
        return (low - 1, high + 1)
    digits = -math.floor(math.log10(high - low))
    step = 10.0**-digits
    below, above = math.floor(low / step) * step, math.ceil(high / step) * step
    return (round(below, digits), round(above, digits))


def check_shift(name: str, values: Mapping[str, pl.Series]) -> list[DataProblem]:
    """Return a problem if clients seem to number the same codes from different starts."""
    own = values_by_client(values)
    if len(set().union(*own.values())) > FEW_CODES or (found := find_shift(own)) is None:
        return []
    one, other = found
    text = f"{one} has {quote(own[one])}, {other} {quote(own[other])}: the same codes, from another"
    advice = f"write them in one way: [recode.{name}] would replace a value in all files"
    return [DataProblem("", name, "coding", f"{text} start?", advice)]


def far_values(x: Float64) -> Float64:
    """Return values far from the median, by robust deviations (1.48 MAD): as they are and, where
    all are above 0, by their logarithm too, as many measurements are skewed. Codes such as -9 are
    far from numbers that are otherwise not negative."""
    if len(x) < 2 * FEWEST:
        return x[:0]

    def deviations(v: Float64) -> Float64:
        off = np.abs(v - np.median(v))
        scale = 1.4826 * float(np.median(off))
        return off / scale if scale > 0 else np.zeros_like(off)

    code = np.isin(x, SENTINELS) & (x < 0)
    if code.any() and (x[~code] >= 0).all():
        return np.union1d(x[code], far_values(x[~code]))
    far = deviations(x) > FAR_RAW
    positive = x > 0
    if positive[~far].all():
        far &= ~positive | (deviations(np.log(np.where(positive, x, 1.0))) > FAR_LOG)
    return np.unique(x[far])


def check_units(name: str, numbers: Mapping[str, Float64]) -> list[DataProblem]:
    """Return a problem for each client whose values are apart from all others': the middle 80 % of
    its values and of theirs do not meet, and medians differ twofold. Of numbers around 0 that says
    nothing."""
    enough = {client: x for client, x in numbers.items() if len(x) >= FEWEST}
    problems: list[DataProblem] = []
    for client, x in enough.items():
        others = [y for other, y in enough.items() if other != client]
        if not others or (len(enough) == 2 and problems):
            continue
        rest = np.concatenate(others)
        (low, mid, high), (below, middle, above) = (
            np.quantile(v, [0.1, 0.5, 0.9]) for v in (x, rest)
        )
        ratio = max(mid / middle, middle / mid) if mid * middle > 0 else np.inf
        if not (low > above or high < below) or ratio < 2 or below < 0 < above:
            continue
        near = min(UNITS, key=lambda unit: abs(ratio / unit - 1))
        unit = f", as {UNITS[near]} do" if UNITS[near] and abs(ratio / near - 1) < 0.1 else ""
        cold, warm = sorted((mid, middle))
        if abs((32 + 1.8 * cold) / warm - 1) < 0.02:
            unit = ", as degrees C and F do"
        times = f": {ratio:.3g} times{unit}" if np.isfinite(ratio) else ""
        text = f"median {mid:.4g}, that of the others {middle:.4g}{times}"
        advice = "another unit, or a code for missing values? convert it"
        problems.append(DataProblem(client, name, "unit", text, advice))
    return problems


def suggest_thousands(problem: DataProblem, column: pl.Series) -> DataProblem:
    """Return the problem of another unit, with what to do where points may mark thousands."""
    if column.drop_nulls().str.contains(THREE).mean() < MOSTLY:  # type: ignore[operator]
        return problem
    return replace(problem, suggestion="points that mark thousands? write numbers without")


def check_levels(
    name: str,
    values: Mapping[str, pl.Series],
    known: Collection[str],
    problems: list[DataProblem],
    recode: dict[str, str],
) -> Kind:
    """Find values that are written in different ways, and typos; return "unclear" if what is meant
    cannot be decided here."""
    own = values_by_client(values)
    counts = count(pl.concat(list(values.values())))
    sizes = {client: len(column) for client, column in values.items()}
    changes: dict[str, str] = {}
    if len(counts) <= LEVELS:
        codings = find_codings(list(own.values())).values()
        for same in [*find_spellings(counts), *codings]:
            best = choose_word(same, own, counts, sizes)
            changes |= {word: best for word in same if word not in (best, *known)}
        merged: dict[str, int] = {}
        for word, n in counts.items():
            meant = changes.get(word, word)
            merged[meant] = merged.get(meant, 0) + n
        typos = {a: b for a, b in find_typos(merged).items() if a not in known}
        for client, words in own.items():
            problems += describe_changes(client, name, words, changes)
            for word in sorted(words & set(typos)):
                text = f"'{word}' ({plural(counts[word], 'row')}) may be a typo of '{typos[word]}'"
                problems.append(DataProblem(client, name, "typo", text, f"read as '{typos[word]}'"))
        changes |= typos
    recode.update(changes)
    mixture = find_mixture({c: {recode.get(w, w) for w in words} for c, words in own.items()})
    if mixture is None or set(counts) <= set(known):
        return "category"
    one, other = mixture
    text = f"{one} has {quote(own[one])}, {other} {quote(own[other])}: two codings"
    advice = f"write them in one way, or say what is meant with [recode.{name}] in the manifest"
    problems.append(DataProblem("", name, "coding", text, advice))
    return "unclear"


def check_spellings(
    name: str,
    values: Mapping[str, pl.Series],
    known: Collection[str],
    problems: list[DataProblem],
) -> dict[str, str]:
    """Find values that are one in all likelihood, but not beyond doubt: rare ones that are two
    characters away from a frequent one, and those that some clients have in place of another one
    (`find_own_spellings`). Return them with what is meant; they stay as they are."""
    own = values_by_client(values)
    counts = count(pl.concat(list(values.values())))
    if len(counts) > LEVELS:
        return {}
    typos = {a: b for a, b in find_typos(counts, edits=2).items() if a not in known}
    spelled = {a: b for a, b in find_own_spellings(own, counts).items() if a not in known}
    for value, meant in {**typos, **spelled}.items():
        have = [client for client, words in own.items() if value in words]
        rows = plural(counts[value], "row")
        text = f"'{value}' ({rows} of {', '.join(have)}) may be '{meant}', as others write it"
        if value not in spelled:
            text = f"'{value}' ({rows}) may be a typo of '{meant}'"
        advice = f"if so, {describe_rename(name, value, meant)}"
        client = have[0] if len(have) == 1 else ""
        problems.append(DataProblem(client, name, "spelling", text, advice))
    return {**typos, **spelled}


def describe_rename(column: str, value: str, meant: str) -> str:
    """Return how a manifest replaces a value, in words."""
    return f"[recode.{column}] in the manifest renames it: '{value}' = '{meant}'"


def choose_word(
    same: Collection[str],
    own: Mapping[str, set[str]],
    counts: Mapping[str, int],
    sizes: Mapping[str, int],
) -> str:
    """Return the word for values that mean the same: a name rather than a number, that of the
    largest client, the first of several, so that all its words are taken."""
    order = sorted(sizes, key=lambda client: -sizes[client])

    def rank(word: str) -> tuple[bool, int, int]:
        first = min(order.index(client) for client, words in own.items() if word in words)
        return not is_number(word), -first, counts[word]

    return max(sorted(same), key=rank)


def describe_changes(
    client: str,
    name: str,
    words: Collection[str],
    changes: Mapping[str, str],
) -> list[DataProblem]:
    """Return a problem for each value of a client that others write in another way."""
    found = []
    for word in sorted(w for w in words if w in changes):
        kind = "spelling" if fold(word) == fold(changes[word]) else "coding"
        text = f"'{word}' is '{changes[word]}' at others"
        if changes[word] in words:
            text = f"'{word}' next to '{changes[word]}'"
        found.append(DataProblem(client, name, kind, text, f"read as '{changes[word]}'"))
    return found
