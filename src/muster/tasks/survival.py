"""Survival analysis: time to an event, by Cox's partial likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..base.checks import require
from ..base.lazy import torch
from ..base.registry import part
from . import scores as metrics
from .task import SetFunction, StandardTask, Task, find_first_wrong

if TYPE_CHECKING:
    from torch import Tensor


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
