"""Classification tasks: multiclass, binary, multilabel, and the next token of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Float64
from ..base.checks import require
from ..base.errors import MusterError
from ..base.lazy import functional, torch
from ..base.registry import part
from . import scores as metrics
from .task import (
    SMALL,
    RowFunction,
    SetFunction,
    StandardTask,
    Targets,
    Task,
    as_weights,
    find_first_wrong,
)

if TYPE_CHECKING:
    from torch import Tensor


def _multiclass(each: Callable[..., float]) -> SetFunction:
    return lambda z, y, w: metrics.one_against_rest(each, y, metrics.softmax(z), w)


def _confidence(z: NDArray[Any], y: NDArray[Any], w: Float64) -> float:
    p = metrics.softmax(z)
    return metrics.calibration_error(p.argmax(1) == y, p.max(1), w)


MANY = 256  # rows
VECTORS = {"AVX2": 32, "AVX512": 64}  # bytes that the processor works on at once


def _cross_entropy(z: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy of each row.

    torch's softmax over a last axis that is shorter than a vector of the processor takes one number
    at a time; over many rows it is up to eight times as fast with the classes first.
    """
    if z.requires_grad or len(z) < MANY or z.shape[1] * z.element_size() >= _vector():
        return functional.cross_entropy(z, y, reduction="none")
    return functional.nll_loss(functional.log_softmax(z.t(), 0).t(), y, reduction="none")


@cache
def _vector() -> int:
    """Return the bytes of a vector of this processor; 0 where they are not known."""
    return VECTORS.get(torch.backends.cpu.get_cpu_capability(), 0)


@part(Task, "multiclass")
@dataclass(frozen=True)
class Multiclass(StandardTask):
    """One of several classes: cross-entropy `-log softmax(z)_y`, and accuracy `argmax z = y`.

    Attributes:
        weights: weight of each class in a row's loss, as in torch's `reduction="none"`; a client's
            loss is the mean of that over its rows
        smoothing: label smoothing: `1 - smoothing + smoothing / C` for the right class, `smoothing
            / C` for the others
        scores: scores to report: accuracy, balanced_accuracy, f1 (macro), auc and average_precision
            (one against the rest, over the classes a client holds), calibration_error
    """

    weights: tuple[float, ...] = ()
    smoothing: float = 0.0
    scores: tuple[str, ...] = ("accuracy",)
    targets: ClassVar[Targets] = "classes"
    row_scores: ClassVar[Mapping[str, RowFunction]] = {"accuracy": lambda z, y: z.argmax(-1) == y}
    set_scores: ClassVar[Mapping[str, SetFunction]] = {
        "balanced_accuracy": lambda z, y, w: metrics.balanced_accuracy(y, z.argmax(-1), w),
        "f1": lambda z, y, w: metrics.f1(y, z.argmax(-1), w),
        "auc": _multiclass(metrics.auc),
        "average_precision": _multiclass(metrics.average_precision),
        "calibration_error": _confidence,
    }

    @property
    def cross_entropy(self) -> bool:  # type: ignore[override]
        return not self.weights and self.smoothing == 0.0

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        flat = z.flatten(0, -2)
        if self.cross_entropy:
            losses = _cross_entropy(flat, y.flatten())
        else:
            losses = functional.cross_entropy(
                flat,
                y.flatten(),
                as_weights(self.weights, z),
                reduction="none",
                label_smoothing=self.smoothing,
            )
        return losses.view(y.shape)

    def guess(self, y: Tensor, classes: int = 0) -> Tensor:
        shares = torch.bincount(y, minlength=max(classes, len(self.weights))).double() / len(y)
        shares = (1.0 - self.smoothing) * shares + self.smoothing / len(shares)
        if self.weights:
            shares = shares * torch.tensor(self.weights, dtype=shares.dtype)
            shares = shares / shares.sum()
        return shares.clamp(min=SMALL).log()[None]


def _smooth(y: Tensor, smoothing: float) -> Tensor:
    """Return labels 0 and 1 as `smoothing / 2` and `1 - smoothing / 2`."""
    return y * (1.0 - smoothing) + smoothing / 2 if smoothing else y


