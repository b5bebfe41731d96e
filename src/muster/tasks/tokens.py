"""Language modelling: the next token of a sequence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..base.checks import check_share
from ..base.lazy import functional, torch
from ..base.registry import part
from .task import SMALL, RowFunction, StandardTask, Task, find_first_wrong

if TYPE_CHECKING:
    from torch import Tensor

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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("smoothing", self.smoothing)

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
