"""Guard: refuse what is malformed or impossible, with a reason, never an exception.

One broken client must not turn the model to NaN. The guard stands between what clients send and
every rule of the server.
"""

from __future__ import annotations

import numpy as np

from . import params
from .protocol import Decision, Offer, Replies

# No cross-entropy of a model anyone would use comes near this; a report above it is a lie or a bug.
MOST_LOSS = 1e6


def guard(
    offer: Offer, replies: Replies, appraised: bool, most_claim: float = float("nan")
) -> Decision:
    """Which replies may be looked at: right names and shapes, finite models, possible losses and
    claims (from 0 to `most_claim`; NaN when nothing is claimed)."""
    n = len(replies.roster)
    ok = np.ones(n, np.bool_)
    reason = np.full(n, "", dtype="U32")

    def refuse(bad: np.ndarray[tuple[int], np.dtype[np.bool_]], why: str) -> None:
        reason[bad & ok] = why
        ok[bad] = False

    expected = {name: tuple(t.shape) for name, t in offer.model.items()}
    got = {name: tuple(t.shape[1:]) for name, t in replies.models.items()}
    if n and expected != got:
        refuse(np.ones(n, np.bool_), "malformed: names or shapes")
        return Decision(ok, reason)
    if n:
        refuse(~params.finite(replies.models), "malformed: not finite")
        for part in replies.extra.values():
            refuse(~params.finite(part), "malformed: not finite")
    if appraised:
        loss, accuracy = replies.appraisal.loss, replies.appraisal.accuracy
        refuse(~((loss >= 0) & (loss <= MOST_LOSS)), "impossible loss")
        refuse(~((accuracy >= 0) & (accuracy <= 1)), "impossible accuracy")
    if not np.isnan(most_claim):
        refuse(~((replies.claim >= 0) & (replies.claim <= most_claim)), "impossible claim")
    return Decision(ok, reason)
