"""Expected measures: the names of the measures a run will take, known before it runs.

They depend on the data (held-out rows, requirements, unseen clients), the method (models that
clients keep) and the task (its scores), and on none of their numbers. So the table of measures is
computed on a view in which every number is 0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..federation import Federation
from ..methods import Method
from ..protocol import Appraisal, Evaluation
from ..results.measures import MEASURES, add_score, compute_measures
from ..tasks.task import Scoring, Task
from . import evaluate

if TYPE_CHECKING:
    from torch import nn


def expect_measures(
    fed: Federation,
    method: Method,
    module: nn.Module,
    task: Task,
    tuned_steps: int = 0,
    solo: bool = False,
) -> set[str]:
    """Return the names of the measures that a run of a method will take.

    Args:
        solo: True if clients will have solo models by then (`with_solo`)
    """
    scores = [score.name for score in Scoring(task).scores]
    for score in scores:
        add_score(score)
    counted = {name for name, measure in MEASURES.items() if measure.of is None}
    view = build_blank_evaluation(fed, method, module, scores, tuned_steps, solo)
    return counted | set(compute_measures(fed.population, view))


def build_blank_evaluation(
    fed: Federation,
    method: Method,
    module: nn.Module,
    scores: list[str],
    tuned_steps: int,
    solo: bool,
) -> Evaluation:
    """Return all clients' view of a model, with 0 for every loss and score."""
    zeros = np.zeros(fed.n)
    first, *others = scores
    train = Appraisal(zeros, zeros, dict.fromkeys(others, zeros))
    test = None if fed.test is None else train
    personal = method.solver.adapts or "own" in method.solver.memory(
        dict(module.named_parameters())
    )
    own = train if personal and method.serves != "own" else None
    own_test = None if own is None else test
    every = np.arange(fed.n)
    view = evaluate.build_evaluation(fed, every, zeros, train, test, own, own_test, first)
    if solo and test is not None:
        view = replace(view, preferred=zeros)
    if tuned_steps and method.serves != "own":
        view = evaluate.add_tuning(fed, every, view, train, test)
    return view
