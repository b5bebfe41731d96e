"""Task: what a model is to be good at, and how that is counted.

A task says what the loss of a row is, what its score is, and how many outputs a model needs for
it. Both engines ask it and nobody else: cross-entropy and accuracy are `Multiclass`, one task
among others.

Outputs and targets may have any axes before that of the rows (clients, in the stacked engine),
so a task is written once, over a leading client axis, like every other part. A client's loss is
the mean over its rows, weighted where they have weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from ..lazy import functional
from ..registry import part

if TYPE_CHECKING:
    from torch import Tensor


@runtime_checkable
class Task(Protocol):
    """What the loss and the score of a row are.

    score_name     what the score is called
    cross_entropy  whether a row's loss is exactly -log softmax(z)_y: then engines may take a
                   gradient that was worked out by hand
    """

    @property
    def score_name(self) -> str:
        """What the score is called."""
        ...

    @property
    def cross_entropy(self) -> bool:
        """Whether a row's loss is exactly -log softmax(z)_y."""
        ...

    def outputs(self, classes: int) -> int:
        """How many outputs a model needs for data of this many classes."""
        ...

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        """Each row's loss `[..., rows]`, from a model's outputs `[..., rows, outputs]` and the
        targets `[..., rows]`. It can be differentiated."""
        ...

    def score(self, z: Tensor, y: Tensor) -> Tensor:
        """Each row's score `[..., rows]`; more is better."""
        ...


@part(Task, "multiclass")
@dataclass(frozen=True)
class Multiclass:
    """One of several classes: cross-entropy `-log softmax(z)_y`, and accuracy `argmax z = y`."""

    score_name: ClassVar[str] = "accuracy"
    cross_entropy: ClassVar[bool] = True

    def outputs(self, classes: int) -> int:
        return classes

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        flat = functional.cross_entropy(z.flatten(0, -2), y.flatten(), reduction="none")
        return flat.view(y.shape)

    def score(self, z: Tensor, y: Tensor) -> Tensor:
        return z.argmax(-1) == y
