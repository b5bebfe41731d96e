"""Who there is, apart from what they hold: all that a server needs to know of its clients.

A server across a network has a `Population` and no rows. A simulation's federation has both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Bool, Float64, Int64
from ..base.checks import check_share
from ..base.errors import MusterError
from ..base.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Population:
    """The clients of a run; every array has one entry per client.

    Attributes:
        ids: the number by which a client's randomness is keyed: the same wherever it runs
        priority: the clients the model is for, P
        importance: a_k, each client's weight in the objective: 1 for priority clients
        unseen: clients that never train and only judge the model
        sizes: D_k, how many training rows each has; 0 for a client that did not come
        names: what clients are called, where the data says so
        counted: how many of those rows count in p_k, where a server goes by its own word
    """

    ids: Int64
    priority: Bool
    importance: Float64
    unseen: Bool
    sizes: Int64
    names: NDArray[np.str_] | None = None
    counted: Int64 | None = None

    @property
    def n(self) -> int:
        """How many clients there are, N."""
        return len(self.ids)

    def called(self, k: int) -> str:
        """What a client is called: its name, or else its number."""
        return str(k if self.names is None else self.names[k])

    @property
    def rows(self) -> Int64:
        """D_k as it counts: what a client has, or what a server lets it count for."""
        return self.sizes if self.counted is None else self.counted

    @cached_property
    def share(self) -> Float64:
        """`p_k = D_k / sum_i a_i D_i` of every client (eq. 5): priority shares sum to 1 when
        no other client has importance, and the others come on top."""
        rows = self.rows.astype(np.float64)
        return rows / float(self.importance @ rows)

    @cached_property
    def objective(self) -> Float64:
        """`a_k p_k`: each client's weight in the objective F. They sum to 1."""
        return self.importance * self.share

    @cached_property
    def others(self) -> Float64:
        """Each client's share of the data among those that take part and are no priority clients:
        they sum to 1, or are all 0 where there is no such client."""
        rows = np.where(self.priority | self.unseen, 0, self.rows).astype(np.float64)
        return rows / max(float(rows.sum()), 1.0)


def check_role(who: str, priority: bool, importance: float, unseen: bool) -> None:
    """Refuse what one client cannot be."""
    check_share(f"{who}.importance", importance)
    if priority and unseen:
        raise MusterError(f"{who}: priority and unseen; a priority client takes part")


class RowSpec(Protocol):
    """Rows a model has to fit, at hand or elsewhere."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        ...

    @property
    def classes(self) -> int:
        """How many classes the labels have; 0: targets are numbers."""
        ...

    @property
    def image(self) -> tuple[int, ...] | None:
        """The shape of a row as an image, where it is one and lies flat."""
        ...

    @property
    def target(self) -> tuple[int, ...]:
        """The shape of one target; () where it is one number or class."""
        ...

    @property
    def pad(self) -> int | None:
        """The token that shorter texts were filled up with, where that is known."""
        ...

    def example(self) -> Tensor:
        """One row, as a batch of one, for a model to be tried on."""
        ...


@dataclass(frozen=True)
class RowShape:
    """Rows that are elsewhere: their shape, also as an image, their number of classes, the shape of
    a target, whether features are whole numbers (tokens), and which of these is `Shaped.pad`."""

    shape: tuple[int, ...]
    classes: int
    image: tuple[int, ...] | None = None
    target: tuple[int, ...] = ()
    whole: bool = False
    pad: int | None = None

    def example(self) -> Tensor:
        """A row of zeros."""
        return torch.zeros(1, *self.shape, dtype=torch.int64 if self.whole else None)
