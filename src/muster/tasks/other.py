"""The tasks besides classes: yes or no, several labels, numbers, survival times, tokens.

Each says its loss over a leading client axis and names the scores that suit it, as `task` asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Float64
from ..base.checks import check_above, check_share, require
from ..base.errors import MusterError
from ..base.lazy import functional, torch
from ..base.registry import part
from . import scores as count
from .base import (
    SMALL,
    RowFunction,
    SetFunction,
    StandardTask,
    Targets,
    Task,
    as_weights,
    check_weights,
)

if TYPE_CHECKING:
    from torch import Tensor

IGNORED = -100  # a token that does not count, as torch has it


def _first_wrong(y: Tensor, wrong: Tensor, what: str) -> tuple[int, str] | None:
    """The first row that has a wrong number, and what is said of it."""
    rows = wrong.reshape(len(y), -1)
    if not bool(rows.any()):
        return None
    row = int(rows.any(1).int().argmax())
    number = y.reshape(len(y), -1)[row, int(rows[row].int().argmax())].item()
    return row, what.format(f"{number:g}")


def _smoothed(y: Tensor, smoothing: float) -> Tensor:
    """Labels 0 and 1 as `smoothing / 2` and `1 - smoothing / 2`."""
    return y * (1.0 - smoothing) + smoothing / 2


def _one(z: Tensor, y: Tensor) -> Tensor:
    """One output as one number for each row, where targets are."""
    return z.squeeze(-1) if z.dim() > y.dim() else z


def _first(z: NDArray[Any]) -> NDArray[Any]:
    return z.reshape(len(z), -1)[:, 0]


@part(Task, "binary")
@dataclass(frozen=True)
class Binary(StandardTask):
    """Yes or no, one output: `-log sigmoid(z)` for 1, `-log (1 - sigmoid(z))` for 0.

    Attributes:
        weights: of 0 and of 1: a row's loss counts by its class's
        smoothing: of the labels: `1 - smoothing / 2` for 1, `smoothing / 2` for 0
        scores: accuracy (z > 0), balanced_accuracy, f1 (of 1), auc, average_precision,
            calibration_error (of the chance of 1)
    """

    weights: tuple[float, ...] = ()
    smoothing: float = 0.0
    scores: tuple[str, ...] = ("accuracy", "auc")
    targets: ClassVar[Targets] = "classes"
    rows: ClassVar[Mapping[str, RowFunction]] = {
        "accuracy": lambda z, y: (_one(z, y) > 0) == (y > 0.5)
    }
    of_all: ClassVar[Mapping[str, SetFunction]] = {
        "balanced_accuracy": lambda z, y, w: count.balanced_accuracy(y, 1 * (_first(z) > 0), w),
        "f1": lambda z, y, w: count.binary_f1(y > 0.5, _first(z) > 0, w),
        "auc": lambda z, y, w: count.auc(y > 0.5, _first(z), w),
        "average_precision": lambda z, y, w: count.average_precision(y > 0.5, _first(z), w),
        "calibration_error": lambda z, y, w: count.calibration_error(
            y > 0.5, count.sigmoid(_first(z)), w
        ),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("smoothing", self.smoothing)
        check_weights(self.weights)
        require(len(self.weights) in (0, 2), "weights", self.weights, "two, of 0 and of 1")

    def outputs(self, classes: int) -> int:
        if classes > 2:
            raise MusterError(f"task binary: {classes} classes; allowed: 2, or tasks.multiclass()")
        return 1

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        z, y = _one(z, y), y.to(z.dtype)
        smooth = _smoothed(y, self.smoothing)
        losses = functional.binary_cross_entropy_with_logits(z, smooth, reduction="none")
        if self.weights:
            no, yes = self.weights
            losses = torch.where(y > 0.5, yes * losses, no * losses)
        return losses

    def guess(self, y: Tensor, classes: int = 0) -> Tensor:
        yes, (low, high) = y.double(), self.weights or (1.0, 1.0)
        weight = torch.where(yes > 0.5, high, low)
        share = (weight * _smoothed(yes, self.smoothing)).sum() / weight.sum()
        return torch.logit(share.clamp(SMALL, 1 - SMALL)).view(1, 1)


def _by_label(each: Callable[..., float]) -> SetFunction:
    def of(z: NDArray[Any], y: NDArray[Any], w: Float64) -> float:
        found = [each(y[:, i] > 0.5, z[:, i].astype(np.float64), w) for i in range(y.shape[1])]
        return count._mean(found)

    return of


@part(Task, "multilabel")
@dataclass(frozen=True)
class Multilabel(StandardTask):
    """Several yes-or-no labels, one output for each: the mean over labels of `Binary`'s loss.
    Targets are rows of 0 and 1.

    Attributes:
        weights: of the labels: a label's loss counts by its weight
        scores: accuracy (the share of labels that are right), and means over labels of f1, auc,
            average_precision
    """

    weights: tuple[float, ...] = ()
    smoothing: float = 0.0
    scores: tuple[str, ...] = ("accuracy", "auc")
    rows: ClassVar[Mapping[str, RowFunction]] = {
        "accuracy": lambda z, y: ((z > 0) == (y > 0.5)).to(z.dtype).mean(-1)
    }
    of_all: ClassVar[Mapping[str, SetFunction]] = {
        "f1": _by_label(lambda y, z, w: count.binary_f1(y, z > 0, w)),
        "auc": _by_label(count.auc),
        "average_precision": _by_label(count.average_precision),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("smoothing", self.smoothing)
        check_weights(self.weights)

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        smooth = _smoothed(y.to(z.dtype), self.smoothing)
        return functional.binary_cross_entropy_with_logits(
            z, smooth, as_weights(self.weights, z), reduction="none"
        ).mean(-1)

    def complaint(self, y: Tensor, outputs: int = 0) -> tuple[int, str] | None:
        return _first_wrong(y, (y != 0) & (y != 1), "label {}; labels are 0 and 1")

    def guess(self, y: Tensor, classes: int = 0) -> Tensor:
        share = _smoothed(y.double(), self.smoothing).mean(0, keepdim=True)
        return torch.logit(share.clamp(SMALL, 1 - SMALL))


def _beside(z: Tensor, y: Tensor) -> Tensor:
    """Targets in the shape of the outputs: one number for each row is a row of one."""
    return (y if y.dim() == z.dim() else y.unsqueeze(-1)).to(z.dtype)


def _real(z: NDArray[Any], y: NDArray[Any], w: Float64) -> float:
    return count.r2(y.astype(np.float64), z.astype(np.float64), w)


class Numbers(StandardTask):
    """What regressions share: targets are numbers, as many outputs as there are in each row, and a
    row's loss is the mean over them. The guess is their mean."""

    rows: ClassVar[Mapping[str, RowFunction]] = {
        "mae": lambda z, y: (z - _beside(z, y)).abs().mean(-1)
    }
    of_all: ClassVar[Mapping[str, SetFunction]] = {"r2": _real}

    def guess(self, y: Tensor, classes: int = 0) -> Tensor:
        return y.double().reshape(len(y), -1).mean(0, keepdim=True)


