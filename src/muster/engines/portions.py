"""Portions: how a round's clients are cut into pieces of work that threads take whole.

The rule looks at the plan and the model alone, never at the number of threads: which clients are
stacked together can show in the last bits of their numbers, so a cut that followed the threads
would make results depend on them. A portion is
- large enough that its arithmetic outweighs what a step costs by itself, and
- small enough that its models stay in cache through all of its steps;
within that, a round is cut into as many portions as a machine may have use for.
"""

from __future__ import annotations

import numpy as np

from .. import params
from ..arrays import Int64
from ..params import Params
from .batches import Plan

WORTH = 2**23  # parameters times rows that are worth a hand-over: about half a millisecond
CACHE = 2**22  # bytes of models worked on together
ENOUGH = 16  # portions that a round need not exceed for the sake of more threads


def cut(group: Plan, model: Params) -> list[Plan]:
    """A group's portions, nearly equal in clients: those with most steps come first."""
    clients, width = len(group.at), group.rows.shape[2]
    step = clients * width * numbers(model)
    fits = -(-clients * params.nbytes(model) // CACHE)
    pieces = min(clients, max(1, fits, min(ENOUGH, step // WORTH)))
    ends = np.arange(pieces + 1) * clients // pieces
    return [group.cut(int(a), int(b)) for a, b in zip(ends, ends[1:], strict=False)]


def blocks(group: Plan, model: Params) -> list[slice]:
    """Consecutive clients of a portion whose steps together are worth a hand-over."""
    done = np.cumsum(work(group, model)) // WORTH
    enough = np.diff(done, prepend=0) > 0
    enough[-1] = True
    ends = np.flatnonzero(enough) + 1
    starts = np.concatenate([[0], ends[:-1]])
    return [slice(int(a), int(b)) for a, b in zip(starts, ends, strict=True)]


def work(group: Plan, model: Params) -> Int64:
    """Parameters times rows over all steps of each client."""
    rows: Int64 = group.count.sum(1)
    return rows * numbers(model)


def numbers(model: Params) -> int:
    """How many parameters a model has."""
    return sum(t.numel() for t in model.values())