def _one(z: Tensor, y: Tensor) -> Tensor:
    """Return one output as one number for each row, like the targets."""
    return z.squeeze(-1) if z.dim() > y.dim() else z


def _first(z: NDArray[Any]) -> NDArray[Any]:
    return z.reshape(len(z), -1)[:, 0]


@part(Task, "binary")
@dataclass(frozen=True)
class Binary(StandardTask):
    """Two classes, one output: `-log sigmoid(z)` for 1, `-log (1 - sigmoid(z))` for 0.

    Attributes:
        weights: weights of 0 and of 1 in a row's loss
        smoothing: label smoothing: `1 - smoothing / 2` for 1, `smoothing / 2` for 0
        scores: accuracy (z > 0), balanced_accuracy, f1 (of 1), auc, average_precision,
            calibration_error (of the probability of 1)
    """

    weights: tuple[float, ...] = ()
    smoothing: float = 0.0
    scores: tuple[str, ...] = ("accuracy", "auc")
    targets: ClassVar[Targets] = "classes"
    row_scores: ClassVar[Mapping[str, RowFunction]] = {
        "accuracy": lambda z, y: (_one(z, y) > 0) == (y > 0.5)
    }
    set_scores: ClassVar[Mapping[str, SetFunction]] = {
        "balanced_accuracy": lambda z, y, w: metrics.balanced_accuracy(y, 1 * (_first(z) > 0), w),
        "f1": lambda z, y, w: metrics.binary_f1(y > 0.5, _first(z) > 0, w),
        "auc": lambda z, y, w: metrics.auc(y > 0.5, _first(z), w),
        "average_precision": lambda z, y, w: metrics.average_precision(y > 0.5, _first(z), w),
        "calibration_error": lambda z, y, w: metrics.calibration_error(
            y > 0.5, metrics.sigmoid(_first(z)), w
        ),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        require(len(self.weights) in (0, 2), "weights", self.weights, "two, of 0 and of 1")

    def outputs(self, classes: int) -> int:
        if classes > 2:
            raise MusterError(f"task binary: {classes} classes; allowed: 2, or tasks.multiclass()")
        return 1

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        z, y = _one(z, y), y.to(z.dtype)
        smooth = _smooth(y, self.smoothing)
        losses = functional.binary_cross_entropy_with_logits(z, smooth, reduction="none")
        if self.weights:
            no, yes = self.weights
            losses = torch.where(y > 0.5, yes * losses, no * losses)
        return losses

    @property
    def has_slope(self) -> bool:
        return not self.weights

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        """Return `sigmoid(z) - y`, with the labels smoothed."""
        smooth = _smooth(y.to(z.dtype), self.smoothing)
        return torch.sigmoid(_one(z, y)).sub_(smooth).view_as(z)

    def guess(self, y: Tensor, classes: int = 0) -> Tensor:
        yes, (low, high) = y.double(), self.weights or (1.0, 1.0)
        weight = torch.where(yes > 0.5, high, low)
        share = (weight * _smooth(yes, self.smoothing)).sum() / weight.sum()
        return torch.logit(share.clamp(SMALL, 1 - SMALL)).view(1, 1)


def _by_label(each: Callable[..., float]) -> SetFunction:
    def score(z: NDArray[Any], y: NDArray[Any], w: Float64) -> float:
        found = [each(y[:, i] > 0.5, z[:, i].astype(np.float64), w) for i in range(y.shape[1])]
        return metrics.nan_mean(found)

    return score


@part(Task, "multilabel")
@dataclass(frozen=True)
class Multilabel(StandardTask):
    """Several binary labels, one output for each: the mean over labels of `Binary`'s loss. Targets
    are rows of 0 and 1.

    Attributes:
        weights: weight of each label's loss
        smoothing: label smoothing: `1 - smoothing / 2` for 1, `smoothing / 2` for 0
        scores: accuracy (the share of labels that are right), and means over labels of f1, auc,
            average_precision
    """

    weights: tuple[float, ...] = ()
    smoothing: float = 0.0
    scores: tuple[str, ...] = ("accuracy", "auc")
    row_scores: ClassVar[Mapping[str, RowFunction]] = {
        "accuracy": lambda z, y: ((z > 0) == (y > 0.5)).to(z.dtype).mean(-1)
    }
    set_scores: ClassVar[Mapping[str, SetFunction]] = {
        "f1": _by_label(lambda y, z, w: metrics.binary_f1(y, z > 0, w)),
        "auc": _by_label(metrics.auc),
        "average_precision": _by_label(metrics.average_precision),
    }

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        smooth = _smooth(y.to(z.dtype), self.smoothing)
        return functional.binary_cross_entropy_with_logits(
            z, smooth, as_weights(self.weights, z), reduction="none"
        ).mean(-1)

    def find_invalid_target(self, y: Tensor, outputs: int = 0) -> tuple[int, str] | None:
        return find_first_wrong(y, (y != 0) & (y != 1), "label {}; labels are 0 and 1")

    def guess(self, y: Tensor, classes: int = 0) -> Tensor:
        share = _smooth(y.double(), self.smoothing).mean(0, keepdim=True)
        return torch.logit(share.clamp(SMALL, 1 - SMALL))


IGNORED = -100  # a token that does not count, as torch has it


def _token_loss(z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return each row's mean cross-entropy over its tokens."""
    flat = functional.cross_entropy(
        z.flatten(0, -2),
        y.flatten(),
        ignore_index=IGNORED,
        reduction="none",
        label_smoothing=smoothing,
    )
    return flat.view(y.shape).sum(-1) / (y != IGNORED).sum(-1).clamp(min=1)


def _token_accuracy(z: Tensor, y: Tensor) -> Tensor:
    counts = y != IGNORED
    right = ((z.argmax(-1) == y) & counts).sum(-1)
    return right.to(z.dtype) / counts.sum(-1).clamp(min=1)


@part(Task, "next_token")
@dataclass(frozen=True)
class NextToken(StandardTask):
    """The next token at every place of a sequence: outputs `[rows, places, tokens]`, targets
    `[rows, places]`, and a row's loss is the mean cross-entropy over its places. Places whose
    target is -100 (padding) do not count.

    Attributes:
        scores: perplexity, the exponential of a client's mean cross-entropy (without smoothing);
            accuracy, the share of tokens that are right
    """

    smoothing: float = 0.0
    scores: tuple[str, ...] = ("perplexity", "accuracy")
    axes: ClassVar[int] = 2
    row_scores: ClassVar[Mapping[str, RowFunction]] = {
        "perplexity": _token_loss,
        "accuracy": _token_accuracy,
    }

    def outputs(self, classes: int) -> int:
        return 0

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        return _token_loss(z, y, self.smoothing)

    def find_invalid_target(self, y: Tensor, outputs: int = 0) -> tuple[int, str] | None:
        if y.is_floating_point() or y.dim() < 2:
            found = f"{str(y.dtype)[6:]} of shape {list(y.shape[1:])}"
            return 0, f"targets are {found}; give a token (a whole number) for each place"
        most = outputs - 1 if outputs else int(y.max())
        wrong = ((y < 0) & (y != IGNORED)) | (y > most)
        allowed = f"0 to {most}, as the model has outputs" if outputs else "0 or more"
        return find_first_wrong(
            y, wrong, f"token {{}}; tokens are {allowed}, or -100"
        ) or find_first_wrong(
            y, (y == IGNORED).all(1, keepdim=True), "no place counts (all are {}); drop that row"
        )

    def guess(self, y: Tensor, classes: int = 0) -> Tensor:
        counted = y[y != IGNORED]
        shares = torch.bincount(counted).double() / max(1, len(counted))
        shares = (1.0 - self.smoothing) * shares + self.smoothing / max(1, len(shares))
        return shares.clamp(min=SMALL).log().expand(1, *y.shape[1:], -1)
