"""Sentiment140: sentiment of tweets, positive or negative. Clients are groups of users."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...base import rng
from ...base.checks import check_whole
from ...base.registry import part
from ...federation import Federation
from ..sources.catalogue import SENT140
from ..sources.dataset import load_local
from ..split.partition import by_column
from ..split.train_test import federate, hold_out
from .images import Priority


@part(Federation, "sent140")
def sent140(
    folder: str | Path | None = None,
    clients: int = 100,
    priority: Priority = "all",
    unseen: int = 0,
    seed: int = 0,
    test_fraction: float = 0.2,
) -> Federation:
    """Sentiment140 (Go et al. 2009): mean GloVe vectors of tweets, 50 features; negative, positive.

    Most users have a single tweet, so a client is a group of users: users are shuffled and dealt
    evenly, and all tweets of a user are with one client. Each client holds out `test_fraction` of
    its tweets. The words of a tweet are those of `readers.tokens`.
    """
    local = load_local(SENT140, folder)
    user = local.arrays["user"]
    users = int(user.max()) + 1
    check_whole(f"clients (of {users} users)", clients, 1, users)
    group = rng.generator(seed, "sent140 groups").permutation(users) % clients
    mine = by_column(group[np.asarray(user)])[0]
    train, test = hold_out(mine, local.arrays["y"].astype(np.int64), test_fraction, seed)
    grouped = f"each client is a group of about {users / clients:.0f} users"
    return federate(
        local.arrays["x"],
        local.arrays["y"],
        train,
        test_parts=test,
        priority=priority,
        unseen=unseen,
        classes=2,
        name=SENT140.name,
        varies="deal and split",
        note="; ".join(part for part in (local.note, grouped) if part),
    )
