"""The population of clients without their rows: all that a server needs to know of them.

A server across a network has a `Population` and no rows. A simulation's federation has both. The
roles that users give to clients are checked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
        ids: number that keys a client's randomness: the same wherever it runs
        priority: True for priority clients, P
        importance: a_k, each client's weight in the objective: 1 for priority clients
        unseen: True for clients that never train and only evaluate the model
        sizes: D_k, training rows of each client; 0 for a client that did not enrol
        names: names of the clients, where the data has them
        counted: rows of each client that count in p_k, where the server sets that itself
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
        """Number of clients, N."""
        return len(self.ids)

    def get_name(self, k: int) -> str:
        """Return a client's name, or else its number."""
        return str(k if self.names is None else self.names[k])

    @property
    def rows(self) -> Int64:
        """D_k as it counts in p_k: the client's rows, or the number the server sets."""
        return self.sizes if self.counted is None else self.counted

    @cached_property
    def takes_part(self) -> Bool:
        """True for clients that take part."""
        return ~self.unseen

    @cached_property
    def participants(self) -> Int64:
        """The clients that take part."""
        return np.flatnonzero(self.takes_part)

    @cached_property
    def members(self) -> Int64:
        """The clients with a weight in the objective."""
        return np.flatnonzero(self.objective > 0)

    @cached_property
    def share(self) -> Float64:
        """`p_k = D_k / sum_i a_i D_i` of every client (eq. 5): priority shares sum to 1 when
        no other client has importance, and the others' shares come on top."""
        rows = self.rows.astype(np.float64)
        return rows / float(self.importance @ rows)

    @cached_property
    def objective(self) -> Float64:
        """`a_k p_k`: each client's weight in the objective F. They sum to 1."""
        return self.importance * self.share

    @cached_property
    def others(self) -> Float64:
        """Each client's share of the data among the other (non-priority) clients that take part:
        they sum to 1, or are all 0 where there is no such client."""
        rows = np.where(self.priority | self.unseen, 0, self.rows).astype(np.float64)
        return rows / max(float(rows.sum()), 1.0)


def check_role(who: str, priority: bool, importance: float, unseen: bool) -> None:
    """Refuse a role that no client can have."""
    check_share(f"{who}.importance", importance)
    if priority and unseen:
        raise MusterError(f"{who}: priority and unseen; a priority client takes part")


class RowSpec(Protocol):
    """The shape of the rows and targets a model is built for."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        ...

    @property
    def classes(self) -> int:
        """Number of classes; 0: targets are numbers."""
        ...

    @property
    def image(self) -> tuple[int, ...] | None:
        """The shape of a row as an image, where it is a flattened one."""
        ...

    @property
    def target(self) -> tuple[int, ...]:
        """The shape of one target; () where it is one number or class."""
        ...

    @property
    def pad(self) -> int | None:
        """The token that pads shorter texts, where that is known."""
        ...

    def example(self) -> Tensor:
        """Return one row, as a batch of one, to try a model on."""
        ...


@dataclass(frozen=True)
class RowShape:
    """A `RowSpec` of rows that are elsewhere.

    Attributes:
        shape: shape of one row
        classes: number of classes; 0: targets are numbers
        image: shape of a row as an image, where it is a flattened one
        target: shape of one target
        whole: True if features are whole numbers (tokens)
        pad: the token that pads shorter texts
    """

    shape: tuple[int, ...]
    classes: int
    image: tuple[int, ...] | None = None
    target: tuple[int, ...] = ()
    whole: bool = False
    pad: int | None = None

    def example(self) -> Tensor:
        """Return a row of zeros."""
        return torch.zeros(1, *self.shape, dtype=torch.int64 if self.whole else None)


def as_mask(given: ArrayLike, n: int, field: str) -> Bool:
    """Return indices of clients, or a mask over them, as a mask."""
    array = np.asarray(given)
    if array.dtype == np.bool_:
        if array.shape != (n,):
            raise MusterError(f"{field}: a mask needs one value for each of {n} clients")
        return array.copy()
    if array.ndim == 0 and array.dtype.kind in "iu":
        raise MusterError(
            f"{field}: {array}; give client indices: [{array}] for that client, range({array}) for "
            "the first ones"
        )
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise MusterError(f"{field}: give client indices, such as [0, 1]")
    wrong = array[(array < 0) | (array >= n)]
    if len(wrong):
        raise MusterError(f"{field}: no client {wrong[0]}; allowed: 0 to {n - 1}")
    mask = np.zeros(n, np.bool_)
    mask[array.astype(np.int64)] = True
    return mask


def as_priority(priority: ArrayLike | None, unseen: Bool) -> Bool:
    """Return the priority clients as a mask; None means everyone who may take part."""
    if unseen.all():
        raise MusterError("unseen: every client is unseen; somebody has to train")
    if priority is None:
        return ~unseen
    mask = as_mask(priority, len(unseen), "priority")
    if not mask.any():
        raise MusterError("priority: no priority client; name at least one, or omit for all")
    if (mask & unseen).any():
        k = int(np.flatnonzero(mask & unseen)[0])
        raise MusterError(f"priority: client {k} is unseen; a priority client takes part")
    return mask


def as_importance(importance: ArrayLike, priority: Bool) -> Float64:
    """Return each client's weight a_k in the objective: 1 for priority, [0, 1] for the others."""
    a = np.asarray(importance, np.float64)
    if a.ndim > 1 or (a.ndim == 1 and a.shape != priority.shape):
        raise MusterError(f"importance: give one number or one for each of {len(priority)} clients")
    a = np.broadcast_to(a, priority.shape)
    wrong = np.flatnonzero(~((a >= 0) & (a <= 1)) & ~priority)
    if len(wrong):
        raise MusterError(
            f"importance: {a[wrong[0]]} for client {wrong[0]}; allowed: 0 (plain PFL) to 1"
        )
    return np.where(priority, 1.0, a)


def as_requirement(requirement: ArrayLike | None, n: int) -> Float64 | None:
    """Return each client's requirement rho_k: the loss it asks the model to stay below."""
    if requirement is None:
        return None
    try:
        rho = np.asarray(requirement, np.float64)
    except (TypeError, ValueError):
        raise MusterError("requirement: give one number for each client") from None
    if rho.shape != (n,):
        raise MusterError(f"requirement: give one number for each of {n} clients; got {rho.shape}")
    if not np.isfinite(rho).all():
        k = int(np.flatnonzero(~np.isfinite(rho))[0])
        raise MusterError(f"requirement: {rho[k]} for client {k}; a requirement must be finite")
    return rho
