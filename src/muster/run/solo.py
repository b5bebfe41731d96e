"""Solo models: each client trains alone, and its loss becomes its requirement rho_k.

`rho_k` is the training loss of the client's own model after a few local SGD steps (MaxFL, section
3), computed once and stored with the client, next to the solo model's held-out loss and score.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np

from ..base import params
from ..base.lazy import nn
from ..engines import Compute, ComputeOptions, choose, resolve_compute
from ..engines.engine import Assignment
from ..federation import Federation
from ..local import Local
from ..models.specs import Spec, as_module
from ..parts.solvers import SGD
from ..protocol import Appraisal, Offer
from ..tasks.classification import Multiclass
from ..tasks.compatibility import match_task
from ..tasks.task import RowFunction, Task

TOGETHER = 256  # clients trained at once, to limit the memory of their models


@dataclass(frozen=True)
class SoloModels:
    """Appraisals of each client's solo model on its training rows, and held-out rows if any."""

    train: Appraisal
    test: Appraisal | None


def solo(
    fed: Federation,
    model: nn.Module | Spec,
    local: Local = Local(steps=100, batch_size=32, lr=0.1),
    seed: int = 0,
    task: Task | RowFunction = Multiclass(),
    compute: Compute | None = None,
    **how: Unpack[ComputeOptions],
) -> SoloModels:
    """Train every client alone from the model's starting point, and measure each model."""
    chosen = resolve_compute(compute, how)
    fed, task = match_task(fed, task)
    module = as_module(model, fed, seed, task)
    work = choose(chosen, module, fed, local, task)
    try:
        start = params.get_params(module, chosen.number, work.device)
        offer = Offer(
            seed, 0, 1, start, lr=local.rate(0, 1), trainable=params.trainable_names(module)
        )
        everyone = np.arange(fed.n)
        train, test = [], []
        for first in range(0, len(everyone), TOGETHER):
            some = everyone[first : first + TOGETHER]
            done, _ = work.train(SGD(), offer, some, {}, Assignment(purpose="solo"))
            train.append(work.appraise_each(done.models, some))
            if fed.test is not None:
                test.append(work.appraise_each(done.models, some, "test"))
    finally:
        work.close()
    return SoloModels(Appraisal.concat(train), Appraisal.concat(test) if test else None)


def with_solo(
    fed: Federation,
    model: nn.Module | Spec,
    local: Local = Local(steps=100, batch_size=32, lr=0.1),
    seed: int = 0,
    task: Task | RowFunction = Multiclass(),
    compute: Compute | None = None,
    **how: Unpack[ComputeOptions],
) -> Federation:
    """Return the federation with requirements from solo models: `rho_k = F_k(w_k solo)`.

    >>> import muster
    >>> fed = muster.with_solo(muster.data.digits(clients=4), muster.models.Softmax())
    >>> bool((fed.requirement < 2.3).all())
    True
    """
    result = solo(fed, model, local, seed, task, compute, **how)
    return replace(
        fed,
        requirement=result.train.loss,
        requirement_test=None if result.test is None else result.test.loss,
        solo_score=None if result.test is None else result.test.score,
    )
