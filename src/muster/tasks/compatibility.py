"""Compatibility of data, model and task, checked before training: targets that the task can take,
and a loss of each row by itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import MusterError, first_line
from ..base.lazy import torch
from ..federation import Federation
from .task import StandardTask, Task, as_task, target_kind

if TYPE_CHECKING:
    from torch import Tensor


def task_name(task: Task) -> str:
    """Return a task's name in messages: `next_token`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(task).__name__).lower()


def match_task(fed: Federation, given: Any) -> tuple[Federation, Task]:
    """Return a federation with the kind of targets the task takes, and the task."""
    task = as_task(given)
    wants = target_kind(task)
    if wants == "classes" and not fed.classes:
        raise MusterError(
            f"task {task_name(task)}: it takes classes (whole numbers from 0), and "
            f"these targets are {fed.describe_targets()}; take a task for numbers: --task "
            "regression (muster.tasks.regression()), or another"
        )
    if isinstance(task, StandardTask):
        refuse_targets(fed, task)
    return (fed.as_numbers() if wants == "numbers" else fed), task


def refuse_targets(fed: Federation, task: StandardTask, outputs: int = 0) -> None:
    """Refuse targets that the task cannot take, and name the client."""
    parts = [data for data in (fed.train, fed.test) if data is not None]
    for data in parts:
        if (found := task.find_invalid_target(data.y, outputs)) is None:
            continue
        row, what = found
        who = ""
        # Training and test rows may be in one array.
        for held in (d for d in parts if d.y.data_ptr() == data.y.data_ptr()):
            at = np.flatnonzero(held.base(np.arange(held.offsets[-1])) == row)
            if len(at):
                k = int(np.searchsorted(held.offsets, at[0], side="right")) - 1
                who = f"client {fed.population.get_name(k)}: "
        raise MusterError(f"task {task_name(task)}: {who}{what}")


def refuse_mixing(task: Task, z: Tensor, y: Tensor) -> None:
    """Refuse a user's loss or score in which a row's value depends on the rows next to it: those
    may belong to other clients, or be padding. z and y are some rows' outputs and targets."""
    half = len(y) // 2
    if isinstance(task, StandardTask) or half == 0:
        return
    for what, function in (("loss", task.loss), (f"score '{task.score_name}'", task.score)):
        try:
            whole = function(z, y)
            parts = torch.cat([function(z[:half], y[:half]), function(z[half:], y[half:])])
        except MusterError:
            raise
        except Exception as error:
            raise MusterError(
                f"task {task!r}: its {what} cannot be computed from outputs {tuple(z.shape)} and "
                f"targets {tuple(y.shape)} of {str(y.dtype)[6:]}: {first_line(error)}; for classes "
                'as whole numbers give muster.tasks.custom(loss, targets="classes")'
            ) from None
        if not torch.allclose(whole.double(), parts.double(), 1e-4, 1e-4, equal_nan=True):
            raise MusterError(
                f"task {task!r}: the {what} of a row depends on the rows next to it (a mean, "
                "variance or softmax over rows); let it depend on its own outputs and target alone"
            )
