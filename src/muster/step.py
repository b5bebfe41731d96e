"""Step: combine the admitted replies and move the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from . import params
from .params import Params
from .rng import Float64


class Step(Protocol):
    """From the model and the weighed replies to the next model."""

    def __call__(
        self, model: Params, stack: Params, weight: Float64, server: Params
    ) -> tuple[Params, Params]:
        """The next model and the server's next state. Every weight is positive."""
        ...


@dataclass(frozen=True)
class Average:
    """`w' = sum_k weight_k w_k / sum_k weight_k`, over the admitted (Algorithm 1, step 5)."""

    def __call__(
        self, model: Params, stack: Params, weight: Float64, server: Params
    ) -> tuple[Params, Params]:
        return params.mean(stack, weight), server


@dataclass(frozen=True)
class Stay:
    """The model does not move: clients work on their own."""

    def __call__(
        self, model: Params, stack: Params, weight: Float64, server: Params
    ) -> tuple[Params, Params]:
        return model, server
