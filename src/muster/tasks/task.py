"""The `Task` role: the loss of a row, the scores to report, and the outputs a model needs.

Both engines take loss and scores from the task alone: cross-entropy and accuracy are `Multiclass`,
one task among others.

Outputs and targets may have any axes before that of the rows (clients, in the stacked engine),
so a task is written once, over a leading client axis, like every other part. A client's loss is
the mean over its rows, weighted where they have weights; the one exception is a task whose loss
ties rows together (`Survival`), which gives the loss of a whole set of rows (`set_loss`).

Here are the role, what muster's own tasks share, and custom losses; the tasks themselves are in
`classification` and `regression`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Float64
from ..base.checks import check_above, check_share
from ..base.errors import MusterError, unknown_name
from ..base.lazy import torch
from ..federation import RowSpec
from .scores import Score, get_score

if TYPE_CHECKING:
    from torch import Tensor

Targets = Literal["classes", "numbers"]
RowFunction: TypeAlias = "Callable[[Tensor, Tensor], Tensor]"
SetFunction: TypeAlias = "Callable[[NDArray[Any], NDArray[Any], Float64], float]"

SMALL = 1e-12  # the least probability that a guess gives a class or label


@runtime_checkable
class Task(Protocol):
    """The loss and the score of a row.

    Attributes:
        score_name: name of the score
        cross_entropy: True if a row's loss is exactly -log softmax(z)_y: then engines may use a
            gradient in closed form

    Muster's own tasks know more (`StandardTask`): several scores, scores of all rows together, a
    loss that is no mean over rows, the best constant guess. A user's task need not.
    """

    @property
    def score_name(self) -> str:
        """Name of the score."""
        ...

    @property
    def cross_entropy(self) -> bool:
        """True if a row's loss is exactly -log softmax(z)_y."""
        ...

    def outputs(self, classes: int) -> int:
        """Return the number of outputs a model needs for data of this many classes (for number
        targets: numbers in each row); 0: any."""
        ...

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        """Return each row's loss `[..., rows]`, differentiable, from a model's outputs
        `[..., rows, outputs]` and the targets `[..., rows]`."""
        ...

    def score(self, z: Tensor, y: Tensor) -> Tensor:
        """Return each row's score `[..., rows]`, from the same as the loss; higher is better."""
        ...


