"""Weigh: the weight of each admitted reply in the aggregation by the server's step."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from ..base.arrays import Float64
from ..base.params import State
from ..base.registry import part
from ..protocol import Replies


class Weigh(Protocol):
    """The weight of each admitted reply in the server's step.

    A rule that uses the server's state names the tables it needs in a field `needs`; the step must
    keep them (`Step.keeps`). One that uses losses belongs to a method with `losses=True`.
    """

    @abstractmethod
    def __call__(self, replies: Replies, extent: Float64, server: State) -> Float64:
        """Return the weight of each reply; their sum need not be 1.

        Args:
            replies: what clients sent: `roster` (with `clients`, `priority`, `importance`, `share`;
                `roster.weight(extent)` is the data share), `models` (a stack `[reply, *shape]` for
                each parameter), `appraisal.loss` and `appraisal.score` as they report them, `claim`
                (NaN without a `Claim`), `extra` (what the solver sends)
            extent: how far each reply was admitted, from 0 to 1
            server: the server's state: tables of tensors, by name

        Returns:
            one number for each reply, 0 or more
        """
        ...


@part(Weigh, "data_share")
@dataclass(frozen=True)
class DataShare:
    """The client's share of the data, p_k, as far as its reply was admitted."""

    def __call__(self, replies: Replies, extent: Float64, server: State) -> Float64:
        return replies.roster.weight(extent)


@part(Weigh, "uniform")
@dataclass(frozen=True)
class Uniform:
    """The same weight for every admitted reply, whatever its amount of data."""

    def __call__(self, replies: Replies, extent: Float64, server: State) -> Float64:
        return np.where(extent > 0, 1.0, 0.0)


@part(Weigh, "claimed")
@dataclass(frozen=True)
class Claimed:
    """The client's claim (MaxFL's q_k), as far as its reply was admitted."""

    def __call__(self, replies: Replies, extent: Float64, server: State) -> Float64:
        return replies.claim * extent


@part(Weigh, "loss_power")
@dataclass(frozen=True)
class LossPower:
    """`F_k^q`: the worse the model serves a client, the more it counts (q-FFL, Li et al. 2019)."""

    q: float

    def __call__(self, replies: Replies, extent: Float64, server: State) -> Float64:
        return replies.appraisal.loss**self.q * extent


@part(Weigh, "mixture")
@dataclass(frozen=True)
class Mixture:
    """The server's mixture over clients, lambda_k (AFL, Mohri et al. 2019)."""

    needs: ClassVar[tuple[str, ...]] = ("mixture",)  # of what the step keeps

    def __call__(self, replies: Replies, extent: Float64, server: State) -> Float64:
        mixture: Float64 = server["mixture"]["lambda"].cpu().numpy()
        # Never quite 0: a round whose clients all have lambda = 0 would teach nobody anything.
        return np.maximum(mixture[replies.roster.clients], 1e-9) * extent
