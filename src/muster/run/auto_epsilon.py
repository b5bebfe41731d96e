"""The choice of epsilon (`epsilon = "auto"`), by rows that the models choosing it have not seen.

The rows of each client of the objective are divided into folds. For every fold f there is a
federation in which these clients lack it, and it is their test rows; on each of them every
candidate epsilon runs for some rounds. Candidates are 0 (nobody helps), infinity (everybody does),
and quantiles of the gaps |F_k - F| seen in these two. The one with the lowest loss on the folds,
pooled with the clients' weights in the objective, is used for the run; of equal ones the smallest.

The cost is `FOLDS` runs for each of up to 5 candidates, 20 in all, of a quarter of the rounds each
(at least `LEAST`, after warm-up): about five times a run of 80 rounds and more, up to twenty times
a shorter one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..base.arrays import Float64, Int64
from ..base.errors import MusterError
from ..base.lazy import pl
from ..data.split.resplit import with_rows
from ..federation import Federation
from ..federation.ragged_rows import RowLists
from ..parts.tracks import FOLDS
from ..protocol import Roster
from ..results.run import Interrupted, Run
from ..results.run_warnings import Facts
from ..schedules import AUTO, Constant
from .job import Job
from .track_training import FoldRows

QUANTILES = (0.25, 0.5, 0.75)  # of the gaps
SHORT, LEAST = 0.25, 20  # share of the rounds that a candidate runs for, and rounds at least

RunOnce = Callable[[Federation, Job], Run]


def choose_epsilon(fed: Federation, job: Job, run_once: RunOnce) -> tuple[Job, Facts]:
    """Return the job with an epsilon in place of "auto", and for the run's facts the choice, all
    candidates and their losses; the job itself if its epsilon is given.

    Args:
        run_once: runs a job on a federation
    """
    if job.method.epsilon != AUTO:
        return job, {}
    refuse_auto(fed, job)
    folds = [build_fold(fed, f, job.seed) for f in range(1, FOLDS + 1)]
    short = replace(job, rounds=min(job.rounds, job.warmup + max(LEAST, int(SHORT * job.rounds))))
    losses: dict[float, Float64] = {}
    gaps: list[Float64] = []

    def run_candidate(epsilon: float) -> None:
        runs = [run_once(fold, with_epsilon(short, epsilon)) for fold in folds]
        losses[epsilon] = np.stack([run.final["test_loss"].cast(pl.Float64) for run in runs])
        gaps.extend(find_gaps(run, fed.objective, get_column(job)) for run in runs)

    try:
        for epsilon in (0.0, math.inf):
            run_candidate(epsilon)
        for epsilon in find_candidates(np.concatenate(gaps)):
            run_candidate(epsilon)
    except Interrupted:  # a candidate's rounds are not the run's
        raise KeyboardInterrupt from None
    tried = sorted(losses)
    sizes = np.stack([fold.test.sizes for fold in folds if fold.test is not None])
    pooled = pool_losses(np.stack([losses[e] for e in tried]), sizes, fed.objective)
    chosen = tried[int(pooled.argmin())]  # the first of equal ones
    facts = {"epsilon": chosen, "epsilon_tried": {"epsilon": tried, "loss": pooled.tolist()}}
    return with_epsilon(job, chosen), facts


def refuse_auto(fed: Federation, job: Job) -> None:
    """Refuse a choice that would mean nothing, or has no rows."""
    if not job.method.refers:
        raise MusterError(
            f"epsilon: 'auto', and nothing in '{job.method.name}' uses an epsilon; leave it out"
        )
    if job.decide_on != "train":
        raise MusterError(
            "epsilon: 'auto' is chosen by decisions on training rows, and decide_on is "
            f"'{job.decide_on}'; give a number, or decide on 'train'"
        )
    if fed.train.weight is not None:
        raise MusterError(
            "epsilon: 'auto' divides training rows, and those with weights of their own cannot "
            "be; give a number"
        )
    if not (fed.sizes[fed.importance > 0] > FOLDS).any():
        raise MusterError(
            f"epsilon: 'auto' divides priority clients' rows into {FOLDS} folds, and none of them "
            f"has over {FOLDS}; give a number, or use assist, which needs none"
        )


def with_epsilon(job: Job, epsilon: float) -> Job:
    """Return the job with another epsilon."""
    return replace(job, method=replace(job.method, epsilon=Constant(epsilon)))


def build_fold(fed: Federation, f: int, seed: int) -> Federation:
    """Return the federation in which the objective's clients lack fold f (from 1), and are tested
    on it. Clients count for as many rows as before."""
    everyone = np.arange(fed.n)
    rows = FoldRows(fed.train.lists(everyone), Roster.of(fed, everyone), seed, FOLDS)
    held, sizes = rows.fold(f), np.zeros(fed.n, np.int64)
    sizes[rows.split] = held.sizes
    test = RowLists(np.concatenate([[0], np.cumsum(sizes)]), held.rows)
    part = with_rows(fed, fed.train.restrict(rows.without(f)), fed.train.restrict(test), "")
    return replace(part, counted=fed.sizes if fed.counted is None else fed.counted)


def get_column(job: Job) -> str:
    """Return the column of the ledger that the band compares: the loss, or the task's score."""
    by_loss = getattr(job.method.admit, "criterion", "loss") == "loss"
    return "loss" if by_loss else job.scoring.first.name


def find_gaps(run: Run, objective: Float64, column: str) -> Float64:
    """Return the gaps |F_k - F| of the clients outside the objective at every offered model, where
    F is the mean over those of the objective that were asked.

    Args:
        objective: each client's weight in the objective
    """
    known = run.clients.filter(pl.col(column).is_finite())
    at, value = known["round"].to_numpy(), known[column].to_numpy()
    weight = objective[known["client"].to_numpy()]
    total = np.bincount(at, weight)
    mean = np.bincount(at, weight * value) / np.where(total > 0, total, np.nan)
    gap: Float64 = np.abs(value - mean[at])[weight == 0]
    return gap[np.isfinite(gap)]


def find_candidates(gaps: Float64) -> list[float]:
    """Return the quantiles of the gaps, different and above 0."""
    if not len(gaps):
        return []
    return [float(e) for e in np.unique(np.quantile(gaps, QUANTILES)) if e > 0]


def pool_losses(losses: Float64, sizes: Int64, objective: Float64) -> Float64:
    """Return each candidate's loss out of fold: over the folds of a client by their rows, then over
    clients by their weights in the objective. A candidate without a loss where another has one
    has diverged: its loss is infinite.

    Args:
        losses: `[candidate, fold, client]`; NaN where a client has no rows, or no loss
        sizes: rows of each client in each fold, `[fold, client]`
    """
    known = np.isfinite(losses).any(0)
    rows = np.where(known, sizes, 0)
    weight = objective * rows / np.maximum(rows.sum(0), 1)
    sound = np.where(np.isfinite(losses), losses, np.inf)
    each = np.where(weight > 0, sound, 0.0) * weight
    pooled: Float64 = each.sum((1, 2)) / max(weight.sum(), np.finfo(np.float64).tiny)
    return pooled
