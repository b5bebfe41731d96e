"""Verdicts on claims, from the findings of all their cells.

A claim of several cells holds if it holds in each of them: to be wrong about that, one must be
wrong about the cell that is worst for it, so no correction is due. Naming some cells is another
matter: those that a verdict names pass Holm's correction over the claim's cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...base.lazy import pl
from ...report.intervals import Interval
from .findings import Answer, Finding, compute_findings, describe_place, holds
from .paper_experiment import PaperClaim

NOT_RUN = "not run here"
# A verdict's words for a cell in which a claim does not hold.
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
    """The verdict on a claim.

    Attributes:
        word: "holds", "holds when ...", "mixed: ...", "does not hold: ...", "undecided: ...", "not
            tested: ...", "not run here"
        needs: the command that runs a claim that was not run
        numbers: the numbers of a study of the theory, which has no cells
        printed: the paper's numbers
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
        """The number of cells in which a claim holds, of those that test it: the cells that its
        verdict names; then how many more hold by themselves, and how many are no test. Empty for
        a claim of one cell or none.

        >>> Verdict("a", "", "", "holds").tally
        ''
        """
        if len(self.findings) < 2:
            return ""
        tests, yes = tested_cells(self.findings), confirmed_cells(self.findings)
        more = sum(f.answer == "holds" for f in tests) - len(yes)
        by = f"{'more ' * bool(yes)}by {'itself' if more == 1 else 'themselves'}"
        rest = [f"{more} {by}"] * (more > 0)
        rest += [f"{none} no test"] if (none := len(self.findings) - len(tests)) else []
        return f"{len(yes)} of {len(tests)}" + (f" ({', '.join(rest)})" if rest else "")


def judge(
    claim: PaperClaim, frame: pl.DataFrame | None, keys: Sequence[str], needs: str
) -> Verdict:
    """Judge a claim by an experiment's results: one row per panel, swept cell, method, seed and
    round. `keys` are the swept ones."""
    found = [] if frame is None else compute_findings(claim, claim.select_panels(frame), keys)
    head = (claim.id, claim.says, claim.where)
    if not found:
        return Verdict(*head, NOT_RUN, needs=needs, printed=claim.printed)
    there = {f.cell.get("panel") for f in found}
    absent = [panel for panel in claim.panels if panel not in there]
    word = word_verdict(found)
    if absent:
        ran = ", ".join(panel for panel in claim.panels if panel in there)
        on = f"holds on {ran}" if word == "holds" else word
        word = f"{on}; {', '.join(absent)} not run"
    return Verdict(*head, word, tuple(found), printed=claim.printed)


def find_failures(check: PaperClaim, frame: pl.DataFrame, keys: Sequence[str]) -> list[str]:
    """Describe the cells in which a seed contradicts a check; a check without cells fails too, and
    so does one whose runs diverged."""
    found = compute_findings(check, check.select_panels(frame), keys)
    if not found:
        return [f"{check.says} (nothing to check it by)"]
    diverged = [
        f"{check.says} ({describe_cell(f.cell, found) or 'here'}: {describe_divergence(f)})"
        for f in found
        if f.diverged
    ]
    return diverged + [
        f"{check.says} ({describe_cell(f.cell, found) or 'here'}: {gap:+.4g})"
        for f in found
        for gap in f.each
        if not holds(Interval(gap, 0.0), check.relation, check.margin)
    ]


def tested_cells(found: Sequence[Finding]) -> list[Finding]:
    """Return the cells in which the two sides are not the same run."""
    return [f for f in found if f.answer != "no test"]


def confirmed_cells(found: Sequence[Finding]) -> list[Finding]:
    """Return the cells that a verdict names as holding: all that test the claim if it holds in all
    of them; else those that pass the correction over cells."""
    tests = tested_cells(found)
    yes = [f for f in tests if f.answer == "holds"]
    return yes if len(yes) == len(tests) else [f for f in yes if f.sure]


def word_verdict(every: Sequence[Finding]) -> str:
    """Word the verdict from the findings of all cells. Those that are no test count neither for a
    claim nor against it, and are named."""
    found = tested_cells(every)
    if not found:
        return f"not tested: {' or '.join(dict.fromkeys(f.why for f in every))}"
    none = [f for f in every if f.answer == "no test"]
    return word_cells(found) + (f"; no test when {describe_cells(none, every)}" if none else "")


def word_cells(found: Sequence[Finding]) -> str:
    """Word the verdict from the findings of the cells that test a claim."""
    answers, yes = {f.answer for f in found}, confirmed_cells(found)
    if answers == {"holds"}:
        return "holds"
    if len(answers) == 1 and (why := AGAINST.get(found[0].answer)):
        return f"does not hold: {why}"
    # Equal numbers are not left to chance: no correction is due.
    no = [
        f"{why} when {describe_cells(cells, found)}"
        for answer, why in AGAINST.items()
        if (cells := [f for f in found if f.answer == answer and (f.sure or answer == "equal")])
    ]
    if yes:
        here = f"holds when {describe_cells(yes, found)}"
        return f"mixed: {'; '.join([here, *no])}" if no else here
    if no:
        return "does not hold: " + "; ".join(no)
    return f"undecided: {explain_no_decision(found)}"


def explain_no_decision(found: Sequence[Finding]) -> str:
    """Explain why nothing is decided."""
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


def describe_divergence(finding: Finding) -> str:
    """Describe how many seeds diverged."""
    return f"{finding.diverged} of {finding.seeds} seeds diverged"


def describe_outcome(finding: Finding, among: Sequence[Finding]) -> str:
    """Describe the outcome of one cell in a word or two."""
    if finding.diverged:
        return f"undecided: {describe_divergence(finding)}"
    if finding.answer == "no test":
        return f"no test: {finding.why}"
    words = {"less": "less than claimed"}
    word = words.get(finding.answer, finding.answer)
    picked = any(other.answer != finding.answer for other in tested_cells(among))
    decided = finding.holds is not None
    return f"{word}, by itself" if decided and picked and not finding.sure else word


def differing_keys(found: Sequence[Finding]) -> list[str]:
    """Return the keys in which the cells of a claim differ."""
    keys = dict.fromkeys(key for f in found for key in f.cell)
    return [k for k in keys if len({str(f.cell.get(k)) for f in found}) > 1]


def describe_cell(cell: Mapping[str, Any], among: Sequence[Finding]) -> str:
    """Describe a cell by the keys in which the cells differ."""
    return ", ".join(describe_place(k, cell[k]) for k in differing_keys(among) if k in cell)


def describe_cells(some: Sequence[Finding], among: Sequence[Finding]) -> str:
    """Describe several cells: those of one panel, or of one value of the first key, together."""
    keys = differing_keys(among)
    if len(keys) < 2:
        return "; ".join(describe_cell(f.cell, among) for f in some)
    first, *rest = keys
    groups: dict[str, list[Finding]] = {}
    for f in some:
        groups.setdefault(
            describe_place(first, f.cell[first]) if first in f.cell else "", []
        ).append(f)
    return "; ".join(f"{name} ({describe_group(mine, rest)})" for name, mine in groups.items())


def describe_group(some: Sequence[Finding], keys: Sequence[str]) -> str:
    """Describe cells by some of their keys; a single key is named once."""
    if len(keys) == 1:
        values = [str(f.cell[keys[0]]) for f in some if keys[0] in f.cell]
        return describe_place(keys[0], ", ".join(values)) if values else "all"
    return ", ".join(
        " and ".join(describe_place(k, f.cell[k]) for k in keys if k in f.cell) for f in some
    )
