"""Tracks: models that a run trains side by side, so that some of them have not seen some rows.

Cross-fitting needs a model for each fold f of the objective's rows that never trains on that fold.
Such a run has F + 1 models, stacked on a leading axis of every tensor of the model: w_0, which
trains on all rows and is the product, and w_1 .. w_F. They travel together, every rule that acts
number by number acts on all of them at once, and clients take them apart to train.

With `AgainstAlone` the same F + 1 models are trained once more by the objective's clients alone,
and the first track holds the product: a copy of w_0, or of its counterpart without help.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..base.arrays import Float64
from ..base.checks import check_at_least, check_whole
from ..base.params import Params, State
from ..protocol import Offer, Replies

PRODUCT = 0  # the track that is evaluated, deployed and saved
# Among the extras of a reply of the objective's clients:
VALIDATION = "validation"  # models trained on the fold that w_f leaves out, from w_f
GAIN = "gain"  # how much better w_f is than its counterpart alone, on unseen rows
ACROSS = (VALIDATION, GAIN)
FOLDS = 4


@dataclass(frozen=True)
class Tracks:
    """The layout of the models on the leading axis.

    Attributes:
        folds: F
        alone: True if the objective's clients train the F + 1 models once more without help
    """

    folds: int
    alone: bool = False

    @property
    def count(self) -> int:
        """The number of models."""
        return 2 * self.folds + 3 if self.alone else self.folds + 1

    @property
    def helped(self) -> slice:
        """w_0 .. w_F, in which helpers count."""
        return slice(int(self.alone), self.folds + 1 + int(self.alone))

    @property
    def unhelped(self) -> slice:
        """The counterparts that the objective's clients train alone."""
        return slice(self.folds + 2, self.count) if self.alone else slice(0, 0)

    def sent(self, member: bool) -> slice:
        """The tracks that a client trains and sends back: a helper, or one of the objective."""
        return slice(self.helped.start, self.count) if member else self.helped

    def trained(self, member: bool) -> int:
        """Return the number of tracks that a client trains."""
        return len(range(self.count)[self.sent(member)])

    def expand(self, model: Params) -> Params:
        """Return a copy of one model for each track."""
        return {name: t.expand(self.count, *t.shape).clone() for name, t in model.items()}


def cut(model: Params, which: int | slice, axis: int = 0) -> Params:
    """Return one track of a model, or some; of a stack of models with axis = 1."""
    before = (slice(None),) * axis
    return {name: t[(*before, which)] for name, t in model.items()}


def cut_offer(offer: Offer, which: int | slice) -> Offer:
    """Return the offer of one track, or of some."""
    server = {part: cut(table, which) for part, table in offer.server.items()}
    return replace(offer, model=cut(offer.model, which), server=server)


def cut_replies(replies: Replies, which: slice) -> Replies:
    """Return the replies in some tracks; what clients measured across tracks stays whole."""
    extra = {
        part: table if part in ACROSS else cut(table, which, 1)
        for part, table in replies.extra.items()
    }
    return replace(replies, models=cut(replies.models, which, 1), extra=extra)


def select_sent(
    tracks: Tracks | None, member: bool, model: Params, extra: State
) -> tuple[Params, State]:
    """Return the parts of one client's reply that it sends: the tracks that it trains, and what it
    measures across tracks if it is one of the objective's."""
    if tracks is None:
        return model, extra
    sent = tracks.sent(member)
    across = {part: table for part, table in extra.items() if part in ACROSS}
    each = {part: cut(table, sent) for part, table in extra.items() if part not in ACROSS}
    return cut(model, sent), each | (across if member else {})


def restore_sent(tracks: Tracks | None, member: bool, start: Params, sent: Params) -> Params:
    """Return all tracks of a model of which one client sent some; `start` has the others."""
    if tracks is None:
        return sent
    whole = {name: t.clone() for name, t in start.items()}
    for name, t in sent.items():
        whole[name][tracks.sent(member)] = t
    return whole


@dataclass(frozen=True)
class AgainstAlone:
    """Deploy the helped model only while it beats training alone on rows it has not seen.

    Each client k of the objective measures on every fold f the loss of w_f, which never trained on
    that fold, and of its counterpart without help. The mean g_k of the F differences and its
    squared standard error s_k^2 are pooled with the clients' weights b_k in the objective:

        sum_k b_k g_k > errors sqrt(sum_k b_k^2 s_k^2)

    is needed to deploy w_0; otherwise the model trained alone is the product (the Ladder of Blum
    and Hardt, arXiv 1502.04585, with one standard error as its step).

    Attributes:
        folds: F
        errors: standard errors by which help must win
    """

    folds: int = FOLDS
    errors: float = 1.0
    alone: ClassVar[str] = "alone."  # before the server state of the tracks without help

    def __post_init__(self) -> None:
        check_whole("folds", self.folds, 2)
        check_at_least("errors", self.errors, 0.0)

    def __call__(self, gain: Float64, base: Float64) -> bool:
        """Return True to deploy the helped model.

        Args:
            gain: g_k and s_k^2 of each reply, `[reply, 2]`
            base: b_k, 0 for helpers
        """
        if not base.sum() > 0:
            return False
        b = base / base.sum()
        return bool(b @ gain[:, 0] > self.errors * np.sqrt(b**2 @ gain[:, 1]))


def pool_folds(gain: Float64) -> Float64:
    """Return g_k and s_k^2 from each client's differences on its folds, `[client, fold]`; folds
    without a loss are left out, and a client with fewer than two tells nothing."""
    known = np.isfinite(gain)
    count = known.sum(1)
    some = count > 1
    filled = np.where(known, gain, 0.0)
    mean = filled.sum(1) / np.maximum(count, 1)
    square = (np.where(known, gain - mean[:, None], 0.0) ** 2).sum(1)
    error = square / np.maximum(count * (count - 1), 1)
    return np.stack([np.where(some, mean, 0.0), np.where(some, error, 0.0)], 1)
