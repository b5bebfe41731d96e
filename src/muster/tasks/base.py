"""Task: what a model is to be good at, and how that is counted.

A task says what the loss of a row is, what scores are reported, and how many outputs a model needs
for it. Both engines ask it and nobody else: cross-entropy and accuracy are `Multiclass`, one task
among others.

Outputs and targets may have any axes before that of the rows (clients, in the stacked engine),
so a task is written once, over a leading client axis, like every other part. A client's loss is
the mean over its rows, weighted where they have weights; the one exception is a task whose loss
ties rows together (`Survival`), which gives the loss of a whole set of rows (`of_rows`).

Here are what a task is, classes, and a loss of one's own; `other_tasks` has the others.
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
from ..base.lazy import functional, torch
from ..base.registry import part
from ..federation import RowSpec
from . import scores as count
from .scores import Score, get_score

if TYPE_CHECKING:
    from torch import Tensor

Targets = Literal["classes", "numbers"]
RowFunction: TypeAlias = "Callable[[Tensor, Tensor], Tensor]"
SetFunction: TypeAlias = "Callable[[NDArray[Any], NDArray[Any], Float64], float]"

SMALL = 1e-12  # the least share of a class or label that a guess gives it


@runtime_checkable
class Task(Protocol):
    """What the loss and the score of a row are.

    Attributes:
        score_name: what the score is called
        cross_entropy: whether a row's loss is exactly -log softmax(z)_y: then engines may take a
            gradient that was worked out by hand

    Our own tasks know more (`Usual`): several scores, scores of all rows together, a loss that is
    no mean over rows, what to guess without a model. A task of one's own need not.
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
        """How many outputs a model needs for data of this many classes, or where targets are
        numbers, of this many in each row; 0: any number."""
        ...

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        """Each row's loss `[..., rows]`, from a model's outputs `[..., rows, outputs]` and the
        targets `[..., rows]`. It can be differentiated."""
        ...

    def score(self, z: Tensor, y: Tensor) -> Tensor:
        """Each row's score `[..., rows]`; more is better."""
        ...


