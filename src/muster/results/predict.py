"""What a trained model says of new rows, as a table, and how well where their labels are known.

    run.predict(rows)             the table
    run.predict_and_score(rows)   the table, and the loss and scores of its task

`meant` turns outputs into answers (chances, numbers, log risks); it is written in torch, so that an
exported model (`export`) says the same. Here answers get their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Float64
from ..base.lazy import nn, pl, torch
from ..data.files.image_folders import is_image, takes_images
from ..data.files.new_rows import array_rows, as_frame, columns_of, read_images, read_rows
from ..federation import Inputs
from ..federation.ragged_rows import features
from ..tasks.base import Scoring, StandardTask, Task
from ..tasks.classification import Binary, Multiclass, Multilabel
from ..tasks.regression import NumberTask, Poisson
from ..tasks.survival import Survival
from ..tasks.tokens import NextToken
from .model import Recipe

if TYPE_CHECKING:
    from torch import Tensor

TOGETHER = 4096  # rows that go through a model at once
ROW, LABEL, ANSWER, CHANCE = "row", "label", "prediction", "p_"  # columns of predictions
LOG_RISK, OUTPUT, FILE = "log_risk", "output", "file"


def meant(task: Task | None, classes: int, z: Tensor) -> Tensor:
    """What outputs `[rows, ...]` mean, `[rows, answers]`: the chance of each class, label or next
    token (after the last place of a sequence), the numbers, the log risk. Of a task that is not
    known, the outputs."""
    if isinstance(task, Multiclass):
        return torch.softmax(z[:, :classes], 1)
    if isinstance(task, Binary):
        yes = torch.sigmoid(z[:, :1])
        return torch.cat([1.0 - yes, yes], 1)
    if isinstance(task, Multilabel):
        return torch.sigmoid(z)
    if isinstance(task, NextToken):
        return torch.softmax(z[:, -1], -1)
    return torch.exp(z) if isinstance(task, Poisson) else z.flatten(1)


def called(recipe: Recipe, width: int) -> tuple[str, ...]:
    """What the answers of `meant` are called, in order."""
    task, inputs = recipe.known_task(), recipe.inputs
    if isinstance(task, Multiclass | Binary):
        return tuple(f"{CHANCE}{name}" for name in inputs.names)
    if isinstance(task, Survival):
        return (LOG_RISK,)
    if isinstance(task, NumberTask) and width == 1:
        return (ANSWER,)
    if isinstance(task, Multilabel | NextToken):
        head = CHANCE
    else:
        head = f"{ANSWER if isinstance(task, NumberTask) else OUTPUT}_"
    return tuple(f"{head}{name}" for name in target_names(inputs, width))


def target_names(inputs: Inputs, width: int) -> tuple[str, ...]:
    """What several targets are called: their columns, or else their numbers."""
    columns = inputs.label_columns
    return columns if len(columns) == width else tuple(str(i) for i in range(width))


def told(recipe: Recipe, answers: Float64) -> dict[str, Any]:
    """Answers as columns. Of classes there is the likeliest too, and of next tokens it stands alone
    with its chance: `prediction` and `p`."""
    task = recipe.known_task()
    if isinstance(task, NextToken):
        best = answers.argmax(1)
        return {ANSWER: best, "p": answers[np.arange(len(answers)), best]}
    names = called(recipe, answers.shape[1])
    columns: dict[str, Any] = {name: answers[:, i] for i, name in enumerate(names)}
    if isinstance(task, Multiclass | Binary):
        likeliest = np.array(recipe.inputs.names)[answers.argmax(1)]
        return {ANSWER: likeliest, **columns}
    return columns


def labels_told(recipe: Recipe, y: NDArray[Any]) -> dict[str, Any]:
    """Labels as columns: classes by name, numbers, of a sequence the token that comes last."""
    if isinstance(recipe.known_task(), NextToken):
        return {LABEL: y[:, -1].astype(np.int64)}
    if recipe.inputs.classes:
        return {LABEL: np.array(recipe.inputs.names)[y]}
    if y.ndim == 1:
        return {LABEL: y}
    flat = y.reshape(len(y), -1)
    names = target_names(recipe.inputs, flat.shape[1])
    return {f"{LABEL}_{name}": flat[:, i] for i, name in enumerate(names)}


def outputs(
    module: nn.Module, x: NDArray[Any], keep: Callable[[Tensor], Tensor] = lambda z: z
) -> Float64:
    """A module's outputs for rows that are prepared, or what `keep` leaves of them."""
    dtype = next((p.dtype for p in module.parameters()), torch.float32)
    found = []
    with torch.no_grad():
        for start in range(0, len(x), TOGETHER):
            rows = features(torch.from_numpy(x[start : start + TOGETHER].copy()), dtype)
            found.append(keep(module(rows)).double().numpy())
    return np.concatenate(found)


def predictions(
    module: nn.Module, recipe: Recipe, rows: Any
) -> tuple[pl.DataFrame, dict[str, float] | None]:
    """One row for each of the new rows: what the task predicts, and where they have labels, those.
    Then also the loss and scores of all of them; None where there are no labels, or the task is one
    of the user's, of which only the name is known."""
    inputs, task = recipe.inputs, recipe.known_task()
    files: dict[str, Any] = {}
    y: NDArray[Any] | None
    place = Path(rows).expanduser() if isinstance(rows, (str, Path)) else None
    if place is not None and takes_images(inputs) and (place.is_dir() or is_image(place)):
        x, y, files[FILE] = read_images(place, inputs)
    elif place is not None:
        x, y = read_rows(place, inputs)
    elif isinstance(rows, Mapping) or hasattr(rows, "columns"):
        x, y = columns_of(as_frame(rows), inputs)
    elif inputs.text is not None and isinstance(next(iter(rows), None), str):
        x, y = columns_of(pl.DataFrame({inputs.text.column: list(rows)}), inputs)
    else:
        x, y = array_rows(np.asarray(rows), inputs), None
    # Of a long sequence with many tokens, all that is needed of outputs is those of its end.
    last = isinstance(task, NextToken) and y is None
    z = outputs(module, inputs.transform(x), (lambda z: z[:, -1:]) if last else lambda z: z)
    answers = meant(task, inputs.classes, torch.from_numpy(z)).numpy()
    table = pl.DataFrame(
        {
            ROW: np.arange(1, len(z) + 1),
            **files,
            **({} if y is None else labels_told(recipe, y)),
            **told(recipe, answers),
        }
    )
    return table, None if y is None or task is None else scores_of(task, z, y)


def scores_of(task: Task, z: Float64, y: NDArray[Any]) -> dict[str, float]:
    """The task's scores and its loss, over all rows alike, by what they are called in words."""
    outs, targets = torch.from_numpy(z), torch.tensor(y)
    if isinstance(task, NextToken):
        targets = targets.long()
    scoring, ones = Scoring(task), np.ones(len(y))
    found: dict[int, float] = {}
    for i, of_row in scoring.row_scores:
        mean = of_row(outs, targets).double().mean().numpy()
        found[i] = float(scoring.from_mean(i, mean))
    for i, of_all in scoring.set_scores:
        found[i] = of_all(z, y, ones)
    if isinstance(task, StandardTask):
        loss = task.set_loss(outs, targets, torch.from_numpy(ones))
    else:
        loss = task.loss(outs, targets).mean()
    return {**{scoring.scores[i].title: found[i] for i in sorted(found)}, "loss": float(loss)}
