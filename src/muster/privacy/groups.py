"""Groups of a private round: each client is in one, and the sum of each is released by itself.

The priority clients are the first group. The others are dealt again in every round, by a draw that
everyone can repeat. Where the server sees single contributions it deals by public numbers too:
those whose groups did badly before sit together more often. In a secure sum the draw decides alone,
over all clients of the agreed terms, so that members of the committee can check the groups of a
list. A client adds to one sum alone, at most the clip, and every sum has its own noise: so all
sums of a round together are one release, and cost a client what a single sum does. The sum of G
groups has sqrt(G) times the noise of one.
"""

from __future__ import annotations

import numpy as np

from ..base import rng
from ..base.arrays import Bool, Float64, Int64
from ..protocol import Roster
from .committee import LEAST_GROUP


def deal_groups(roster: Roster, groups: int, seed: int, t: int, standing: Float64) -> Int64:
    """Return the group of each client asked: 0 of priority clients; from 1 on of the others, of
    about the same size.

    Args:
        standing: of each client asked: how much like the priority clients its groups were
    """
    group, others = np.zeros(len(roster), np.int64), np.flatnonzero(~roster.priority)
    count = min(groups - 1, len(others) // LEAST_GROUP)
    if count < 1 or len(others) == len(roster):
        return group
    drawn = rng.uniform(rng.keys(seed, "groups", t, roster.ids[others]))
    own = standing[others]
    order = np.argsort(own + max(own.std(), 1e-300) * drawn, kind="stable")
    group[others[order]] = 1 + np.arange(len(others)) * count // len(others)
    return group


def deal_everyone(priority: Bool, ids: Int64, groups: int, seed: int, t: int) -> Int64:
    """Return the group of every client, asked or not, by agreed numbers alone."""
    n = len(ids)
    everyone = Roster(np.arange(n), priority, np.ones(n), np.ones(n), ids=ids)
    return deal_groups(everyone, groups, seed, t, np.zeros(n))
