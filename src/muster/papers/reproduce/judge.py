"""Verdicts: what the cells of a claim say together, in words.

A claim of several cells holds where it holds in each of them: to be wrong about that, one must be
wrong about the cell that is worst for it, so no correction is due. Picking out some cells is
another matter: those that a verdict names stand up to Holm's correction over the claim's cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...base.lazy import pl
from ...report.intervals import Interval
from .claims import Claim
from .findings import Answer, Finding, findings, holds, place

NOT_RUN = "not run here"
# What a cell is where a claim does not hold in it.
AGAINST: dict[Answer, str] = {
    "opposite": "the opposite is clear",
    "less": "it is clearly less than that",
    "lower": "it is clearly lower",
    "different": "it clearly differs",
    "equal": "both are equal in every seed",
}
KINDS = ("holds", "holds in part", "mixed", "does not hold", "undecided", "not tested", NOT_RUN)


@dataclass(frozen=True)
class Verdict:
    """What came of a claim.

    Attributes:
        word: "holds", "holds when ...", "mixed: ...", "does not hold: ...", "undecided: ...", "not
            tested: ...", "not run here"
        needs: what it would take to run what was not
        numbers: in words, where a study of the theory has no cells
        printed: the numbers that the paper has
    """

    id: str
    says: str
    where: str
    word: str
    findings: tuple[Finding, ...] = ()
    needs: str = ""
    numbers: str = ""
    printed: str = ""

    @property
    def kind(self) -> str:
        """The verdict without its particulars, one of `KINDS`."""
        if self.word.startswith("holds "):
            return "holds in part"
        return next(kind for kind in KINDS if self.word.startswith(kind))

    @property
    def tally(self) -> str:
        """In how many of the cells that test it a claim holds, the same cells that its verdict
        names; then how many more do by themselves, and how many are no test. Empty of a claim that
        has one cell, or none.

        >>> Verdict("a", "", "", "holds").tally
        ''
        """
        if len(self.findings) < 2:
            return ""
        tests, yes = comparable(self.findings), borne_out(self.findings)
        more = sum(f.answer == "holds" for f in tests) - len(yes)
        by = f"{'more ' * bool(yes)}by {'itself' if more == 1 else 'themselves'}"
        rest = [f"{more} {by}"] * (more > 0)
        rest += [f"{none} no test"] if (none := len(self.findings) - len(tests)) else []
        return f"{len(yes)} of {len(tests)}" + (f" ({', '.join(rest)})" if rest else "")


def judged(claim: Claim, frame: pl.DataFrame | None, keys: Sequence[str], needs: str) -> Verdict:
    """The verdict on a claim from an experiment's results: one row per panel, swept cell, method,
    seed and round. `keys` are the swept ones."""
    found = [] if frame is None else findings(claim, claim.spoken_of(frame), keys)
    head = (claim.id, claim.says, claim.where)
    if not found:
        return Verdict(*head, NOT_RUN, needs=needs, printed=claim.printed)
    there = {f.cell.get("panel") for f in found}
    absent = [panel for panel in claim.panels if panel not in there]
    word = word_of(found)
    if absent:
        ran = ", ".join(panel for panel in claim.panels if panel in there)
        on = f"holds on {ran}" if word == "holds" else word
        word = f"{on}; {', '.join(absent)} not run"
    return Verdict(*head, word, tuple(found), printed=claim.printed)


def broken(check: Claim, frame: pl.DataFrame, keys: Sequence[str]) -> list[str]:
    """The cells in which some seed speaks against a check, in words; a check that found no cell to
    look at is broken too, and so is one whose runs diverged."""
    found = findings(check, check.spoken_of(frame), keys)
    if not found:
        return [f"{check.says} (nothing to check it by)"]
    lost = [
        f"{check.says} ({said(f.cell, found) or 'here'}: {seeds_lost(f)})"
        for f in found
        if f.diverged
    ]
    return lost + [
        f"{check.says} ({said(f.cell, found) or 'here'}: {gap:+.4g})"
        for f in found
        for gap in f.each
        if not holds(Interval(gap, 0.0), check.relation, check.margin)
    ]


def comparable(found: Sequence[Finding]) -> list[Finding]:
    """The cells in which the two sides are not the same run."""
    return [f for f in found if f.answer != "no test"]


def borne_out(found: Sequence[Finding]) -> list[Finding]:
    """The cells that a claim is said to hold in: where it holds in all that test it, all of them;
    else those that stand up to the correction over cells."""
    tests = comparable(found)
    yes = [f for f in tests if f.answer == "holds"]
    return yes if len(yes) == len(tests) else [f for f in yes if f.sure]


def word_of(every: Sequence[Finding]) -> str:
    """The verdict in words, from the findings of all cells. Those that are no test count neither
    for a claim nor against it, and are named."""
    found = comparable(every)
    if not found:
        return f"not tested: {' or '.join(dict.fromkeys(f.why for f in every))}"
    none = [f for f in every if f.answer == "no test"]
    return word_by(found) + (f"; no test when {cells_said(none, every)}" if none else "")


def word_by(found: Sequence[Finding]) -> str:
    """The verdict in words, from the findings of the cells that test a claim."""
    answers, yes = {f.answer for f in found}, borne_out(found)
    if answers == {"holds"}:
        return "holds"
    if len(answers) == 1 and (why := AGAINST.get(found[0].answer)):
        return f"does not hold: {why}"
    # Equal numbers are not left to chance: no correction is due.
    no = [
        f"{why} when {cells_said(cells, found)}"
        for answer, why in AGAINST.items()
        if (cells := [f for f in found if f.answer == answer and (f.sure or answer == "equal")])
    ]
    if yes:
        here = f"holds when {cells_said(yes, found)}"
        return f"mixed: {'; '.join([here, *no])}" if no else here
    if no:
        return "does not hold: " + "; ".join(no)
    return f"undecided: {unclear(found)}"


def unclear(found: Sequence[Finding]) -> str:
    """Why nothing is decided."""
    lost = sum(f.diverged for f in found)
    if lost:
        return f"{lost} of {sum(f.seeds for f in found)} seeds diverged"
    alone = [
        f"{count} by {'itself' if count == 1 else 'themselves'} {words}"
        for words, answers in (("for it", ("holds",)), ("against it", tuple(AGAINST)))
        if (count := sum(f.answer in answers for f in found))
    ]
    if not alone:
        return "no clear difference"
    return f"no cell is clear among {len(found)} ({', '.join(alone)})"


def seeds_lost(finding: Finding) -> str:
    """How many seeds came to no number."""
    return f"{finding.diverged} of {finding.seeds} seeds diverged"


def mark_of(finding: Finding, among: Sequence[Finding]) -> str:
    """What one cell came to, in a word or two."""
    if finding.diverged:
        return f"undecided: {seeds_lost(finding)}"
    if finding.answer == "no test":
        return f"no test: {finding.why}"
    words = {"less": "less than claimed"}
    word = words.get(finding.answer, finding.answer)
    picked = any(other.answer != finding.answer for other in comparable(among))
    decided = finding.holds is not None
    return f"{word}, by itself" if decided and picked and not finding.sure else word


def differing(found: Sequence[Finding]) -> list[str]:
    """The keys in which the cells of a claim differ."""
    keys = dict.fromkeys(key for f in found for key in f.cell)
    return [k for k in keys if len({str(f.cell.get(k)) for f in found}) > 1]


def said(cell: Mapping[str, Any], among: Sequence[Finding]) -> str:
    """A cell in words, without what all cells have in common."""
    return ", ".join(place(k, cell[k]) for k in differing(among) if k in cell)


def cells_said(some: Sequence[Finding], among: Sequence[Finding]) -> str:
    """Several cells in words: those of one panel, or of one value of the first key, together."""
    keys = differing(among)
    if len(keys) < 2:
        return "; ".join(said(f.cell, among) for f in some)
    first, *rest = keys
    groups: dict[str, list[Finding]] = {}
    for f in some:
        groups.setdefault(place(first, f.cell[first]) if first in f.cell else "", []).append(f)
    return "; ".join(f"{name} ({within(mine, rest)})" for name, mine in groups.items())


def within(some: Sequence[Finding], keys: Sequence[str]) -> str:
    """Cells in words by some of their keys; one key is named once."""
    if len(keys) == 1:
        values = [str(f.cell[keys[0]]) for f in some if keys[0] in f.cell]
        return place(keys[0], ", ".join(values)) if values else "all"
    return ", ".join(" and ".join(place(k, f.cell[k]) for k in keys if k in f.cell) for f in some)
