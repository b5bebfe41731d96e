"""Verdicts on the papers' statements, each computed from a study's frame.

A verdict is `holds`, `holds when ...`, `does not hold` or `undecided`; where it can be computed
exactly, it is. The numbers that decided it stand next to it, with their 95 % interval where there
are several seeds or draws.
"""

from __future__ import annotations

from collections.abc import Callable

from ...base.lazy import pl
from .study import Statement, find_by_study
from .verdicts_bound import judge_bound, judge_corollary2
from .verdicts_toy import judge_rate, judge_toy, judge_weights


def verdicts(frame: pl.DataFrame) -> list[Statement]:
    """Judge the statements that this study's frame can decide."""
    return find_by_study(JUDGES, frame, "verdicts")(frame)


JUDGES: dict[str, Callable[[pl.DataFrame], list[Statement]]] = {
    "bound": judge_bound,
    "corollary2": judge_corollary2,
    "toy": judge_toy,
    "weights": judge_weights,
    "rate": judge_rate,
}
