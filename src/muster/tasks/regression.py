"""Regression tasks: squared error, Huber and Poisson."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Float64
from ..base.checks import check_above
from ..base.lazy import functional
from ..base.registry import part
from . import scores as metrics
from .task import SMALL, RowFunction, SetFunction, StandardTask, Task, find_first_wrong

if TYPE_CHECKING:
    from torch import Tensor


def _as_column(z: Tensor, y: Tensor) -> Tensor:
    """Return targets in the shape of the outputs: one number for each row is a row of one."""
    return (y if y.dim() == z.dim() else y.unsqueeze(-1)).to(z.dtype)


def _r2(z: NDArray[Any], y: NDArray[Any], w: Float64) -> float:
    return metrics.r2(y.astype(np.float64), z.astype(np.float64), w)


class NumberTask(StandardTask):
    """Shared parts of regressions: targets are numbers, as many outputs as there are in each row,
    and a row's loss is the mean over them. The constant guess is their mean."""

    row_scores: ClassVar[Mapping[str, RowFunction]] = {
        "mae": lambda z, y: (z - _as_column(z, y)).abs().mean(-1)
    }
    set_scores: ClassVar[Mapping[str, SetFunction]] = {"r2": _r2}

    def guess(self, y: Tensor, classes: int = 0) -> Tensor:
        return y.double().reshape(len(y), -1).mean(0, keepdim=True)


@part(Task, "regression")
@dataclass(frozen=True)
class Regression(NumberTask):
    """Numbers: squared error `(z - y)^2`.

    Attributes:
        scores: r2, mae
    """

    scores: tuple[str, ...] = ("r2", "mae")

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        return (z - _as_column(z, y)).square().mean(-1)


@part(Task, "huber")
@dataclass(frozen=True)
class Huber(NumberTask):
    """Regression that is robust to outliers: `(z - y)^2 / 2` up to `delta`, from there on
    `delta (|z - y| - delta / 2)`.

    Attributes:
        scores: r2, mae
    """

    delta: float = 1.0
    scores: tuple[str, ...] = ("r2", "mae")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_above("delta", self.delta)

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        y = _as_column(z, y)
        return functional.huber_loss(z, y, reduction="none", delta=self.delta).mean(-1)


@part(Task, "poisson")
@dataclass(frozen=True)
class Poisson(NumberTask):
    """Counts with mean `exp(z)`: `exp(z) - y z`, which may be below 0; with `full` the term in y
    alone too, by Stirling, as torch has it.

    Attributes:
        scores: mae and r2, of `exp(z)`
    """

    full: bool = False
    scores: tuple[str, ...] = ("mae", "r2")
    least: ClassVar[float] = -float("inf")
    row_scores: ClassVar[Mapping[str, RowFunction]] = {
        "mae": lambda z, y: (z.exp() - _as_column(z, y)).abs().mean(-1)
    }
    set_scores: ClassVar[Mapping[str, SetFunction]] = {
        "r2": lambda z, y, w: _r2(np.exp(z.astype(np.float64)), y, w)
    }

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        return functional.poisson_nll_loss(
            z, _as_column(z, y), log_input=True, full=self.full, reduction="none"
        ).mean(-1)

    def find_invalid_target(self, y: Tensor, outputs: int = 0) -> tuple[int, str] | None:
        return find_first_wrong(y, y < 0, "target {}; counts are 0 or more")

    def guess(self, y: Tensor, classes: int = 0) -> Tensor:
        return super().guess(y).clamp(min=SMALL).log()
