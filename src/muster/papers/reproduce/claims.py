"""Claims of a paper, in a form that runs can confirm or contradict.

A claim compares two sides, each a method, a measure and a place (panel, swept values, rounds).
`findings` compares them cell by cell, `judge` gives the verdict on the claim as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...base.checks import check_one_of
from ...base.errors import MusterError, nearest
from ...base.lazy import pl
from ...base.schema import Table

Relation = Literal["above", "below", "about", "not below"]
RELATIONS = ("above", "below", "about", "not below")


@dataclass(frozen=True)
class PaperClaim:
    """A claim of a paper, in a form that runs can confirm or contradict.

    Attributes:
        says: the claim in our words
        where: its place in the paper
        left: a side: method, measure, rounds, and where in the sweep. `rounds` is a round, a range
            of them `[21, 60]`, or a range as shares of the run `[0.0, 0.5]`; a list of values of a
            place is a cell for each. `with` names a second measure: then the side is, seed by seed,
            the correlation of the two over all methods
        right: the other side; keys it leaves out are as on the left, `value` is a plain number, and
            "none" of a swept key means a panel that does not sweep it. A list of methods, or "*"
            for all others, is a cell for each
        relation: the claimed relation of the left to the right: above or below it, about it or
            not below it, both by a margin
        panels: the panels it is about; empty: all
        printed: the paper's numbers for it
    """

    id: str
    says: str
    where: str
    left: Table
    right: Table
    relation: Relation = "above"
    margin: float = 0.0
    panels: tuple[str, ...] = ()
    printed: str = ""

    @classmethod
    def of(cls, table: Table, panels: Sequence[str] = ()) -> PaperClaim:
        """Build a claim from its file's table; if it names no panels it is about these, unless a
        side names one."""
        known = {"id", "says", "where", "left", "right", "is", "margin", "panels", "printed"}
        for key in table:
            if key not in known:
                raise MusterError(f"claims: unknown key '{key}'; {nearest(key, sorted(known))}")
        for key in ("id", "says", "where", "left", "right"):
            if key not in table:
                raise MusterError(f"claims: '{table.get('id', '?')}' has no {key}")
        check_one_of("claims: is", table.get("is", "above"), RELATIONS)
        left = dict(table["left"])
        for key in ("measure",) if "with" in left else ("method", "measure"):
            if key not in left:
                raise MusterError(f"claims: '{table['id']}': left has no {key}")
        right = {**left, **table["right"]} if "value" not in table["right"] else table["right"]
        for side in (left, right):
            check_rounds(side.get("rounds"), table["id"])
        named = "panel" in left or "panel" in right
        return cls(
            table["id"],
            table["says"],
            table["where"],
            left,
            right,
            table.get("is", "above"),
            float(table.get("margin", 0.0)),
            tuple(table.get("panels", () if named else panels)),
            table.get("printed", ""),
        )

    def select_panels(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Select the results of the panels it is about."""
        if not self.panels or not frame.width:
            return frame
        return frame.filter(pl.col("panel").is_in(list(self.panels)))


def check_rounds(rounds: Any, id: str) -> None:
    """Refuse rounds that are no round, range of rounds, or range of shares of the run."""
    kinds = {type(r) for r in rounds} if isinstance(rounds, list) and len(rounds) == 2 else set()
    if not (rounds is None or type(rounds) is int or kinds in ({int}, {float})):
        raise MusterError(
            f"claims: '{id}': rounds = {rounds}; give a round, a range [21, 60], or shares of the "
            "run [0.0, 0.5]"
        )


def select_rounds(rounds: Any, measured: set[int], last: int) -> list[int]:
    """Select the measured rounds that a side is about.

    >>> select_rounds([0.0, 0.5], {5, 10, 20}, 20), select_rounds([5, 10], {5, 10, 20}, 20)
    ([5, 10], [5, 10])
    """
    if rounds is None:
        return [last]
    if not isinstance(rounds, list):
        return [r for r in measured if r == rounds]
    low, high = rounds
    if isinstance(low, float):
        return sorted(r for r in measured if low * last < r <= high * last)
    return sorted(r for r in measured if low <= r <= high)
