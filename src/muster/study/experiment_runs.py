"""Runs of an experiment: from a checked configuration to a comparison.

The measures that a run will take are known before it runs. They depend on the data (held-out rows,
requirements, unseen clients), the method (models that clients keep) and the task (its scores), and
on none of their numbers. So the table of measures is computed on a view in which every number is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..base.errors import MusterError
from ..base.lazy import nn
from ..base.schema import Table
from ..config.experiment import Experiment
from ..federation import Federation
from ..methods import Method
from ..protocol import Appraisal, Evaluation
from ..results import store
from ..results.measures import MEASURES, add_score, compute_measures, find_measures
from ..results.run import OnRound
from ..run import evaluate
from ..tasks.compatibility import match_task
from ..tasks.task import Scoring, Task
from .compare import OnStart, compare_jobs
from .comparison import Comparison, collect_comparison, get_run_folder

if TYPE_CHECKING:
    from torch import nn


def check_experiment(
    chosen: Experiment, fed: Federation, seed: int, solo: bool = False
) -> dict[str, nn.Module]:
    """Check every method with its data, and that some method takes each measure, before anything
    is written; return each method's module.

    Args:
        solo: True if clients will have models trained alone, which this federation has not
    """
    s = chosen.settings
    taken: set[str] = set()
    modules: dict[str, nn.Module] = {}
    for label, job in chosen.jobs.items():
        modules[label] = job.with_seed(seed).check(fed)
        suits, task = match_task(fed, job.task)
        taken |= expect_measures(suits, job.method, modules[label], task, job.tuned_steps, solo)
    for kind, names in (("measure", s.measures), ("panel", s.panels)):
        for measure in find_measures(names, kind) if names else ():
            if measure.name not in taken and measure.otherwise not in taken:
                raise MusterError(
                    f"{kind} '{measure.name}': no method takes it here ({measure.title}); it needs "
                    f"other data, [requirement], tuned_steps or another task. Taken are "
                    f"{', '.join(n for n, m in MEASURES.items() if n in taken and m.of)}"
                )
    return modules


def compare_experiment(
    chosen: Experiment,
    folder: Path | None,
    data: Callable[[int], Federation] | None = None,
    only: Iterable[int] | None = None,
    on_start: OnStart | None = None,
    on_round: OnRound | None = None,
    config: Table | None = None,
) -> Comparison:
    """Run every method of a configuration on its seeds: see `muster.compare`.

    Args:
        data: function that returns the federation of a seed; default: the configuration's
        config: configuration to store with every run; default: this one
    """
    s = chosen.settings
    return compare_jobs(
        data or chosen.federation,
        chosen.jobs,
        s.all_seeds,
        compute=s.compute,
        keep=chosen.keep,
        only=only,
        report_at=s.report_at,
        measures=s.measures,
        panels=s.panels,
        folder=folder,
        config=chosen.resolve() if config is None else config,
        on_start=on_start,
        on_round=on_round,
    )


def collect_experiment(chosen: Experiment, folder: Path) -> Comparison:
    """Return the comparison of a configuration's finished runs in a folder."""
    s = chosen.settings
    found = {
        (label, seed): store.load(place)
        for label in chosen.methods
        for seed in s.all_seeds
        if store.is_run(place := get_run_folder(folder, label, seed))
    }
    names = [tuple(m.name for m in find_measures(n)) if n else () for n in (s.measures, s.panels)]
    shown = {"report_at": tuple(s.report_at), "measures": names[0], "panels": names[1]}
    return collect_comparison(found, chosen.methods, s.all_seeds, **shown)


def without_solo(chosen: Experiment) -> Experiment:
    """Return the experiment with a constant in place of requirements that clients would have to
    train for: enough to check its settings."""
    asks = chosen.requirement is not None
    return replace(chosen, requirement=1.0) if asks else chosen


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
