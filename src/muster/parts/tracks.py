"""Tracks: models that a run trains side by side, so that some of them have not seen some rows.

Cross-fitting needs a model for each fold f of the objective's rows that never trains on that fold.
Such a run has F + 1 models, stacked on a leading axis of every tensor of the model: w_0, which
trains on all rows and is the product, and w_1 .. w_F. They travel together, every rule that acts
number by number acts on all of them at once, and clients take them apart to train.

With a `Deploy` rule the same F + 1 models are trained once more by the objective's clients alone,
and the first track holds the product: w_0, its counterpart alone_0, or a point between them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from ..base.arrays import Float64
from ..base.checks import check_at_least, check_whole
from ..base.params import Params, State
from ..protocol import Offer, Replies

PRODUCT = 0  # the track that is evaluated, deployed and saved
# Among the extras of a reply of the objective's clients:
VALIDATION = "validation"  # models trained on the fold that w_f leaves out, from w_f
GAIN = "gain"  # how much lower losses are with help than alone, on unseen rows
SPREAD = "spread"  # the share of each layer in v_k, of models of several layers
ACROSS = (VALIDATION, GAIN, SPREAD)
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

    def reply_slice(self, member: bool) -> slice:
        """The tracks that a client trains and sends back: a helper, or one of the objective."""
        return slice(self.helped.start, self.count) if member else self.helped

    def reply_count(self, member: bool) -> int:
        """Return the number of tracks that a client trains."""
        return len(range(self.count)[self.reply_slice(member)])

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
    sent = tracks.reply_slice(member)
    across = {part: table for part, table in extra.items() if part in ACROSS}
    each = {part: cut(table, sent) for part, table in extra.items() if part not in ACROSS}
    return cut(model, sent), each | (across if member else {})


def restore_sent(tracks: Tracks | None, member: bool, start: Params, sent: Params) -> Params:
    """Return all tracks of a model of which one client sent some; `start` has the others."""
    if tracks is None:
        return sent
    whole = {name: t.clone() for name, t in start.items()}
    for name, t in sent.items():
        whole[name][tracks.reply_slice(member)] = t
    return whole


class Deploy(Protocol):
    """The rule by which the product lies between the models trained with help and alone.

    Each client of the objective measures, on every fold f, how much lower the loss is at
    `alone_f + b (w_f - alone_f)` than at `alone_f`, for every point b: neither model has seen that
    fold. It sends the mean over folds, g_k(b), and its squared standard error s_k^2(b).

    Attributes:
        folds: F
        points: the values of b, above 0 and up to 1
    """

    @property
    def folds(self) -> int: ...

    @property
    def points(self) -> tuple[float, ...]: ...

    @abstractmethod
    def __call__(self, gain: Float64, error: Float64) -> float:
        """Return b, from 0 (the model trained alone) to 1 (the model trained with help).

        Args:
            gain: g(b) at each point, pooled: `sum_k p_k g_k(b)`
            error: its standard error, `sqrt(sum_k p_k^2 s_k^2(b))`
        """
        ...


ALONE = "alone."  # before the parts of the server's state that belong to the tracks without help


@dataclass(frozen=True)
class AgainstAlone:
    """Deploy the helped model only while it beats training alone on rows it has not seen: by more
    than `errors` standard errors (the Ladder of Blum and Hardt, arXiv 1502.04585).

    Attributes:
        folds: F
        errors: standard errors by which help must win
    """

    folds: int = FOLDS
    errors: float = 1.0
    points: ClassVar[tuple[float, ...]] = (1.0,)

    def __post_init__(self) -> None:
        check_whole("folds", self.folds, 2)
        check_at_least("errors", self.errors, 0.0)

    def __call__(self, gain: Float64, error: Float64) -> float:
        return float(gain[0] > self.errors * error[0])


@dataclass(frozen=True)
class Interpolate:
    """Deploy the point between both models with the lowest loss on rows they have not seen.

    Attributes:
        folds: F
        parts: into how many parts the way is divided
    """

    folds: int = FOLDS
    parts: int = 8

    def __post_init__(self) -> None:
        check_whole("folds", self.folds, 2)
        check_whole("parts", self.parts)

    @property
    def points(self) -> tuple[float, ...]:
        return tuple((i + 1) / self.parts for i in range(self.parts))

    def __call__(self, gain: Float64, error: Float64) -> float:
        best = int(gain.argmax())
        return self.points[best] if gain[best] > 0 else 0.0


def mix(alone: Params, helped: Params, b: float) -> Params:
    """Return `alone + b (helped - alone)`; exactly one of both where b is 0 or 1.

    >>> mix({"w": 1.0}, {"w": 3.0}, 0.25)
    {'w': 1.5}
    """
    if b == 1.0:
        return helped
    return {name: t + b * (helped[name] - t) for name, t in alone.items()}


def pool_folds(gain: Float64) -> Float64:
    """Return each client's mean over folds and its squared standard error, `[client, point, 2]`.
    Folds without a loss are left out; a client with fewer than two of them tells nothing.

    Args:
        gain: `[client, fold, point]`
    """
    known = np.isfinite(gain)
    count = known.sum(1)
    mean = np.where(known, gain, 0.0).sum(1) / np.maximum(count, 1)
    square = (np.where(known, gain - mean[:, None], 0.0) ** 2).sum(1)
    error = square / np.maximum(count * (count - 1), 1)
    return np.where(count[..., None] > 1, np.stack([mean, error], -1), 0.0)


def pool_clients(gain: Float64, base: Float64) -> tuple[Float64, Float64]:
    """Return the gain at each point and its standard error over clients with these weights."""
    p = base / base.sum() if base.sum() > 0 else base
    return p @ gain[..., 0], np.sqrt(p**2 @ gain[..., 1])
