"""Solo models: each client trains alone, and its loss becomes its requirement rho_k.

`rho_k` is the training loss of the client's own model (MaxFL, section 3), computed once and stored
with the client, next to the solo model's held-out loss and score. Alone, a client does as much work
as in the run it is compared with: the same number of rounds. The paper has "a few warm-up steps":
those are one round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np

from ..base import params
from ..base.arrays import Int64
from ..base.checks import check_whole
from ..base.lazy import nn
from ..engines import Compute, ComputeOptions, choose, resolve_compute
from ..engines.descent import initial_optimizer_state
from ..engines.engine import Assignment, Engine
from ..federation import Federation
from ..local import Local
from ..models.specs import Spec, as_module
from ..parts.solvers import Solo
from ..protocol import Appraisal, Offer
from ..tasks.classification import Multiclass
from ..tasks.compatibility import match_task
from ..tasks.task import RowFunction, Task
from .job import MOST_ROUNDS, Job

TOGETHER = 256  # clients trained at once, to limit the memory of their models


@dataclass(frozen=True)
class SoloModels:
    """Appraisals of each client's solo model on its training rows, and held-out rows if any."""

    train: Appraisal
    test: Appraisal | None


def solo(
    fed: Federation,
    model: nn.Module | Spec,
    rounds: int,
    local: Local = Job.local,
    seed: int = 0,
    task: Task | RowFunction = Multiclass(),
    compute: Compute | None = None,
    **how: Unpack[ComputeOptions],
) -> SoloModels:
    """Train every client alone from the model's starting point, and measure each model.

    Args:
        rounds: rounds of local work, one after the other: those of the run to compare with
        local: work of a round, as for `simulate`
    """
    check_whole("rounds", rounds, 1, MOST_ROUNDS)
    chosen = resolve_compute(compute, how)
    fed, task = match_task(fed, task)
    module = as_module(model, fed, seed, task)
    work = choose(chosen, module, fed, local, task)
    try:
        start = params.get_params(module, chosen.number, work.device)
        first = Offer(seed, 0, rounds, start, trainable=params.trainable_names(module))
        everyone = np.arange(fed.n)
        train, test = [], []
        for i in range(0, len(everyone), TOGETHER):
            some = everyone[i : i + TOGETHER]
            models = train_alone(work, first, local, some)
            train.append(work.appraise_each(models, some))
            if fed.test is not None:
                test.append(work.appraise_each(models, some, "test"))
    finally:
        work.close()
    return SoloModels(Appraisal.concat(train), Appraisal.concat(test) if test else None)


def train_alone(work: Engine, first: Offer, local: Local, clients: Int64) -> params.Params:
    """Train each of these clients alone from the model of the first offer, over all its rounds;
    return their models."""
    solver = Solo()
    moving = {name: t for name, t in first.model.items() if name in first.trainable}
    start = solver.memory(first.model) | initial_optimizer_state(local.optimizer, 1, moving)
    memory = {part: params.expand(table, len(clients)) for part, table in start.items()}
    for t in range(first.rounds):
        offer = replace(first, round=t, lr=local.rate(t, first.rounds))
        done, _ = work.train(solver, offer, clients, memory, Assignment(purpose="solo"))
        memory = done.memory
    return memory["own"]


def with_solo(
    fed: Federation,
    model: nn.Module | Spec,
    rounds: int,
    local: Local = Job.local,
    seed: int = 0,
    task: Task | RowFunction = Multiclass(),
    compute: Compute | None = None,
    **how: Unpack[ComputeOptions],
) -> Federation:
    """Return the federation with requirements from solo models: `rho_k = F_k(w_k solo)`.

    With the rounds and the local work of the run that follows, each client has alone the work it
    has there; results show both amounts.

    Args:
        rounds: rounds of local work of each client alone; 1: a requirement of a few steps only
        local: work of a round, as for `simulate`

    >>> import muster
    >>> fed = muster.with_solo(muster.data.digits(clients=4), muster.models.Softmax(), rounds=20)
    >>> bool((fed.requirement < 2.3).all()), fed.solo_work
    (True, '100 steps')
    """
    result = solo(fed, model, rounds, local, seed, task, compute, **how)
    return replace(
        fed,
        requirement=result.train.loss,
        requirement_test=None if result.test is None else result.test.loss,
        solo_score=None if result.test is None else result.test.score,
        solo_work=local.describe_amount(rounds),
    )
