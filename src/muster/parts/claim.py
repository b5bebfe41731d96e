"""Claim: the one number a client computes from private facts, and sends with its reply.

Runs on the client. Its requirement rho_k never leaves it; what the server sees is the claim.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike

from ..base.arrays import Float64
from ..base.checks import check_whole
from ..base.lazy import torch
from ..base.registry import part
from ..protocol import Appraisal


class Claim(Protocol):
    """A number that each client computes from private facts, and sends with its reply.

    Write one by inheriting from this class; only `__call__` has no default.
    """

    @property
    def needs_requirement(self) -> bool:
        """True if the claim uses the client's appraisal and its requirement rho_k."""
        return True

    @property
    def most(self) -> float:
        """The largest number an honest client can claim (the least is 0): others are refused. NaN:
        clients claim nothing."""
        return 1.0

    @abstractmethod
    def __call__(self, appraisal: Appraisal, requirement: Float64) -> Float64:
        """Return the number each client sends with its reply.

        Args:
            appraisal: each client's measure of the offered model: `loss` (F_k(w)), `score`
            requirement: rho_k, the loss that a model must beat to be of use to each client

        Returns:
            one number for each client, from 0 to `most`; NaN where there is no measurement
        """
        ...


@part(Claim, "nothing")
@dataclass(frozen=True)
class Nothing:
    """No claim: the server uses what it knows itself."""

    needs_requirement: ClassVar[bool] = False
    most: ClassVar[float] = float("nan")

    def __call__(self, appraisal: Appraisal, requirement: Float64) -> Float64:
        return np.full(len(requirement), np.nan)


def appeal_weight(gap: ArrayLike) -> Float64:
    """`q_k = s (1 - s)`, `s = sigmoid(gap)`, `gap = F_k(w) - rho_k` (MaxFL eq. 4, Fig. 3).

    Largest, 0.25, where the gap is 0; even in the gap; NaN where the gap is NaN.

    >>> appeal_weight([0.0, 1e6, -1e6]).tolist()
    [0.25, 0.0, 0.0]
    """
    x = torch.from_numpy(np.array(gap, np.float64))
    # 1 - s is the sigmoid of -gap; the subtraction itself would be 0 from a gap of 37 on.
    return np.asarray((torch.sigmoid(x) * torch.sigmoid(-x)).numpy(), np.float64)


@part(Claim, "appeal")
@dataclass(frozen=True)
class Appeal:
    """`q_k = s (1 - s)`, `s = sigmoid(F_k(w) - rho_k)` (MaxFL eq. 4): largest, 0.25, where the
    model just meets the requirement; close to 0 where it is far from it on either side."""

    needs_requirement: ClassVar[bool] = True
    most: ClassVar[float] = 0.25

    def __call__(self, appraisal: Appraisal, requirement: Float64) -> Float64:
        return appeal_weight(appraisal.loss - requirement)


@part(Claim, "unmet")
@dataclass(frozen=True)
class Unmet:
    """1 when the model does not meet the requirement, `F_k(w) >= rho_k`, else 0."""

    needs_requirement: ClassVar[bool] = True
    most: ClassVar[float] = 1.0

    def __call__(self, appraisal: Appraisal, requirement: Float64) -> Float64:
        # NaN, which is no measurement at all, stays NaN for the guard to refuse.
        return np.where(np.isnan(appraisal.loss), np.nan, appraisal.loss >= requirement)


@part(Claim, "spread")
@dataclass(frozen=True)
class Spread:
    """v_k, how far a client's reply is from the reply of unlimited rows, as its folds show it.

    Clients of the objective train on disjoint folds of their rows and reply with the mean; v_k is
    the squared distance between the folds' models (`muster.run.folds`). Others claim 0. Of a model
    of several layers the shares of the layers travel next to it.

    Attributes:
        folds: into how many a client's rows are split
    """

    folds: int = 2
    needs_requirement: ClassVar[bool] = False
    most: ClassVar[float] = 1e30  # the square of what a weight may be

    def __post_init__(self) -> None:
        check_whole("folds", self.folds, 2)

    def __call__(self, appraisal: Appraisal, requirement: Float64) -> Float64:
        """Training computes it, not an appraisal."""
        return np.full(len(requirement), np.nan)
