"""What a tuning came to, as results keep it and as a page says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.lazy import pl
from ...base.schema import Table
from ...study.grid import shown
from ...study.tuning_result import Tuning, edges_of

# What is kept of a candidate beside its settings.
KEPT = {"method", "candidate", "tied", "chosen", "measure", "seeds", "scores", "mean", "half"}


def kept(tuning: Tuning) -> list[Table]:
    """Every candidate: its settings, what was scored on which seeds, each score and their mean."""
    found: list[Table] = []
    for row in tuning.summary().iter_rows(named=True):
        of = (pl.col("method") == row["method"]) & (pl.col("candidate") == row["candidate"])
        mine = tuning.frame.filter(of)
        scores = mine["score"].cast(pl.Float64).fill_null(float("nan")).to_list()
        each = {"measure": tuning.measure, "seeds": mine["seed"].to_list(), "scores": scores}
        found.append({k: v for k, v in (row | each).items() if v is not None})
    return found


def in_words(rows: Sequence[Table]) -> str:
    """The grid and the choice of a panel, and which choices are at an edge of it, for a sentence;
    empty where nothing was tuned.

    >>> lr = [{"method": "A", "local.lr": v, "chosen": v == 0.1} for v in (0.05, 0.1, 0.2)]
    >>> in_words(lr)
    ', tuned (local.lr of 0.05, 0.1, 0.2: A 0.1)'
    >>> in_words([row | {"measure": "test_accuracy", "seeds": [7, 8]} for row in lr])
    ', tuned (local.lr of 0.05, 0.1, 0.2 on seeds 7, 8 by test_accuracy: A 0.1)'
    >>> in_words(lr[:2])
    ', tuned (local.lr of 0.05, 0.1: A 0.1; local.lr = 0.1 is the largest tried (A))'
    """
    if not rows:
        return ""
    keys = list(dict.fromkeys(key for row in rows for key in row if key not in KEPT))

    def values(key: str) -> str:
        return ", ".join(dict.fromkeys(shown(row[key]) for row in rows if key in row))

    def choice(row: Table) -> str:
        own: list[Any] = [shown(row[key]) for key in keys if key in row]
        return f"{row['method']} {' / '.join(own) or 'as it is'}"

    grid = "; ".join(f"{key} of {values(key)}" for key in keys)
    first = rows[0]
    seeds = first.get("seeds")
    if isinstance(seeds, list):
        grid += f" on seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    if "measure" in first:
        grid += f" by {first['measure']}"
    chosen = ", ".join(choice(row) for row in rows if row["chosen"])
    said = "; ".join([f"{grid}: {chosen}", *edges_of(rows, keys)])
    return f", tuned ({said})"
