"""The record of a round: its rows of the ledger, and the bytes it needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import params
from ..base.arrays import Bool, Int64
from ..base.lazy import torch
from ..base.params import Params, State
from ..federation import Population
from ..methods import Method
from ..parts.tracks import PRODUCT
from ..protocol import Admission, Answers, LedgerEntry, Offer, Roster, Traffic, Trial
from .evaluation_cache import EvaluationCache

SCALAR = 8  # bytes of a number in a message


@dataclass(frozen=True)
class Outcome:
    """The result of a round: the answers, the new model and server state, the admission of the
    replies, and that of honest ones where some clients attack."""

    answers: Answers
    model: Params
    server: State
    admission: Admission
    honest: Admission | None
    trial: Trial | None = None


def has_help(method: Method, model: Params) -> bool:
    """Return True if the deployed model is another than the one trained without help."""
    assert method.tracks is not None, "a method that deploys trains several models"
    alone = method.tracks.unhelped.start
    return any(not torch.equal(t[PRODUCT], t[alone]) for t in model.values())


def record_moves(
    t: int, before: Bool, after: Bool, events: tuple[tuple[int, str], ...]
) -> dict[str, NDArray[Any]]:
    """Return the rows of `moves`: clients that left the pool or returned, and other events."""
    left = returned = np.empty(0, np.int64)
    if before is not after:
        left, returned = np.flatnonzero(before & ~after), np.flatnonzero(~before & after)
    words = ["left"] * len(left) + ["returned"] * len(returned) + [what for _, what in events]
    move = np.array(words, np.dtypes.StringDType())
    clients = np.concatenate([left, returned, np.array([k for k, _ in events], np.int64)])
    return {"round": np.full(len(clients), t + 1), "client": clients, "move": move}


def record_attackers(attackers: Int64, offer: Offer, outcome: Outcome) -> dict[str, NDArray[Any]]:
    """Return the rows of `attackers`: each one's share of the step, and the share an honest reply
    would have had (0 if it would have abstained)."""
    admission, honest = outcome.admission, outcome.honest
    if honest is None:
        return {}
    clients = outcome.answers.replies.roster.clients
    who = np.isin(clients, attackers)
    return {
        "round": np.full(int(who.sum()), offer.round + 1),
        "client": clients[who],
        "admitted": admission.admitted[who],
        "weight": admission.weight[who],
        "honest_weight": honest.weight[who],
    }


def compute_traffic(
    method: Method, offer: Offer, roster: Roster, answers: Answers, cache: EvaluationCache
) -> Traffic:
    """Compute the bytes a round needs at least: models and the numbers that go with them."""
    asked = roster.clients
    consulted = cache.count_consulted(asked)  # and not asked to train
    alone = method.serves == "own"
    model = params.nbytes(offer.model)
    down = 0 if alone else model + sum(params.nbytes(p) for p in offer.server.values())
    down += 2 * SCALAR if method.refers else 0  # F(w) and eps_t
    member = roster.importance > 0
    up = np.where(member, *(reply_size(method, offer, whose) for whose in (True, False)))
    up = np.where(alone, 0, up) + SCALAR * (method.reports + method.claims)  # F_k(w), a claim
    polled = SCALAR * cache.polled[asked]  # F_k(w), before the invitation
    if answers.missing is not None:  # models that were fetched after their sketches
        helped = answers.replies.roster.pick(
            (answers.missing == "") & ~(answers.replies.roster.importance > 0)
        )
        up = up + model * np.isin(asked, helped.clients)
    return Traffic(
        np.where(answers.decision.yes, up, 0) + polled,
        np.full(len(asked), down),
        SCALAR * consulted,
        model * consulted,
    )


def reply_size(method: Method, offer: Offer, member: bool) -> int:
    """Return the bytes of the arrays in a reply of a client of the objective, or of a helper."""
    model = offer.model
    shapes = {n: tuple(t.shape) for n, t in model.items()}
    own, extra = method.reply_shapes(shapes, member, offer.trainable)
    numbers = sum(math.prod(shape) for table in (own, *extra.values()) for shape in table.values())
    return numbers * next(iter(model.values())).element_size()


def add_trial_traffic(traffic: Traffic, roster: Roster, trial: Trial | None, model: int) -> Traffic:
    """Add the bytes of a trial: its models down, a number for each of them up."""
    if trial is None:
        return traffic
    models = len(trial.values) - 1  # clients have the round's model
    up = np.full(len(trial.clients), SCALAR * (models + 1))
    down = np.full(len(trial.clients), models * model)
    if trial.traffic is not None:
        up, down = trial.traffic
    at = np.searchsorted(roster.clients, trial.clients, sorter=np.argsort(roster.clients))
    at = np.argsort(roster.clients)[at]
    both = traffic.up.copy(), traffic.down.copy()
    np.add.at(both[0], at, up)
    np.add.at(both[1], at, down)
    return replace(traffic, up=both[0], down=both[1])


def count_trials(trial: Trial | None) -> int:
    """Count the appraisals of candidate models."""
    return 0 if trial is None else (len(trial.values) - 1) * len(trial.clients)


def count_replies(
    offer: Offer, roster: Roster, joined: Bool, failed: Bool, admitted: Bool
) -> dict[str, Any]:
    """Return the round of an offer, what it said, and how many were asked and what they did."""
    return {
        "round": offer.round + 1,
        "eps": offer.eps,
        "reference_loss": offer.loss,
        "asked": len(roster),
        "joined": int(joined.sum()),
        "silent": int((~joined & ~failed).sum()),
        "failed": int(failed.sum()),
        "admitted": int(admitted.sum()),
        "admitted_nonpriority": int((admitted & ~roster.priority).sum()),
        "refused": int((joined & ~admitted).sum()),
    }


def sum_traffic(traffic: Traffic) -> dict[str, int]:
    """Return the bytes of a round to and from everyone."""
    return {
        "bytes_down": int(traffic.down.sum()) + traffic.others_down,
        "bytes_up": int(traffic.up.sum()) + traffic.others_up,
    }


def record_round(
    method: Method,
    population: Population,
    offer: Offer,
    roster: Roster,
    outcome: Outcome,
    cache: EvaluationCache,
) -> LedgerEntry:
    """Return a round's row of `rounds` and its rows of `clients`."""
    answers, admission, trial = outcome.answers, outcome.admission, outcome.trial
    n, joined, failed = len(roster), answers.decision.yes, answers.failed
    replied = answers.replies.roster
    answered = np.ones(n, np.bool_)
    if len(replied) < n:
        answered = np.isin(roster.clients, replied.clients)

    def spread(values: NDArray[Any], empty: object) -> NDArray[Any]:
        out = np.full(n, empty, dtype=values.dtype)
        out[answered] = values
        return out

    admitted = spread(admission.admitted, False)
    reason = answers.decision.reason.astype(np.dtypes.StringDType())
    reason[answered & ~admitted] = admission.reason[~admission.admitted]
    # S_t: the extent of admitted replies beyond their clients' importance in the objective.
    beyond = np.maximum(admission.extent - replied.importance, 0.0)
    helped = float((beyond * replied.full).sum())
    objective = population.objective[roster.clients]
    # A reply whose weight is 0 by the rule of weights still arrived.
    useless = reason == getattr(method.weigh, "refuses", "")
    sound = objective[~failed & (admitted | ~joined | useless)].sum()
    traffic = answers.traffic or compute_traffic(method, offer, roster, answers, cache)
    traffic = add_trial_traffic(traffic, roster, trial, params.nbytes(offer.model))
    row = {
        **count_replies(offer, roster, joined, failed, admitted),
        "skipped": not float(admission.weight.sum()) > 0,
        "theta": 1.0 / (1.0 + helped),
        "steps": int(answers.steps.sum()),
        **({} if method.trust is None else {"trials": count_trials(trial)}),
        **({} if method.deploy is None else {"helped": has_help(method, outcome.model)}),
        **sum_traffic(traffic),
    }
    columns = {
        "round": np.full(n, offer.round + 1),
        "client": roster.clients,
        "priority": roster.priority,
        "joined": joined,
        "admitted": admitted,
        "reason": reason,
        "weight": spread(admission.weight, 0.0),
        "claim": spread(answers.replies.claim, np.nan),
        "loss": answers.appraisal.loss,
        offer.score_name: answers.appraisal.score,
        "steps": spread(answers.steps, 0),
        "bytes_up": traffic.up,
        "bytes_down": traffic.down,
    }
    share = float(sound / objective.sum()) if objective.sum() > 0 else 1.0
    return LedgerEntry(row, columns, answered=share)
