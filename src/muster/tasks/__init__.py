"""Tasks by name, for `muster.simulate(..., task=muster.tasks.regression())`.

A function of outputs and targets that gives the loss of each row is a task too; `custom` gives it a
score of its own.
"""

from __future__ import annotations

from .base import Custom, Multiclass, Task
from .other import Binary, Huber, Multilabel, NextToken, Poisson, Regression, Survival

__all__ = [
    "Task",
    "binary",
    "custom",
    "huber",
    "multiclass",
    "multilabel",
    "next_token",
    "poisson",
    "regression",
    "survival",
]

multiclass = Multiclass
binary = Binary
multilabel = Multilabel
regression = Regression
huber = Huber
poisson = Poisson
survival = Survival
next_token = NextToken
custom = Custom
