"""The sum that a private round would release, before its noise."""

from __future__ import annotations

import numpy as np
import torch

from muster.base import params
from muster.engines import Compute, choose
from muster.run import group_audit, private_round
from muster.run.contributors import LocalContributors
from muster.run.evaluation_cache import EvaluationCache
from muster.run.local_clients import LocalClients
from muster.run.round import Setup, build_offer, select_pool
from muster.run.training_loop import build_initial_state


def sum_round(job, fed, t=0, released=0.0, without=None):
    """The sums of whole numbers of a round, all groups end to end, and the whole number that stands
    for the clip."""
    work = choose(
        Compute("loop", dtype="float64", processes=1), job.model, fed, job.local, job.task
    )
    clients = LocalClients(fed, job, work)
    try:
        setup = Setup(fed.population, job, clients)
        start = params.get_params(job.model, torch.float64, work.device)
        state = build_initial_state(setup, start, job.memory(start, work.trainable))
        state.round = t
        own = state.server[private_round.PART]
        own |= {"loss": torch.tensor(released), "mass": torch.tensor(1.0)}
        cache = EvaluationCache(clients.appraise, clients.evaluate, fed.n).use(state)
        roster = private_round.invite(setup, select_pool(setup, t, ~fed.unseen), t)
        offer = build_offer(setup, state)
        roster = group_audit.deal(job, fed.population, roster, t, own)
        if job.method.refers:
            offer = private_round.add_reference(setup, offer, roster, cache, own)
        if without is not None:
            roster = roster.pick(roster.clients != without)
        memory = {} if state.clients is None else state.clients.get(roster.clients)
        given = np.zeros(len(roster), np.int64)
        done = LocalContributors(clients).contribute(offer, roster, given, cache, memory)
        return done.sums.ravel(), job.scale(offer)
    finally:
        work.close()
