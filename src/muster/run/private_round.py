"""A private round: one sum of clipped contributions is released, with noise, whoever joined.

offer -> contributions -> sum -> charge, on disk -> noise -> release -> step and F(w)

What the server does after the release is a function of released and public numbers alone: the sum
is divided by a public weight, and the method's step gets it as one reply.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..base import params
from ..base.arrays import Bool, Float64, Int64
from ..base.errors import MusterError, plural
from ..base.lazy import torch
from ..base.params import Params, State
from ..parts.defences.group_trust import UNLIKE_GROUP
from ..privacy.account import Account, count_early
from ..privacy.contributions import Contributions, read_loss, restore_update
from ..privacy.fixed_point import Vectors, decode
from ..privacy.gaussian import OBJECTIVE, OTHERS
from ..privacy.noise import draw_vectors, seeded_words, system_words
from ..protocol import Appraisal, LedgerEntry, Offer, Replies, Roster, RunState, Traffic
from ..results.run_warnings import Facts
from ..schedules import value_after
from .contributors import NOT_FINITE
from .evaluation_cache import EvaluationCache
from .group_audit import audit_sums, build_standing, deal, find_possible, weigh_groups
from .job import Job
from .round import Setup, build_offer, measure_reference, select_pool
from .round_record import SCALAR, count_replies, record_moves, sum_traffic

PART = "privacy"  # the part of the server's state with what a private run has released
EPSILON = {role: f"epsilon_{role}" for role in (OBJECTIVE, OTHERS)}  # columns of a round


@dataclass(frozen=True)
class Release:
    """Released sums.

    Attributes:
        updates: `[group, number]`, the sum of each group's updates, with noise
        loss: what the sums have in the place of the losses; NaN: they have none
    """

    updates: Float64
    loss: float = math.nan


def build_private_state(job: Job, n: int, model: Params) -> State:
    """Return the server's state before the first release: releases that are charged, the smoothed
    F(w) with its weight, and each client's contributions, where they are counted here; and that of
    the audit."""
    zero = torch.zeros((), dtype=torch.float64)
    counts = torch.zeros(n, dtype=torch.int64)
    charged = torch.zeros((), dtype=torch.int64)
    own = {"charged": charged, "loss": zero, "mass": zero.clone(), "given": counts}
    return {PART: own | build_standing(job, n, model)}


def resume_account(job: Job, state: RunState, account: Account) -> RunState:
    """Return the state with the releases charged that came after its checkpoint: whoever could
    contribute to one that is lost is taken to have done so. A run that has nothing to show and
    nothing left to spend is refused, and one whose account is shorter than it was."""
    own = state.server.get(PART)
    known = state.round if own is None else int(own["charged"])  # rows: a round, a release
    if len(account.charged) < known:
        raise MusterError(
            f"{account.file}: {plural(len(account.charged), 'release')} charged, and the "
            f"checkpoint has {known}: the account was cut or deleted; restore "
            "it, or start another run, which is charged to the clients once more"
        )
    if state.round == 0 and is_spent(job, account):
        raise MusterError(
            f"privacy: all {plural(len(account.charged), 'release')} of the budget are charged in "
            f"{account.file}, and no round was completed; start another run, which is charged "
            "to the clients once more"
        )
    if own is None:
        return state
    lost = account.count_since(known)
    charged = torch.tensor(len(account.charged))
    part = {**own, "charged": charged, "given": own["given"] + lost}
    return replace(state, server={**state.server, PART: part})


def is_spent(job: Job, account: Account) -> bool:
    """Return True if no release is left: as many were charged as the run has rounds. With a budget
    of contributions clients stop at it themselves, whatever is repeated."""
    return job.get_privacy().joins is None and len(account.charged) >= job.rounds


def release(job: Job, offer: Offer, sums: Vectors, folded: bool) -> Release:
    """Return sums with noise of `noise * clip` in every number, which secure sums have already.
    Charge the account before."""
    privacy = job.get_privacy()
    if not privacy.secure:
        words = seeded_words(job.seed, offer.round) if privacy.seeded else system_words
        sums = sums + draw_vectors(sums.shape, job.noise_deviation(offer), words)
    values = decode(sums, privacy.clip, job.scale(offer))
    return Release(values[:, :-1], float(values[0, -1])) if folded else Release(values)


def play_private_round(
    setup: Setup, cache: EvaluationCache, state: RunState, account: Account
) -> tuple[RunState, LedgerEntry]:
    """Play one private round from `state`, and return the next state and the round's ledger
    entry."""
    job, t, population = setup.job, state.round, setup.population
    privacy, method, contributors = job.get_privacy(), job.method, setup.contributors
    assert contributors is not None, "the setup of a private run has its contributors"
    cache.use(state).begin_round()
    present = ~population.unseen
    pool = select_pool(setup, t, present)
    roster = invite(setup, pool, t)
    own, server = state.server[PART], {k: v for k, v in state.server.items() if k != PART}
    roster = deal(job, population, roster, t, own)
    offer = build_offer(setup, state)
    if method.refers:
        offer = add_reference(setup, offer, roster, cache, own)
    memories = state.clients
    given = np.asarray(own["given"].cpu().numpy(), np.int64)
    memory = {} if memories is None else memories.get(roster.clients)
    asked = (offer, roster, given[roster.clients], cache, memory)
    if privacy.secure:
        answers = contributors.contribute_securely(*asked, lambda: account.charge(t))
    else:
        answers = contributors.contribute(*asked)
        account.charge(t)
    due = privacy.find_due(roster, t, job.rounds)
    model, released, factor = offer.model, Release(np.empty((0, 0))), np.ones(privacy.groups)
    answers, possible = drop_impossible(job, offer, roster, answers)
    if answers.sums is not None:
        released = release(job, offer, answers.sums, privacy.folded and method.refers)
        weight = weigh_groups(job, offer, roster, due)
        about = (job, offer, roster, weight, possible, released.updates, own)
        factor, audited = audit_sums(*about)
        own = {**own, **audited}
        model, server = take_private_step(job, offer, weight, released, factor, server)
    joined = answers.decision.yes
    counts = own["given"].clone()
    counts[torch.from_numpy(roster.clients[joined])] += 1
    own = {
        **own,
        **smooth_loss(job, roster, due, released, own),
        "charged": torch.tensor(len(account.charged)),
        "given": counts,
    }
    if memories is not None and answers.state:
        memories = memories.after(roster.clients[joined], answers.state)
    following = RunState(t + 1, model, {**server, PART: own}, memories, present)
    counts_in = factor[roster.group] > 0
    return following, record_private_round(
        setup, offer, roster, answers, counts_in, account, len(pool)
    )


def drop_impossible(
    job: Job, offer: Offer, roster: Roster, answers: Contributions
) -> tuple[Contributions, Bool]:
    """Return which groups' sums honest clients can have, and the answers with an event for each
    other; without sums, if the first is one of those: the model then stays."""
    if answers.sums is None:
        return answers, np.zeros(0, np.bool_)
    possible = find_possible(job, offer, roster, answers.sums)
    why = "the secure sum is longer than those of honest clients: someone spoilt it; it is not used"
    events = (*answers.events, *[(-1, why)] * int((~possible).sum()))
    sums = answers.sums if possible[0] else None
    return replace(answers, sums=sums, events=events), possible


def invite(setup: Setup, pool: Int64, t: int) -> Roster:
    """Return the clients asked, by public numbers, with a_k as the share of each."""
    population, job = setup.population, setup.job
    roster = Roster.of(population, pool)
    if len(pool):
        roster = job.method.invite(population, pool, job.seed, t, refuse_losses)
    weight = job.get_privacy().weights(population.rows)[roster.clients]
    return replace(roster, share=weight, full=weight)


def refuse_losses(clients: Int64) -> Float64:
    """Raise: no private invitation asks for losses."""
    raise AssertionError("an invitation by losses is refused before the run")


def add_reference(
    setup: Setup, offer: Offer, roster: Roster, cache: EvaluationCache, own: Params
) -> Offer:
    """Return the offer with eps_t and F(w): exact, by a public schedule, or as last released."""
    job, t, score = setup.job, offer.round, math.nan
    privacy = job.get_privacy()
    if privacy.protect == "others":
        loss, score, _ = measure_reference(setup, offer, roster.clients, cache)
    elif privacy.loss is not None:
        loss = value_after(privacy.loss, 0, t, job.rounds)
    else:
        mass = float(own["mass"])
        loss = float(own["loss"]) / mass if mass else math.nan
        loss = min(max(loss, 0.0), privacy.most_loss) if mass else math.nan
    return replace(offer, loss=loss, score=score, eps=job.eps(t))


def take_private_step(
    job: Job, offer: Offer, weight: Float64, released: Release, factor: Float64, server: State
) -> tuple[Params, State]:
    """Return the next model and the server's state after the method's step, which gets one reply:
    the model moved by the sum of the groups that count, divided by their public weight."""
    privacy, method = job.get_privacy(), job.method
    total, counted = float(weight.sum()), float(weight[factor > 0].sum())
    divisor = privacy.denominator or total or 1.0
    divisor *= counted / total if counted else 1.0
    by = restore_update(factor @ released.updates / divisor, offer.model)
    models = {n: (w.to(torch.float64) + by[n]).to(w.dtype)[None] for n, w in offer.model.items()}
    nobody = Roster(np.zeros(1, np.int64), np.ones(1, np.bool_), np.ones(1), np.ones(1))
    reply = Replies(nobody, models, Appraisal.unknown(1), np.full(1, np.nan))
    # The step of MaxFL divides by the sum of claims and a constant: the claims were scaled to 1.
    claims = method.claim.most if method.claim.needs_requirement else 1.0
    model, after = method.step(offer, reply, np.array([divisor * claims]), server)
    return model, {**server, **after}


def smooth_loss(
    job: Job, roster: Roster, due: Bool, released: Release, own: Params
) -> dict[str, Any]:
    """Return the smoothed F(w) and its weight after a release; the same where it had none."""
    privacy = job.get_privacy()
    weight = float((roster.share * roster.importance * due)[roster.group == 0].sum())
    if math.isnan(released.loss) or weight == 0:
        return {"loss": own["loss"], "mass": own["mass"]}
    new, stays = read_loss(privacy, released.loss, weight), privacy.smoothing
    return {
        "loss": stays * own["loss"] + (1 - stays) * new,
        "mass": stays * own["mass"] + (1 - stays),
    }


def find_spent(job: Job, account: Account, played: int) -> list[str]:
    """Return a warning of a run that ended early, because rounds were repeated."""
    if played >= job.rounds or not is_spent(job, account):
        return []
    again = plural(len(account.charged) - played, "release")
    return [
        f"the privacy budget was spent after round {played} of {job.rounds}: {again} had to be "
        "repeated, and count"
    ]


def describe_privacy(job: Job, account: Account) -> Facts:
    """Return the facts of a private run: what it promised, and what it has cost."""
    privacy = job.get_privacy()
    early = count_early(account.charged, job.warmup)
    spent = privacy.account(job.rounds, job.warmup, len(account.charged), early)
    return {
        "privacy": {
            "private": privacy.private,
            "unit": privacy.unit,
            "protect": privacy.protect,
            "clip": float(privacy.clip),
            "noise": job.noise,
            "delta": float(privacy.delta),
            "releases": len(account.charged),
            **{EPSILON[role]: value for role, value in spent.items() if value is not None},
        }
    }


def record_private_round(
    setup: Setup,
    offer: Offer,
    roster: Roster,
    answers: Contributions,
    counts: Bool,
    account: Account,
    pool: int,
) -> LedgerEntry:
    """Return a round's rows of the ledger. Released are the round, eps, F(w) and the epsilons.

    Args:
        counts: True for clients whose group counts
    """
    job, n, t = setup.job, len(roster), offer.round
    joined, failed = answers.decision.yes, answers.failed
    reason = answers.decision.reason.astype(np.dtypes.StringDType())
    reason[joined & ~counts] = UNLIKE_GROUP
    admitted = joined & counts & (reason != NOT_FINITE)
    down = np.full(n, params.nbytes(offer.model) + 2 * SCALAR * job.method.refers)
    sends = joined | job.get_privacy().secure
    numbers = np.dtype(np.uint32).itemsize * job.count_numbers(offer.model)
    traffic = answers.traffic or Traffic(np.where(sends, numbers, 0), down)
    spent = job.get_privacy().account(
        job.rounds, job.warmup, len(account.charged), count_early(account.charged, job.warmup)
    )
    row = {
        **count_replies(offer, roster, joined, failed, admitted),
        "skipped": answers.sums is None,
        "steps": int(answers.steps.sum()),
        **sum_traffic(traffic),
        "releases": len(account.charged),
        **{EPSILON[role]: value for role, value in spent.items() if value is not None},
        "pool": pool,
        "left": 0,
        "returned": 0,
    }
    columns = {
        "round": np.full(n, t + 1),
        "client": roster.clients,
        "priority": roster.priority,
        "joined": joined,
        "admitted": admitted,
        "reason": reason,
        "weight": answers.weight,
        "claim": answers.claim,
        "loss": answers.appraisal.loss,
        offer.score_name: answers.appraisal.score,
        "steps": answers.steps,
        "bytes_up": traffic.up,
        "bytes_down": traffic.down,
    }
    everyone = np.ones(setup.population.n, np.bool_)
    moves = record_moves(t, everyone, everyone, answers.events)
    return LedgerEntry(row, columns, moves=moves)
