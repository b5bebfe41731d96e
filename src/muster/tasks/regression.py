"""Regression tasks: squared error, Huber, Poisson, and survival by Cox's partial likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Float64
from ..base.checks import check_above, require
from ..base.lazy import functional, torch
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

    @property
    def has_slope(self) -> bool:
        return True

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        """Return `2 (z - y)`, over the number of outputs."""
        return (z - _as_column(z, y)).mul_(2.0 / z.shape[-1])


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


@part(Task, "survival")
@dataclass(frozen=True)
class Survival(StandardTask):
    """Time to an event: Cox's partial likelihood (Breslow for ties). A target is (time, event),
    with event 1 where it happened then and 0 where the row was last seen then; the output is the
    log risk. Of a set of rows the loss is

    `-1/|events| sum over events i of (z_i - log sum over j with time_j >= time_i of exp(z_j))`

    It ties rows together, so it is no mean over rows. In training the set is the batch: whom an
    event is compared with are the batch's rows (take batches large enough to hold events; one
    without has a loss of 0). A client's loss, by which it decides, is that of all its rows; without
    an event among them it has none. Rows of two clients are never compared.

    Attributes:
        scores: c_index (Harrell)
    """

    scores: tuple[str, ...] = ("c_index",)
    averages_rows: ClassVar[bool] = False
    set_scores: ClassVar[Mapping[str, SetFunction]] = {
        "c_index": lambda z, y, w: metrics.c_index(
            y[:, 0].astype(np.float64),
            y[:, 1] > 0.5,
            z.reshape(len(z), -1)[:, 0].astype(np.float64),
            w,
        )
    }

    def outputs(self, classes: int) -> int:
        require(classes == 2, "task survival: numbers in a target", classes, "2, (time, event)")
        return 1

    def find_invalid_target(self, y: Tensor, outputs: int = 0) -> tuple[int, str] | None:
        if y.shape[1:] != (2,):
            return None  # `outputs` reports it
        time, event = y[:, 0], y[:, 1]
        other = (event != 0) & (event != 1)
        return find_first_wrong(time, time < 0, "time {}; times are 0 or more") or find_first_wrong(
            event, other, "event {}; it is 1 where it happened, else 0"
        )

    def has_no_loss(self, y: Tensor) -> bool:
        return not bool((y[..., 1] > 0.5).any())

    def set_loss(self, z: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Return the loss of each set of rows: `[...]` from `[..., rows, 1]`, `[..., rows, 2]` and
        `[..., rows]`, where a weight of 0 marks padding."""
        counts = weight > 0
        weight = weight * (counts.sum(-1) / weight.sum(-1)).unsqueeze(-1)
        # From the latest time to the earliest, padding last: whoever is at risk comes first.
        time = torch.where(counts, y[..., 0].double(), -float("inf"))
        time, order = time.sort(dim=-1, descending=True, stable=True)
        risk, w = z.squeeze(-1).gather(-1, order), weight.gather(-1, order)
        event = (y[..., 1].to(z.dtype).gather(-1, order) > 0.5) * w
        weighed = risk + torch.where(w > 0, w, 1.0).log()
        at_risk = torch.logcumsumexp(weighed, -1)
        # Rows of the same time are at risk together: up to the last of them.
        last = torch.searchsorted(-time.contiguous(), -time.contiguous(), right=True) - 1
        terms = event * (at_risk.gather(-1, last.clamp(min=0)) - risk)
        events = event.sum(-1)
        return terms.sum(-1) / torch.where(events > 0, events, 1.0)

    def guess(self, y: Tensor, classes: int = 0) -> Tensor:
        return torch.zeros(1, 1, dtype=torch.float64)