class StandardTask:
    """What our own tasks share. A subclass has a field `scores`, of which the first is the score
    that `criterion="score"` compares.

    Attributes:
        rows: scores that are means over rows, of outputs and targets; `perplexity` is the
            exponential of one
        of_all: scores of all rows together, of outputs, targets and how much each row counts
        targets: what targets are: classes, or numbers
        by_row: whether a client's loss is the mean of its rows'
        least: what no loss is below
        axes: how many axes the outputs for one row have
    """

    scores: tuple[str, ...]
    rows: ClassVar[Mapping[str, RowFunction]] = {}
    of_all: ClassVar[Mapping[str, SetFunction]] = {}
    targets: ClassVar[Targets] = "numbers"
    by_row: ClassVar[bool] = True
    least: ClassVar[float] = 0.0
    axes: ClassVar[int] = 1
    cross_entropy = False

    def __post_init__(self) -> None:
        have = [*self.rows, *self.of_all]
        if not self.scores:
            raise MusterError(f"scores: none; name at least one of {', '.join(have)}")
        for name in self.scores:
            if name not in have:
                raise unknown_name("score", str(name), have)
        if len(set(self.scores)) < len(self.scores):
            raise MusterError(f"scores: {', '.join(self.scores)}; name each once")

    @property
    def score_name(self) -> str:
        return self.scores[0]

    def outputs(self, classes: int) -> int:
        return classes

    def score(self, z: Tensor, y: Tensor) -> Tensor:
        """Each row's part of the first score, where that is a mean over rows."""
        return self.rows[self.score_name](z, y)

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        """Each row's loss."""
        raise NotImplementedError

    def of_rows(self, z: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """The loss of each set of rows, `[...]`, by how much each row counts; 0 for padding."""
        return (self.loss(z, y) * weight).sum(-1) / weight.sum(-1)

    def silent(self, y: Tensor) -> bool:
        """Whether rows with these targets say no loss at all, as survival without an event."""
        return False

    def complaint(self, y: Tensor, outputs: int = 0) -> tuple[int, str] | None:
        """The first row whose target cannot be, and why; None where all can. `outputs` is how many
        the model has, where that is known."""
        return None

    def guess(self, y: Tensor, classes: int = 0) -> Tensor:
        """The outputs `[1, outputs]` that suit these targets best (or nearly so) without any
        features: what a model is to be held against. `classes` is how many there are, where targets
        are classes."""
        raise NotImplementedError


def as_weights(given: tuple[float, ...], z: Tensor, what: str = "weights") -> Tensor | None:
    """A weight for each output, or None where there are none."""
    if not given:
        return None
    if len(given) != z.shape[-1]:
        raise MusterError(f"{what}: {len(given)} for {z.shape[-1]} outputs; give one for each")
    return torch.tensor(given, dtype=z.dtype, device=z.device)


def check_weights(weights: tuple[float, ...]) -> None:
    """Refuse weights that are not above 0."""
    for w in weights:
        check_above("weights", w)


def _multiclass(each: Callable[..., float]) -> SetFunction:
    return lambda z, y, w: count.one_against_rest(each, y, count.softmax(z), w)


def _confidence(z: NDArray[Any], y: NDArray[Any], w: Float64) -> float:
    p = count.softmax(z)
    return count.calibration_error(p.argmax(1) == y, p.max(1), w)


@part(Task, "multiclass")
@dataclass(frozen=True)
class Multiclass(StandardTask):
    """One of several classes: cross-entropy `-log softmax(z)_y`, and accuracy `argmax z = y`.

    Attributes:
        weights: of the classes: a row's loss counts by its class's, as in torch's
            `reduction="none"`; a client's loss is the mean of that over its rows
        smoothing: of the labels: `1 - smoothing + smoothing / C` for the right class, `smoothing /
            C` for the others
        scores: what is reported: accuracy, balanced_accuracy, f1 (macro), auc and average_precision
            (one against the rest, over the classes a client holds), calibration_error
    """

    weights: tuple[float, ...] = ()
    smoothing: float = 0.0
    scores: tuple[str, ...] = ("accuracy",)
    targets: ClassVar[Targets] = "classes"
    rows: ClassVar[Mapping[str, RowFunction]] = {"accuracy": lambda z, y: z.argmax(-1) == y}
    of_all: ClassVar[Mapping[str, SetFunction]] = {
        "balanced_accuracy": lambda z, y, w: count.balanced_accuracy(y, z.argmax(-1), w),
        "f1": lambda z, y, w: count.f1(y, z.argmax(-1), w),
        "auc": _multiclass(count.auc),
        "average_precision": _multiclass(count.average_precision),
        "calibration_error": _confidence,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("smoothing", self.smoothing)
        check_weights(self.weights)

    @property
    def cross_entropy(self) -> bool:  # type: ignore[override]
        return not self.weights and self.smoothing == 0.0

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        flat = z.flatten(0, -2)
        if self.cross_entropy:
            losses = functional.cross_entropy(flat, y.flatten(), reduction="none")
        else:
            losses = functional.cross_entropy(
                flat, y.flatten(), as_weights(self.weights, z), reduction="none",
                label_smoothing=self.smoothing,
            )  # fmt: skip
        return losses.view(y.shape)

    def guess(self, y: Tensor, classes: int = 0) -> Tensor:
        shares = torch.bincount(y, minlength=max(classes, len(self.weights))).double() / len(y)
        shares = (1.0 - self.smoothing) * shares + self.smoothing / len(shares)
        if self.weights:
            shares = shares * torch.tensor(self.weights, dtype=shares.dtype)
            shares = shares / shares.sum()
        return shares.clamp(min=SMALL).log()[None]


@dataclass(frozen=True)
class Custom:
    """A loss of one's own: `loss(z, y)` gives the loss of each row `[rows]`, from outputs
    `[rows, outputs]` and targets `[rows]`, in torch.

    Attributes:
        score: the same for a score; default: minus the loss
        name: what the score is called
        higher: whether more of it is better; default: as the score of that name has it, else yes
        needs: how many outputs a model must have; 0: any number
        axes: how many axes the outputs for one row have

    targets "classes" or "numbers"
    """

    of: RowFunction
    of_score: RowFunction | None = None
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
        return self._each(self.of, z, y)

    def score(self, z: Tensor, y: Tensor) -> Tensor:
        return -self.loss(z, y) if self.of_score is None else self._each(self.of_score, z, y)

    def _each(self, what: RowFunction, z: Tensor, y: Tensor) -> Tensor:
        """It knows rows; whatever axes there are before them are rows too."""
        shape = z.shape[: z.dim() - self.axes]
        flat = what(z.flatten(0, len(shape) - 1), y.flatten(0, len(shape) - 1))
        if flat.shape != (shape.numel(),):
            raise MusterError(
                f"task {_called(what)}: gives {tuple(flat.shape)} for {shape.numel()} rows; give "
                'the loss of each row (reduction="none"), not their mean'
            )
        return flat.view(shape)

    def __repr__(self) -> str:
        return f"Custom({_called(self.of)}, {_called(self.of_score)}, {self.name})"


def as_task(given: Any) -> Task:
    """A task, or a loss of each row as one."""
    if isinstance(given, Task):
        return given
    if callable(given) and not isinstance(given, type):
        return Custom(given)
    raise MusterError(
        f"task: {type(given).__name__}; give one of muster.tasks, or a function of outputs and "
        "targets that gives the loss of each row"
    )


def averages_rows(task: Task) -> bool:
    """Whether a client's loss is the mean of its rows'."""
    return bool(getattr(task, "by_row", True))


def least_loss(task: Task) -> float:
    """What no loss is below."""
    return float(getattr(task, "least", 0.0))


def target_kind(task: Task) -> Targets | None:
    """What targets are; None where the task does not say."""
    return getattr(task, "targets", None)


def target_size(of: RowSpec) -> int:
    """How many classes there are, or where targets are numbers, how many in each row."""
    return of.classes or int(np.prod(of.target, dtype=np.int64))


class Scoring:
    """What is reported of a model by a task.

    Attributes:
        scores: what is known of each
        first: the one that `criterion="score"` compares
        rows: those that are means over rows: their places, and how they are taken
        of_all: those of all rows together
    """

    def __init__(self, task: Task) -> None:
        names: tuple[str, ...] | None = getattr(task, "scores", None)
        self.scores: tuple[Score, ...]
        self.rows: list[tuple[int, RowFunction]]
        self.of_all: list[tuple[int, SetFunction]] = []
        if names is None:
            one = get_score(re.sub(r"\W+", "_", task.score_name))
            if one.name == "loss":
                raise MusterError("score: 'loss' is what the loss is called; call it otherwise")
            higher = getattr(task, "higher", None)
            self.scores = (one if higher is None else replace(one, higher=higher),)
            self.first = self.scores[0]
            self.rows = [(0, task.score)]
            return
        assert isinstance(task, StandardTask), "a task with several scores knows how they are taken"
        self.scores = tuple(get_score(name) for name in names)
        self.first = self.scores[0]
        at = list(enumerate(names))
        self.rows = [(i, task.rows[name]) for i, name in at if name in task.rows]
        self.of_all = [(i, task.of_all[name]) for i, name in at if name in task.of_all]

    @property
    def names(self) -> tuple[str, ...]:
        """What they are called, the one that decides first."""
        return tuple(score.name for score in self.scores)

    def finished(self, i: int, mean: Float64) -> Float64:
        """A score from the mean over rows."""
        return np.exp(mean) if self.scores[i].name == "perplexity" else mean


def _called(what: object) -> str:
    name = getattr(what, "__qualname__", None)
    return f"{getattr(what, '__module__', '')}:{name}" if name else repr(what)
