"""Effort: the number of local steps of each asked client."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from ..base.arrays import Float64, Int64
from ..base.params import State
from ..base.registry import part
from ..protocol import Roster


class Effort(Protocol):
    """The number of local steps of each asked client.

    An effort that uses the server's state names the tables it needs in a field `needs`; the step
    must keep them (`Step.keeps`).
    """

    @abstractmethod
    def __call__(self, roster: Roster, steps: Int64, server: State) -> Int64:
        """Return the number of local steps that each client is to take.

        Args:
            roster: the clients asked, one entry each: `clients` (places in the population),
                `priority`, `importance` (a_k), `share` (p_k)
            steps: the steps that `Local` asks of each
            server: the server's state: tables of tensors, by name

        Returns:
            one whole number for each client, at least 1
        """
        ...


@part(Effort, "as_asked")
@dataclass(frozen=True)
class AsAsked:
    """The number of steps that `Local` asks of each client."""

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
