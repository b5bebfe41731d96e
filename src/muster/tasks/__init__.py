"""Tasks by name, for `muster.simulate(..., task=muster.tasks.regression())`.

A function of outputs and targets that returns the loss of each row is a task too; `custom` gives it
a score.
"""

from __future__ import annotations

from .classification import Binary, Multiclass, Multilabel, NextToken
from .regression import Huber, Poisson, Regression, Survival
from .task import Custom, Task

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