@part(Task, "regression")
@dataclass(frozen=True)
class Regression(Numbers):
    """Numbers: squared error `(z - y)^2`.

    Attributes:
        scores: r2, mae
    """

    scores: tuple[str, ...] = ("r2", "mae")

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        return (z - _beside(z, y)).square().mean(-1)


@part(Task, "huber")
@dataclass(frozen=True)
class Huber(Numbers):
    """Numbers among which some are far off: `(z - y)^2 / 2` up to `delta`, from there on
    `delta (|z - y| - delta / 2)`.

    Attributes:
        scores: r2, mae
    """

    delta: float = 1.0
    scores: tuple[str, ...] = ("r2", "mae")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_above("delta", self.delta)

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        y = _beside(z, y)
        return functional.huber_loss(z, y, reduction="none", delta=self.delta).mean(-1)


@part(Task, "poisson")
@dataclass(frozen=True)
class Poisson(Numbers):
    """Counts with mean `exp(z)`: `exp(z) - y z`, which may be below 0; with `full` the term in y
    alone too, by Stirling, as torch has it.

    Attributes:
        scores: mae and r2, of `exp(z)`
    """

    full: bool = False
    scores: tuple[str, ...] = ("mae", "r2")
    least: ClassVar[float] = -float("inf")
    rows: ClassVar[Mapping[str, RowFunction]] = {
        "mae": lambda z, y: (z.exp() - _beside(z, y)).abs().mean(-1)
    }
    of_all: ClassVar[Mapping[str, SetFunction]] = {
        "r2": lambda z, y, w: _real(np.exp(z.astype(np.float64)), y, w)
    }

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        return functional.poisson_nll_loss(
            z, _beside(z, y), log_input=True, full=self.full, reduction="none"
        ).mean(-1)

    def complaint(self, y: Tensor, outputs: int = 0) -> tuple[int, str] | None:
        return _first_wrong(y, y < 0, "target {}; counts are 0 or more")

    def guess(self, y: Tensor, classes: int = 0) -> Tensor:
        return super().guess(y).clamp(min=SMALL).log()


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
    by_row: ClassVar[bool] = False
    of_all: ClassVar[Mapping[str, SetFunction]] = {
        "c_index": lambda z, y, w: count.c_index(
            y[:, 0].astype(np.float64), y[:, 1] > 0.5, _first(z).astype(np.float64), w
        )
    }

    def outputs(self, classes: int) -> int:
        require(classes == 2, "task survival: numbers in a target", classes, "2, (time, event)")
        return 1

    def complaint(self, y: Tensor, outputs: int = 0) -> tuple[int, str] | None:
        if y.shape[1:] != (2,):
            return None  # `outputs` says so
        time, event = y[:, 0], y[:, 1]
        other = (event != 0) & (event != 1)
        return _first_wrong(time, time < 0, "time {}; times are 0 or more") or _first_wrong(
            event, other, "event {}; it is 1 where it happened, else 0"
        )

    def silent(self, y: Tensor) -> bool:
        return not bool((y[..., 1] > 0.5).any())

    def of_rows(self, z: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """The loss of each set of rows: `[...]` from `[..., rows, 1]`, `[..., rows, 2]` and
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


def _tokens(z: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
    """Each row's mean cross-entropy over its tokens."""
    flat = functional.cross_entropy(
        z.flatten(0, -2), y.flatten(), ignore_index=IGNORED, reduction="none",
        label_smoothing=smoothing,
    )  # fmt: skip
    return flat.view(y.shape).sum(-1) / (y != IGNORED).sum(-1).clamp(min=1)


def _tokens_right(z: Tensor, y: Tensor) -> Tensor:
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
    rows: ClassVar[Mapping[str, RowFunction]] = {"perplexity": _tokens, "accuracy": _tokens_right}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("smoothing", self.smoothing)

    def outputs(self, classes: int) -> int:
        return 0

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        return _tokens(z, y, self.smoothing)

    def complaint(self, y: Tensor, outputs: int = 0) -> tuple[int, str] | None:
        if y.is_floating_point() or y.dim() < 2:
            said = f"{str(y.dtype)[6:]} of shape {list(y.shape[1:])}"
            return 0, f"targets are {said}; give a token (a whole number) for each place"
        most = outputs - 1 if outputs else int(y.max())
        wrong = ((y < 0) & (y != IGNORED)) | (y > most)
        allowed = f"0 to {most}, as the model has outputs" if outputs else "0 or more"
        return _first_wrong(y, wrong, f"token {{}}; tokens are {allowed}, or -100") or _first_wrong(
            y, (y == IGNORED).all(1, keepdim=True), "no place counts (all are {}); drop that row"
        )

    def guess(self, y: Tensor, classes: int = 0) -> Tensor:
        there = y[y != IGNORED]
        shares = torch.bincount(there).double() / max(1, len(there))
        shares = (1.0 - self.smoothing) * shares + self.smoothing / max(1, len(shares))
        return shares.clamp(min=SMALL).log().expand(1, *y.shape[1:], -1)
