"""Predictions of a trained model for new rows, as a table, and their scores where rows have labels.

    run.predict(rows)             the table
    run.predict_and_score(rows)   the table, and the loss and scores of its task

`interpret` turns outputs into answers (probabilities, numbers, log risks); it is written in torch,
so that an exported model (`export`) gives the same. Here answers get their names.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Float64
from ..base.errors import MusterError, MusterWarning, plural
from ..base.lazy import nn, pl, torch
from ..data.files.image_folders import is_image, takes_images
from ..data.files.new_rows import (
    NewRows,
    RowOptions,
    convert_array,
    read_images,
    read_rows,
    split_frame,
    to_frame,
)
from ..federation import Inputs
from ..federation.ragged_rows import features
from ..tasks.classification import Binary, Multiclass, Multilabel, NextToken
from ..tasks.regression import NumberTask, Poisson, Survival
from ..tasks.task import Scoring, StandardTask, Task
from .model import ModelRecipe

if TYPE_CHECKING:
    from torch import Tensor

BATCH = 4096  # rows that go through a model at once
ROW, LABEL, ANSWER, CHANCE = "row", "label", "prediction", "p_"  # columns of predictions
LOG_RISK, OUTPUT, FILE, FLAGS = "log_risk", "output", "file", "flags"


def interpret(task: Task | None, classes: int, z: Tensor) -> Tensor:
    """Turn outputs `[rows, ...]` into answers `[rows, answers]`: the probability of each class,
    label or next token (after the last place of a sequence), the numbers, the log risk; of an
    unknown task, the outputs."""
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


def name_answers(recipe: ModelRecipe, width: int) -> tuple[str, ...]:
    """Return the names of the answers of `interpret`, in order."""
    task, inputs = recipe.get_task(), recipe.inputs
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
    return tuple(f"{head}{name}" for name in name_targets(inputs, width))


def name_targets(inputs: Inputs, width: int) -> tuple[str, ...]:
    """Return the names of several targets: their columns, or else their numbers."""
    columns = inputs.label_columns
    return columns if len(columns) == width else tuple(str(i) for i in range(width))


def build_answer_columns(recipe: ModelRecipe, answers: Float64) -> dict[str, Any]:
    """Return answers as columns. Of classes there is the likeliest too; of next tokens only the
    likeliest and its probability, `prediction` and `p`."""
    task = recipe.get_task()
    if isinstance(task, NextToken):
        best = answers.argmax(1)
        return {ANSWER: best, "p": answers[np.arange(len(answers)), best]}
    names = name_answers(recipe, answers.shape[1])
    columns: dict[str, Any] = {name: answers[:, i] for i, name in enumerate(names)}
    if isinstance(task, Multiclass | Binary):
        likeliest = np.array(recipe.inputs.names)[answers.argmax(1)]
        return {ANSWER: likeliest, **columns}
    return columns


def build_label_columns(recipe: ModelRecipe, y: NDArray[Any]) -> dict[str, Any]:
    """Return labels as columns: classes by name, numbers, of a sequence its last token."""
    if isinstance(recipe.get_task(), NextToken):
        return {LABEL: y[:, -1].astype(np.int64)}
    if recipe.inputs.classes:
        return {LABEL: np.array(recipe.inputs.names)[y]}
    if y.ndim == 1:
        return {LABEL: y}
    flat = y.reshape(len(y), -1)
    names = name_targets(recipe.inputs, flat.shape[1])
    return {f"{LABEL}_{name}": flat[:, i] for i, name in enumerate(names)}


def compute_outputs(
    module: nn.Module, x: NDArray[Any], keep: Callable[[Tensor], Tensor] = lambda z: z
) -> Float64:
    """Return a module's outputs for prepared rows, or the part of them that `keep` selects."""
    dtype = next((p.dtype for p in module.parameters()), torch.float32)
    found = []
    with torch.no_grad():
        for start in range(0, len(x), BATCH):
            rows = features(torch.from_numpy(x[start : start + BATCH].copy()), dtype)
            found.append(keep(module(rows)).double().numpy())
    return np.concatenate(found)


def read_new_rows(rows: Any, inputs: Inputs, options: RowOptions) -> NewRows:
    """Read new rows for a model: a file, a folder of images, a frame, texts or an array."""
    place = Path(rows).expanduser() if isinstance(rows, (str, Path)) else None
    if place is not None and takes_images(inputs) and (place.is_dir() or is_image(place)):
        if options.keep:
            raise MusterError("keep: images have no columns to carry through; leave it out")
        x, y, files = read_images(place, inputs)
        return NewRows(x, y, kept=pl.DataFrame({FILE: files}))
    if place is not None:
        return read_rows(place, inputs, options)
    if isinstance(rows, Mapping) or hasattr(rows, "columns"):
        return split_frame(to_frame(rows), inputs, options=options)
    if inputs.text is not None and isinstance(next(iter(rows), None), str):
        frame = pl.DataFrame({inputs.text.column: list(rows)})
        return split_frame(frame, inputs, options=options)
    return convert_array(np.asarray(rows), inputs, options=options)


def predict_rows(
    module: nn.Module, recipe: ModelRecipe, rows: Any, options: RowOptions = RowOptions()
) -> tuple[pl.DataFrame, dict[str, float] | None]:
    """Return a table with the predictions for new rows, and their labels where they have some; and
    the loss and scores over all rows, None without labels or for the user's own task, of which only
    the name is known."""
    inputs, task = recipe.inputs, recipe.get_task()
    new = read_new_rows(rows, inputs, options)
    x, y = new.x, new.y
    # Of a long sequence with many tokens, only the outputs at its end are needed.
    last = isinstance(task, NextToken) and y is None
    z = compute_outputs(module, inputs.transform(x), (lambda z: z[:, -1:]) if last else lambda z: z)
    answers = interpret(task, inputs.classes, torch.from_numpy(z)).numpy()
    columns = {
        ROW: np.arange(1, len(z) + 1),
        **({} if y is None else build_label_columns(recipe, y)),
        **build_answer_columns(recipe, answers),
        **({FLAGS: new.flags} if any(new.flags) else {}),
    }
    warn_flags(new.flags)
    table = pl.DataFrame(columns)
    if new.kept is not None:
        twice = next((name for name in new.kept.columns if name in columns), None)
        if twice is not None:
            raise MusterError(f"keep: predictions have a column '{twice}' too; rename yours")
        table = pl.concat([table[:, :1], new.kept, table[:, 1:]], how="horizontal")
    return table, None if y is None or task is None else compute_scores(task, z, y)


def warn_flags(flags: list[str]) -> None:
    """Warn about rows that are unlike those of training."""
    rows = [i for i, text in enumerate(flags) if text]
    if rows:
        warnings.warn(
            f"{len(rows)} of {plural(len(flags), 'row')} unlike training rows (column "
            f"'{FLAGS}'): the first is row {rows[0] + 1}, {flags[rows[0]]}",
            MusterWarning,
            stacklevel=4,
        )


def compute_scores(task: Task, z: Float64, y: NDArray[Any]) -> dict[str, float]:
    """Return the task's scores and its loss by title, each row counting the same."""
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