class StandardTask:
    """The base class of muster's own tasks.

    Attributes:
        scores: names of the scores to report; `criterion="score"` compares the first
        smoothing: label smoothing, where the task has it
        weights: weights of classes or labels in the loss, where the task has them
        row_scores: scores that are means over rows, as functions of outputs and targets;
            `perplexity` is the exponential of one
        set_scores: scores of all rows together, as functions of outputs, targets and row weights
        targets: kind of the targets: classes, or numbers
        averages_rows: True if a client's loss is the mean of its rows' losses
        least: lower bound of the loss
        axes: number of axes of the outputs for one row
    """

    scores: tuple[str, ...]
    smoothing: float = 0.0
    weights: tuple[float, ...] = ()
    row_scores: ClassVar[Mapping[str, RowFunction]] = {}
    set_scores: ClassVar[Mapping[str, SetFunction]] = {}
    targets: ClassVar[Targets] = "numbers"
    averages_rows: ClassVar[bool] = True
    least: ClassVar[float] = 0.0
    axes: ClassVar[int] = 1
    cross_entropy = False

    def __post_init__(self) -> None:
        have = [*self.row_scores, *self.set_scores]
        if not self.scores:
            raise MusterError(f"scores: none; name at least one of {', '.join(have)}")
        for name in self.scores:
            if name not in have:
                raise unknown_name("score", str(name), have)
        if len(set(self.scores)) < len(self.scores):
            raise MusterError(f"scores: {', '.join(self.scores)}; name each once")
        check_share("smoothing", self.smoothing)
        for weight in self.weights:
            check_above("weights", weight)

    @property
    def score_name(self) -> str:
        return self.scores[0]

    def outputs(self, classes: int) -> int:
        return classes

    def score(self, z: Tensor, y: Tensor) -> Tensor:
        """Return each row's part of the first score, where that is a mean over rows."""
        return self.row_scores[self.score_name](z, y)

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        """Return each row's loss."""
        raise NotImplementedError

    @property
    def has_slope(self) -> bool:
        """True if `slope` knows the derivative of a row's loss in closed form."""
        return False

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        """Return the derivative of each row's loss with respect to the outputs, in their shape."""
        raise NotImplementedError

    def set_loss(self, z: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Return the loss of each set of rows, `[...]`, by row weights; 0 for padding."""
        return (self.loss(z, y) * weight).sum(-1) / weight.sum(-1)

    def has_no_loss(self, y: Tensor) -> bool:
        """Return True if rows with these targets have no loss, as survival without an event."""
        return False

    def find_invalid_target(self, y: Tensor, outputs: int = 0) -> tuple[int, str] | None:
        """Return the first row with an invalid target, and the reason; None if there is none.
        `outputs` is the number of the model's outputs, where that is known."""
        return None

    def guess(self, y: Tensor, classes: int = 0) -> Tensor:
        """Return the constant outputs `[1, outputs]` with the least loss (or nearly so) on these
        targets: a baseline for the model. `classes` is the number of classes, if there are any."""
        raise NotImplementedError


def as_weights(given: tuple[float, ...], z: Tensor) -> Tensor | None:
    """Return a weight for each output, or None where there are none."""
    if not given:
        return None
    if len(given) != z.shape[-1]:
        raise MusterError(f"weights: {len(given)} for {z.shape[-1]} outputs; give one for each")
    return torch.tensor(given, dtype=z.dtype, device=z.device)


def find_first_wrong(y: Tensor, wrong: Tensor, what: str) -> tuple[int, str] | None:
    """Return the first row that has a wrong number, and the message about it."""
    rows = wrong.reshape(len(y), -1)
    if not bool(rows.any()):
        return None
    row = int(rows.any(1).int().argmax())
    number = y.reshape(len(y), -1)[row, int(rows[row].int().argmax())].item()
    return row, what.format(f"{number:g}")


@dataclass(frozen=True)
class Custom:
    """A task with the user's own loss.

    Attributes:
        row_loss: torch function of outputs `[rows, outputs]` and targets `[rows]` that returns the
            loss of each row `[rows]`
        row_score: the same for a score; default: minus the loss
        name: name of the score
        higher: True if a higher score is better; default: as for the known score of that name, else
            True
        needs: number of outputs a model must have; 0: any number
        axes: number of axes of the outputs for one row
        targets: "classes" or "numbers"
    """

    row_loss: RowFunction
    row_score: RowFunction | None = None
    name: str = "minus_loss"
    higher: bool | None = None
    needs: int = 0
    axes: int = 1
    targets: Targets = "numbers"
    cross_entropy: ClassVar[bool] = False
    least: ClassVar[float] = -float("inf")

    @property
    def score_name(self) -> str:
        return self.name

    def outputs(self, classes: int) -> int:
        return self.needs

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        return self._each(self.row_loss, z, y)

    def score(self, z: Tensor, y: Tensor) -> Tensor:
        if self.row_score is None:
            return -self.loss(z, y)
        return self._each(self.row_score, z, y)

    def _each(self, function: RowFunction, z: Tensor, y: Tensor) -> Tensor:
        """Apply a function of rows; axes before that of the rows are flattened into it."""
        shape = z.shape[: z.dim() - self.axes]
        flat = function(z.flatten(0, len(shape) - 1), y.flatten(0, len(shape) - 1))
        if flat.shape != (shape.numel(),):
            raise MusterError(
                f"task {_path(function)}: gives {tuple(flat.shape)} for {shape.numel()} rows; give "
                'the loss of each row (reduction="none"), not their mean'
            )
        return flat.view(shape)

    def __repr__(self) -> str:
        return f"Custom({_path(self.row_loss)}, {_path(self.row_score)}, {self.name})"


def as_task(given: Any) -> Task:
    """Return a task, or a function of the loss of each row as one."""
    if isinstance(given, Task):
        return given
    if callable(given) and not isinstance(given, type):
        return Custom(given)
    raise MusterError(
        f"task: {type(given).__name__}; give one of muster.tasks, or a function of outputs and "
        "targets that gives the loss of each row"
    )


def averages_rows(task: Task) -> bool:
    """Return True if a client's loss is the mean of its rows' losses."""
    return bool(getattr(task, "averages_rows", True))


def is_cross_entropy(task: Task) -> bool:
    """Return True if a row's loss is exactly -log softmax(z)_y, and rows are averaged."""
    return bool(task.cross_entropy) and _states(task, "cross_entropy")


def has_slope(task: Task) -> bool:
    """Return True if a task knows the derivative of a row's loss in closed form (`slope`), and
    rows are averaged."""
    return bool(getattr(task, "has_slope", False)) and _states(task, "slope")


def _states(task: Task, fact: str) -> bool:
    """True if a fact about the loss is of the task's own loss, not of one that a subclass or the
    object itself has replaced."""
    if not averages_rows(task):
        return False
    for where in (task, *type(task).__mro__):
        stated = vars(where).keys() if hasattr(where, "__dict__") else ()
        if fact in stated or "loss" in stated:
            return fact in stated
    return True  # the task passes its attributes on


def least_loss(task: Task) -> float:
    """Return the lower bound of the loss."""
    return float(getattr(task, "least", 0.0))


def target_kind(task: Task) -> Targets | None:
    """Return the kind of the targets; None where the task does not state it."""
    return getattr(task, "targets", None)


def target_size(of: RowSpec) -> int:
    """Return the number of classes, or for number targets, of numbers in each row."""
    return of.classes or int(np.prod(of.target, dtype=np.int64))


class Scoring:
    """The scores of a task, and the functions that compute them.

    Attributes:
        scores: the scores, in the task's order
        first: the score that `criterion="score"` compares
        row_scores: (position, function) of scores that are means over rows
        set_scores: (position, function) of scores of all rows together
    """

    def __init__(self, task: Task) -> None:
        names: tuple[str, ...] | None = getattr(task, "scores", None)
        self.scores: tuple[Score, ...]
        self.row_scores: list[tuple[int, RowFunction]]
        self.set_scores: list[tuple[int, SetFunction]] = []
        if names is None:
            one = get_score(re.sub(r"\W+", "_", task.score_name))
            if one.name == "loss":
                raise MusterError("score: 'loss' is the name of the loss; choose another name")
            higher = getattr(task, "higher", None)
            self.scores = (one if higher is None else replace(one, higher=higher),)
            self.first = self.scores[0]
            self.row_scores = [(0, task.score)]
            return
        assert isinstance(task, StandardTask), "a task with several scores has their functions"
        self.scores = tuple(get_score(name) for name in names)
        self.first = self.scores[0]
        at = list(enumerate(names))
        row, both = task.row_scores, task.set_scores
        self.row_scores = [(i, row[name]) for i, name in at if name in row]
        self.set_scores = [(i, both[name]) for i, name in at if name in both]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the scores, the first one compared by `criterion="score"`."""
        return tuple(score.name for score in self.scores)

    def from_mean(self, i: int, mean: Float64) -> Float64:
        """Return a score from its mean over rows."""
        return np.exp(mean) if self.scores[i].name == "perplexity" else mean


def _path(what: object) -> str:
    name = getattr(what, "__qualname__", None)
    return f"{getattr(what, '__module__', '')}:{name}" if name else repr(what)
