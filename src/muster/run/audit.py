"""The audit of a round: replies are bounded, some are tried out, and those that are worth it count.

What is checked, and why, is `parts.trust` (and `parts.peers`, where nobody is outside the
objective); here is whom it concerns, and the one extra exchange: those who are trusted appraise a
few candidate models (`Clients.trial`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..base.arrays import Bool, Float64, Int64, Text
from ..base.lazy import torch
from ..base.params import Params, State
from ..federation import Population
from ..methods import Method
from ..parts.defences.trust import Audit, Inquiry, draw_replies, estimate_effects
from ..protocol import Offer, Replies, Trial
from .clients import Clients
from .evaluation_cache import EvaluationCache

TRUST = "trust"  # the part of the server's memory that audits keep


@dataclass(frozen=True)
class Ruling:
    """What an audit leaves: the replies, bounded; how far each counts, and its weight; why not; the
    trial, where there was one; and what is remembered."""

    replies: Replies
    extent: Float64
    weight: Float64
    refused: Bool
    reason: Text
    trial: Trial | None
    server: State


@dataclass(frozen=True)
class Case:
    """The replies that were admitted, and what can be made of them.

    Attributes:
        extent: how far each was admitted
        own: how far each counts in any case, for its own place in the objective
        inquiry: what is known of them before anybody is asked
    """

    clients: Clients
    method: Method
    trust: Audit
    offer: Offer
    extent: Float64
    own: Float64
    inquiry: Inquiry
    server: State
    cache: EvaluationCache

    def counted(self, some: Bool) -> tuple[Float64, Float64]:
        """How far replies count, and their weights, when some count in full, and the others only
        for their own place in the objective."""
        to = np.where(some, self.extent, np.minimum(self.extent, self.own))
        to[self.inquiry.barred] = 0.0
        weight, let_in = np.zeros(len(to)), to > 0
        if let_in.any():
            weight[let_in] = self.method.weigh(
                self.inquiry.replies.pick(let_in), to[let_in], self.server
            )
        return to, self.trust.cap_weights(weight, self.inquiry.root, self.inquiry.copies)

    def model(self, weight: Float64) -> Params:
        """The model that would come of these weights."""
        let_in = weight > 0
        if not let_in.any():
            return self.offer.model
        replies = self.inquiry.replies.pick(let_in)
        return self.method.step(self.offer, replies, weight[let_in], self.server)[0]

    def ask(self, weights: Sequence[Float64], voters: Bool) -> Trial:
        """What these say of w, and of the model that would come of each of these weights."""
        models = [self.clients.deliver(self.model(weight)) for weight in weights]
        who = self.inquiry.replies.roster.pick(voters).clients
        return self.clients.try_models(self.offer, models, who, self.cache)


def audit(
    population: Population,
    clients: Clients,
    method: Method,
    trust: Audit,
    offer: Offer,
    replies: Replies,
    extent: Float64,
    server: State,
    cache: EvaluationCache,
) -> Ruling:
    """Bound, check and try out the replies that were admitted to this extent."""
    seen, heard = ~population.unseen, replies.roster.priority[extent > 0].any()
    # A method that is not for the priority clients may ask a round without any of them.
    everyone = bool(population.priority[seen].all()) or not (heard or method.refers)
    admitted = extent > 0
    told, who = server[TRUST], replies.roster.clients[admitted]
    was = told["like"].cpu()[who].numpy()
    inquiry = trust.inquire(offer, replies.pick(admitted), everyone, float(told["norm"]), was)
    own = np.zeros(int(admitted.sum())) if everyone else inquiry.replies.roster.importance
    case = Case(clients, method, trust, offer, extent[admitted], own, inquiry, server, cache)
    full, trial, history = among_peers(case) if everyone else with_a_root(case)
    to, weight = case.counted(full)
    full_to, full_weight = np.zeros(len(extent)), np.zeros(len(extent))
    full_to[admitted], full_weight[admitted] = to, weight
    refused, reason = np.zeros(len(extent), np.bool_), np.full(len(extent), "", dtype="U40")
    refused[admitted] = (to == 0) | ~full
    reason[admitted] = inquiry.reason
    after = put_back(replies, inquiry.replies, admitted)
    norm = torch.tensor(inquiry.norm, dtype=torch.float64)
    return Ruling(
        after, full_to, full_weight, refused, reason, trial, {TRUST: {**history, "norm": norm}}
    )


Found = tuple[Bool, Trial | None, Params]  # who counts in full, who said so, what is remembered


def with_a_root(case: Case) -> Found:
    """The largest group that the priority clients find worth it counts next to them."""
    root, roster, history = case.inquiry.root, case.inquiry.replies.roster, case.server[TRUST]
    tried = [group for group in case.inquiry.groups if group.any()]
    if not tried:
        return root, None, history
    weights = [case.counted(root | group)[1] for group in tried]
    share = np.array([w[group].sum() / w.sum() for w, group in zip(weights, tried, strict=True)])
    trial = case.ask([case.counted(root)[1], *weights], root)
    at = case.trust.choose_group(trial.values, roster.pick(root).share, share)
    return root if at is None else root | tried[at], trial, history


def among_peers(case: Case) -> Found:
    """Those count who are like the others, and whose updates have done no harm."""
    trust, kin, who = case.trust, case.inquiry.root, case.inquiry.replies.roster.clients
    history = added(case.server[TRUST], who, trust.recall, like=case.inquiry.like)
    if not kin.any():
        return kin, None, history
    alone = case.inquiry.copies == 1
    inside = standing(history, who, kin, alone, trust.harm)
    inside = inside if inside.any() else kin
    tried = draw_replies(kin, trust.tried, case.offer, who)
    others = [np.arange(len(kin)) == k for k in tried]
    weights = [case.counted(inside ^ one)[1] for one in others]
    trial = case.ask([case.counted(inside)[1], *weights], kin)
    weight = 1 / case.inquiry.copies[kin]
    effect = estimate_effects(trial.values[1:], inside[tried], alone[tried], weight, trust.loudest)
    if effect is None:
        return inside, trial, history
    history = added(history, who[tried], trust.recall, effect=effect, told=np.ones(len(effect)))
    full = standing(history, who, kin, alone, trust.harm)
    return full if full.any() else kin, trial, history


def standing(history: Params, clients: Int64, kin: Bool, alone: Bool, harm: float) -> Bool:
    """Which of those who are kin have done no harm, as far as is remembered: whose mean effect is
    not below `-harm` times the median size of such a mean, copies aside."""
    effect, told = (history[name].cpu()[clients].numpy() for name in ("effect", "told"))
    mean = effect / np.maximum(told, 1e-300)
    known = kin & alone & (told > 0)
    middle = float(np.median(np.abs(mean[known]))) if known.any() else 0.0
    return np.asarray(kin & (mean >= -harm * middle), np.bool_)


def added(history: Params, clients: Int64, recall: float, **new: Float64) -> Params:
    """What is remembered of clients after this round: sums in which the last rounds count most.
    `effect / told` is a mean, `told` being the same sum of ones."""
    sums = {}
    for name, add in new.items():
        sums[name] = history[name].cpu().clone()  # a checkpoint is read onto the run's device
        sums[name][clients] = recall * sums[name][clients] + torch.from_numpy(add)
    return {**history, **sums}


def remembered(n: int) -> State:
    """What the server remembers before the first audit: no median update, and no client's likeness
    or effect (`parts.peers`)."""
    norm = torch.tensor(float("inf"), dtype=torch.float64)
    nothing = {name: torch.zeros(n, dtype=torch.float64) for name in ("like", "effect", "told")}
    return {TRUST: {"norm": norm, **nothing}}


def put_back(replies: Replies, some: Replies, rows: Bool) -> Replies:
    """The replies with some of them changed."""
    if rows.all():
        return some
    at = torch.from_numpy(np.flatnonzero(rows))
    models = {
        n: t.index_copy(0, at.to(t.device), some.models[n]) for n, t in replies.models.items()
    }
    return replace(replies, models=models)
