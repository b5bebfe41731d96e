"""Verdicts: what a study's frame says of each statement of the papers.

Every verdict is computed from the frame, or exactly where that can be done: `holds`, `holds when
...`, `does not hold` or `undecided`. The numbers that decided it stand next to it, with their 95 %
interval where there are several seeds or draws.
"""

from __future__ import annotations

from collections.abc import Callable

from ...base.errors import MusterError, unknown_name
from ...base.lazy import pl
from .statement import Verdict
from .verdicts_bound import of_bound, of_corollary2
from .verdicts_rate import of_rate
from .verdicts_toy import of_toy, of_weights


def verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """The verdicts on the statements that this study's frame can decide."""
    if "study" not in frame.columns or frame["study"].n_unique() != 1:
        raise MusterError("verdicts: give the frame of one study of muster.papers.theory.study")
    name = frame["study"][0]
    if name not in JUDGES:
        raise unknown_name("study", name, JUDGES)
    return JUDGES[name](frame)


JUDGES: dict[str, Callable[[pl.DataFrame], list[Verdict]]] = {
    "bound": of_bound,
    "corollary2": of_corollary2,
    "toy": of_toy,
    "weights": of_weights,
    "rate": of_rate,
}
