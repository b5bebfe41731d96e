"""Judging replies: the objective's clients try every reply on rows that they hold out.

One exchange more in a round, after the replies: each client of the objective gets all sound ones,
and answers with its loss of each on one fold of its rows, which it never trains on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..base.arrays import Float64, Int64
from ..base.lazy import torch
from ..base.params import select
from ..federation import Population
from ..parts.evidence import IMPROVEMENT, base_weights
from ..parts.guard import guard
from ..parts.tracks import cut
from ..protocol import Answers, Offer, Trial
from .clients import Clients
from .evaluation_cache import EvaluationCache
from .folds import squared_lengths
from .job import Job

AT_ONCE = 32  # models in one message


def judge_replies(
    population: Population,
    clients: Clients,
    job: Job,
    offer: Offer,
    answers: Answers,
    cache: EvaluationCache,
) -> tuple[Answers, Trial | None]:
    """Return the answers with each reply's improvement of the loss on held-out rows and its
    distance from the offered model, and the trial by which it was measured."""
    replies, trial = answers.replies, None
    better = np.zeros(len(replies.roster))
    sound = guard(offer, replies, job.method.reports, can=job.possible).yes
    base = base_weights(replies.roster, sound.astype(np.float64))
    base[population.sizes[replies.roster.clients] <= job.method.held_out] = 0.0
    if base.any():
        models = select(replies.models, sound)
        parts = [
            [cut(models, i) for i in range(start, min(start + AT_ONCE, int(sound.sum())))]
            for start in range(0, int(sound.sum()), AT_ONCE)
        ]
        who = replies.roster.clients[base > 0]
        trial = join_trials([clients.try_models(offer, some, who, cache) for some in parts])
        better[sound] = mean_improvement(trial.values, base[base > 0])
    like = next(iter(offer.model.values()))
    way = np.sqrt(squared_lengths(offer, replies.models).sum(1)) if len(better) else better
    numbers = {"loss": better, "way": np.where(sound, way, 0.0)}
    table = {name: torch.from_numpy(values).to(like.device) for name, values in numbers.items()}
    extra = {**replies.extra, IMPROVEMENT: table}
    return replace(answers, replies=replace(replies, extra=extra)), trial


def mean_improvement(values: Float64, weight: Float64) -> Float64:
    """Return how much lower the mean loss of each candidate is than that of the round's model, at
    least 0: over the clients that answered, by these weights.

    >>> mean_improvement(np.array([[2.0, np.nan], [1.5, 1.0], [9.0, 1.0]]), np.array([0.5, 0.5]))
    array([0.5, 0. ])
    """
    known = np.isfinite(values[0])
    if not known.any():
        return np.zeros(len(values) - 1)
    better = values[0, known] - values[1:, known]
    mean = better @ (weight[known] / weight[known].sum())
    return np.where(np.isfinite(mean), np.maximum(mean, 0.0), 0.0)


def join_trials(trials: list[Trial]) -> Trial:
    """Return several trials of the same clients as one, with all their models."""
    first, counted = trials[0], [trial.traffic for trial in trials if trial.traffic is not None]
    traffic: tuple[Int64, Int64] | None = None
    if counted:
        up, down = np.array(counted).sum(0)
        traffic = (up, down)
    return Trial(
        np.concatenate([first.values[:1], *(trial.values[1:] for trial in trials)]),
        first.clients,
        traffic,
        tuple(event for trial in trials for event in trial.events),
    )
