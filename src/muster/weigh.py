"""Weigh: how much each admitted reply counts in the server's step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .protocol import Replies
from .rng import Float64


class Weigh(Protocol):
    """A weight for each admitted reply."""

    def __call__(self, replies: Replies, extent: Float64) -> Float64:
        """The weights, from the replies and how far each was admitted (0 to 1)."""
        ...


@dataclass(frozen=True)
class DataShare:
    """By its share of the data, p_k, as far as it was admitted."""

    def __call__(self, replies: Replies, extent: Float64) -> Float64:
        return replies.roster.share * extent


@dataclass(frozen=True)
class Uniform:
    """All alike."""

    def __call__(self, replies: Replies, extent: Float64) -> Float64:
        return np.where(extent > 0, 1.0, 0.0)
