"""Studies of the papers' theory: each is one function that returns one long frame.

    bound        Theorem 1 and A.9: the bound, printed and repaired, and the measured error
    corollary2   theta_T, rho_T and the error for four decays of eps_t
    toy          MaxFL's Fig. 2 a-c, for two and for three clients; Lemmas 2.1, 2.2, Theorem 2.1
    weights      MaxFL's Fig. 3: q_k against the gap
    rate         Theorem 3.1: how fast the gradient of MaxFL's objective vanishes

The first column, `study`, names the study: `verdicts` judges the paper's statements from the frame
alone (a `Statement` is one with its verdict), and `figures` draws it. A study's settings are in its
code, so its digest is of the modules it is built from, without what does not compute: docstrings,
comments and imports.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import math
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TypedDict, TypeVar

import numpy as np

from ...base.arrays import Float64
from ...base.errors import MusterError, unknown_name
from ...base.lazy import pl
from ...report.intervals import Interval
from .study_bound import bound, corollary2
from .study_toy import rate, toy, weights

__all__ = ["STUDIES", "bound", "corollary2", "digest", "rate", "run_study", "toy", "weights"]

STUDIES: dict[str, Callable[..., pl.DataFrame]] = {
    "bound": bound,
    "corollary2": corollary2,
    "toy": toy,
    "weights": weights,
    "rate": rate,
}


def run_study(name: str, quick: bool = False, seeds: int | None = None) -> pl.DataFrame:
    """Run a study by its name; `quick` and `seeds` reach those that have them."""
    study = STUDIES[name]
    options = {"quick": quick, **({} if seeds is None else {"seeds": seeds})}
    known = inspect.signature(study).parameters
    return study(**{key: value for key, value in options.items() if key in known})


def digest(name: str) -> str:
    """Return the digest of the code that decides a study's results: other code outdates them."""
    module = Path(inspect.getfile(STUDIES[name]))
    code = "\n".join(strip_source(path.read_text()) for path in sorted(find_modules(module)))
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def find_modules(path: Path) -> set[Path]:
    """Return a module and all that it imports from its own folder, directly or not."""
    found, ahead = {path}, [path]
    while ahead:
        names = find_siblings(ahead.pop().read_text())
        new = {path.with_name(f"{name}.py") for name in names} - found
        found |= new
        ahead += new
    return found


@cache
def find_siblings(source: str) -> set[str]:
    """Return the names of the modules that a module's code imports from its own folder."""
    return {
        name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for name in ([node.module] if node.module else [alias.name for alias in node.names])
    }


@cache
def strip_source(source: str) -> str:
    """Return code without docstrings, imports, lines of comment and empty lines."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if docstring or isinstance(node, ast.Import | ast.ImportFrom):
            assert isinstance(node, ast.stmt)
            for i in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[i] = ""
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))


Found = TypeVar("Found")

HOLDS, FAILS = "holds", "does not hold"


class Statement(TypedDict):
    """A statement in our words, its place in the paper, the numbers found, and the verdict."""

    id: str
    says: str
    where: str
    numbers: str
    verdict: str


def find_by_study(known: Mapping[str, Found], frame: pl.DataFrame, what: str) -> Found:
    """Return the entry for the study that a frame is of; `what` needs it, in errors."""
    if "study" not in frame.columns or frame["study"].n_unique() != 1:
        raise MusterError(f"{what}: give the frame of one study of muster.papers.theory.study")
    name = frame["study"][0]
    if name not in known:
        raise unknown_name("study", name, known)
    return known[name]


def half_width(interval: Interval) -> float:
    """Return the half-width of an interval, 0 for a single run."""
    return 0.0 if math.isnan(interval.half) else interval.half


def make_statement(id: str, says: str, where: str, numbers: str, verdict: str | bool) -> Statement:
    """Build a statement with its verdict in words."""
    if not isinstance(verdict, str):
        verdict = HOLDS if verdict else FAILS
    return {"id": id, "says": says, "where": where, "numbers": numbers, "verdict": verdict}


def find_signs(gaps: dict[str, tuple[float, Float64]], among: int) -> dict[str, int]:
    """Return -1 where the difference is clearly below 0, 1 where it is clearly above, else 0; the
    intervals are wide enough to hold together for this many places."""
    intervals = {place: Interval.of(gap, among) for place, (_, gap) in gaps.items()}
    return {
        place: int(np.sign(gap.mean)) if abs(gap.mean) > half_width(gap) else 0
        for place, gap in intervals.items()
    }


def judge_places(alone: dict[str, int], together: dict[str, int]) -> str:
    """Return a verdict from the sign at each place, negative where the statement holds: `alone` by
    each place's own interval, `together` after the correction for all of them.

    >>> judge_places({"a": -1, "b": 1, "c": 0}, {"a": -1, "b": 1, "c": 0})
    'holds when a, the opposite is clear when b'
    """
    if all(s < 0 for s in alone.values()):
        return HOLDS
    if all(s > 0 for s in alone.values()):
        return "does not hold: the opposite is clear"
    yes, no = ([p for p, s in together.items() if s == wanted] for wanted in (-1, 1))
    if yes:
        against = f", the opposite is clear when {'; '.join(no)}" if no else ""
        return f"holds when {'; '.join(yes)}{against}"
    if no:
        return f"does not hold: the opposite is clear in {len(no)} of {len(together)} places"
    return "undecided: no clear difference"
