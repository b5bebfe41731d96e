"""Foreseen: which measures a run will take, known before it runs.

What is measured depends on the data (held-out rows, requirements, unseen clients), the method
(models that clients keep) and the task (its scores), and on no number of any of them. So the table
of measures is asked about a model that everybody finds to be 0 in all respects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..federation import Federation
from ..methods import Method
from ..protocol import Appraisal, Evaluation
from ..results.measures import MEASURES, know
from ..results.measures import evaluate as evaluate_measures
from ..tasks.base import Scoring, Task
from . import evaluate

if TYPE_CHECKING:
    from torch import nn


def foreseen(
    fed: Federation,
    method: Method,
    module: nn.Module,
    task: Task,
    tuned_steps: int = 0,
    solo: bool = False,
) -> set[str]:
    """The names of the measures that a run of a method will take.

    Args:
        solo: whether clients will have trained models of their own by then (`with_solo`)
    """
    scores = [score.name for score in Scoring(task).scores]
    for score in scores:
        know(score)
    counted = {name for name, measure in MEASURES.items() if measure.of is None}
    return counted | set(
        evaluate_measures(fed.population, blank(fed, method, module, scores, tuned_steps, solo))
    )


def blank(
    fed: Federation, method: Method, module: nn.Module, scores: list[str], tuned_steps: int,
    solo: bool,
) -> Evaluation:  # fmt: skip
    """What clients would make of a model that is 0 to all of them."""
    nothing = np.zeros(fed.n)
    first, *others = scores
    train = Appraisal(nothing, nothing, dict.fromkeys(others, nothing))
    test = None if fed.test is None else train
    kept = method.solver.adapts or "own" in method.solver.memory(dict(module.named_parameters()))
    own = train if kept and method.serves != "own" else None
    own_test = None if own is None else test
    every = np.arange(fed.n)
    view = evaluate.opinion(fed, every, nothing, train, test, own, own_test, first)
    if solo and test is not None:
        view = replace(view, preferred=nothing)
    if tuned_steps and method.serves != "own":
        view = evaluate.tuned(fed, every, view, train, test)
    return view
