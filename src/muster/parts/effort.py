"""Effort: how many local steps each asked client is to take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from ..base.arrays import Float64, Int64
from ..base.params import State
from ..base.registry import part
from ..protocol import Roster


class Effort(Protocol):
    """Steps for each asked client."""

    def __call__(self, roster: Roster, steps: Int64, server: State) -> Int64:
        """From the steps `Local` asks of each to the steps each is to take."""
        ...


@part(Effort, "as_asked")
@dataclass(frozen=True)
class AsAsked:
    """As many steps as `Local` asks of each."""

    def __call__(self, roster: Roster, steps: Int64, server: State) -> Int64:
        return steps


@part(Effort, "by_weight")
@dataclass(frozen=True)
class ByWeight:
    """The same work in all, divided in proportion to the server's multiplicative weights; at
    least one step each (MW-Fed, Blum et al. 2021)."""

    needs: ClassVar[tuple[str, ...]] = ("multiplicative",)  # of what the step keeps

    def __call__(self, roster: Roster, steps: Int64, server: State) -> Int64:
        weight: Float64 = server["multiplicative"]["weight"].cpu().numpy()[roster.clients]
        share = weight / weight.sum()
        return np.asarray(np.maximum(1, np.rint(share * steps.sum())), np.int64)
