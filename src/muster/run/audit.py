"""The trust audit of a round: replies are bounded, tried out, and admitted if they do no harm.

The checks and their reasons are in `parts.defences.trust`; here they are applied to a round, with
one extra exchange: trusted clients appraise a few candidate models (`Clients.try_models`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..base.arrays import Bool, Float64, Int64
from ..base.lazy import torch
from ..base.params import Params, State
from ..federation import Population
from ..methods import Method
from ..parts.defences.geometry import directions, gradient_names, updates
from ..parts.defences.trust import (
    TURNED,
    Audit,
    Inquiry,
    draw_replies,
    estimate_effects,
    find_crowds,
    limit_pull,
)
from ..protocol import Admission, Decision, Offer, Replies, Trial
from .clients import Clients
from .evaluation_cache import EvaluationCache

TRUST = "trust"  # the part of the server's state that audits use
TIMES = "told"  # its table of how often each client's effect was measured, as checkpoints name it


@dataclass(frozen=True)
class AuditResult:
    """The result of an audit: bounded replies, their admission, the trial, where there was one, and
    the audit's part of the server's state."""

    replies: Replies
    admission: Admission
    trial: Trial | None
    server: State


@dataclass(frozen=True)
class AdmittedReplies:
    """The replies that were admitted, and the models that would result from them.

    Attributes:
        extent: how far each was admitted
        own: how far each counts in any case, by its client's importance in the objective
        inquiry: what is known of them before any client is asked
        peers: True if clients check one another, since nobody is outside the objective
        evidence: True if the method weighs by evidence
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
    peers: bool
    evidence: bool

    @cached_property
    def rows(self) -> torch.Tensor:
        """The updates over what moves by gradient, one row per reply."""
        return updates(self.offer, self.inquiry.replies.models, gradient_names(self.offer))

    @cached_property
    def base(self) -> Float64:
        """The weights if only the root counts in full."""
        root, weight = self.inquiry.root, self.weigh_as_the_method(self.inquiry.root)[1]
        return self.trust.cap_weights(weight, weight, root, self.inquiry.copies)

    def weigh(self, some: Bool) -> tuple[Float64, Float64]:
        """Return how far replies count, and their weights, if some count in full, and the others
        only by their importance in the objective; bounded, in sum too where there is a root."""
        to, weight = self.weigh_as_the_method(some)
        root, copies = self.inquiry.root, self.inquiry.copies
        if self.peers:
            return to, self.trust.cap_weights(weight, weight, root, copies)
        if not self.evidence:
            weight = self.trust.cap_weights(weight, self.base, root, copies)
        return to, limit_pull(self.rows, self.base, weight)

    def weigh_as_the_method(self, some: Bool) -> tuple[Float64, Float64]:
        """Return how far replies count and their weights as the method gives them."""
        to = np.where(some, self.extent, np.minimum(self.extent, self.own))
        to[self.inquiry.barred] = 0.0
        weight, let_in = np.zeros(len(to)), to > 0
        if let_in.any():
            weight[let_in] = self.method.weigh(
                self.inquiry.replies.pick(let_in), to[let_in], self.server
            )
        return to, weight

    def build_model(self, weight: Float64) -> Params:
        """Return the model that a step with these weights would give."""
        let_in = weight > 0
        if not let_in.any():
            return self.offer.model
        replies = self.inquiry.replies.pick(let_in)
        return self.method.step(self.offer, replies, weight[let_in], self.server)[0]

    def try_weights(self, weights: Sequence[Float64], voters: Bool) -> Trial:
        """Return the voters' losses of w, and of the model of each of these weights."""
        models = [self.clients.deliver(self.build_model(weight)) for weight in weights]
        who = self.inquiry.replies.roster.pick(voters).clients
        return self.clients.try_models(self.offer, models, who, self.cache)


def refuse_turned(
    trust: Audit, offer: Offer, replies: Replies, sound: Decision, server: State, all_reply: bool
) -> tuple[Decision, State]:
    """Refuse sound replies of priority clients that all replies together call turned round; return
    also the audit's part of the server's state, which remembers them.

    Args:
        all_reply: True if helpers reply in this round whatever their loss
    """
    yes, memory = np.flatnonzero(sound.yes), server[TRUST]
    who, scores = replies.roster.clients[yes], memory["turned"].cpu().clone()
    before = scores[who].numpy()
    turned, score = trust.find_turned(offer, replies.pick(sound.yes), before, all_reply)
    scores[who] = torch.from_numpy(score)
    out, reason = np.zeros(len(sound.yes), np.bool_), sound.reason.astype("U40")
    out[yes[turned]] = True
    reason[out] = TURNED
    return Decision(sound.yes & ~out, reason), {TRUST: {**memory, "turned": scores}}


def audit(
    population: Population,
    clients: Clients,
    method: Method,
    trust: Audit,
    offer: Offer,
    replies: Replies,
    admission: Admission,
    server: State,
    cache: EvaluationCache,
) -> AuditResult:
    """Bound, check and try out the replies that were admitted.

    Where the method weighs by evidence (`assist`) a helper that is far away counts for little, and
    all of them together move the step by a standard error at most: only the priority clients'
    replies are bounded, and nothing is tried out.
    """
    evidence = bool(getattr(method.weigh, "bounded", False))
    trust = replace(trust, norm=trust.absurd) if evidence else trust
    extent = admission.extent
    seen, judged = ~population.unseen, replies.roster.priority[extent > 0].any()
    # A method that is not for the priority clients may ask a round without any of them.
    everyone = bool(population.priority[seen].all()) or not (judged or method.refers)
    admitted = extent > 0
    before, who = server[TRUST], replies.roster.clients[admitted]
    like = before["like"].cpu()[who].numpy()
    inquiry = trust.inquire(offer, replies.pick(admitted), everyone, float(before["norm"]), like)
    own = np.zeros(int(admitted.sum())) if everyone else inquiry.replies.roster.importance
    case = AdmittedReplies(
        clients,
        method,
        trust,
        offer,
        extent[admitted],
        own,
        inquiry,
        server,
        cache,
        everyone,
        evidence,
    )
    full, trial, history = audit_among_peers(case) if everyone else audit_with_root(case)
    to, weight = case.weigh(full)
    full_to, full_weight = np.zeros(len(extent)), np.zeros(len(extent))
    full_to[admitted], full_weight[admitted] = to, weight
    refused, reason = np.zeros(len(extent), np.bool_), np.full(len(extent), "", dtype="U40")
    refused[admitted] = (to == 0) | ~full
    reason[admitted] = inquiry.reason
    reason = np.where(refused, reason, admission.reason)
    norm = torch.tensor(inquiry.norm, dtype=torch.float64)
    return AuditResult(
        replace_rows(replies, inquiry.replies, admitted),
        Admission(full_to, full_weight, reason),
        trial,
        {TRUST: {**history, "norm": norm}},
    )


Finding = tuple[Bool, Trial | None, Params]  # replies that count in full, the trial, the history


def audit_with_root(case: AdmittedReplies) -> Finding:
    """Admit, next to the priority clients, the largest group by which the model improves for
    them."""
    root, roster, history = case.inquiry.root, case.inquiry.replies.roster, case.server[TRUST]
    if case.evidence:
        return ~case.inquiry.barred, None, history
    groups = [group for group in case.inquiry.groups if group.any()]
    if not groups:
        return root, None, history
    weights = [case.weigh(root | group)[1] for group in groups]
    share = np.array(
        [w[group].sum() / max(w.sum(), 1e-300) for w, group in zip(weights, groups, strict=True)]
    )
    trial = case.try_weights([case.base, *weights], root)
    voters = roster.pick(root)
    cost = history["cost"].cpu()[voters.clients].numpy()
    at, cost = case.trust.choose_group(trial.values, voters.share, share, cost)
    history = {**history, "cost": history["cost"].cpu().clone()}
    history["cost"][voters.clients] = torch.from_numpy(cost)
    return root if at is None else root | groups[at], trial, history


def audit_among_peers(case: AdmittedReplies) -> Finding:
    """Admit replies that are like the others, and whose clients' updates have done no harm."""
    trust, kin, who = case.trust, case.inquiry.root, case.inquiry.replies.roster.clients
    history = update_history(case.server[TRUST], who, trust.recall, like=case.inquiry.like)
    if not kin.any():
        return kin, None, history
    alone = case.inquiry.copies == 1
    inside = find_harmless(history, who, kin, alone, trust.harm)
    inside = inside if inside.any() else kin
    tried = draw_replies(kin, trust.tried, case.offer, who)
    unit = directions(case.rows)
    cosine = (unit @ unit.T).cpu().numpy()
    groups = [np.arange(len(kin)) == k for k in tried]
    for some in (kin & inside, kin & ~inside):
        groups += find_crowds(cosine, some, trust.crowd)
    weights = [case.weigh(inside ^ group)[1] for group in groups]
    trial = case.try_weights([case.weigh(inside)[1], *weights], kin)
    within = np.array([inside[group].all() for group in groups])
    single = np.array([group.sum() == 1 and alone[group].all() for group in groups])
    weight = 1 / case.inquiry.copies[kin]
    effect = estimate_effects(trial.values[1:], within, single, weight, trust.loudest)
    if effect is None:
        return inside, trial, history
    each = np.full(len(kin), np.nan)
    for group, value in zip(groups, effect, strict=True):
        each[group] = value  # of those in a crowd, the crowd's
    told = ~np.isnan(each)
    new = {"effect": each[told], TIMES: np.ones(int(told.sum()))}
    history = update_history(history, who[told], trust.recall, **new)
    full = find_harmless(history, who, kin, alone, trust.harm)
    return full if full.any() else kin, trial, history


def find_harmless(history: Params, clients: Int64, kin: Bool, alone: Bool, harm: float) -> Bool:
    """Return True for those of kin that have done no harm so far: whose mean effect is not below
    `-harm` times the median size of such a mean, copies aside."""
    effect, times = (history[name].cpu()[clients].numpy() for name in ("effect", TIMES))
    mean = effect / np.maximum(times, 1e-300)
    known = kin & alone & (times > 0)
    middle = float(np.median(np.abs(mean[known]))) if known.any() else 0.0
    return np.asarray(kin & (mean >= -harm * middle), np.bool_)


def update_history(history: Params, clients: Int64, recall: float, **new: Float64) -> Params:
    """Add this round's numbers of some clients to sums in which the last rounds count most.
    `effect` divided by `TIMES`, the same sum of ones, is a mean."""
    sums = {}
    for name, add in new.items():
        sums[name] = history[name].cpu().clone()  # a checkpoint is read onto the run's device
        sums[name][clients] = recall * sums[name][clients] + torch.from_numpy(add)
    return {**history, **sums}


def build_trust_state(n: int) -> State:
    """Return the server's state before the first audit: no median update, and no client's likeness,
    effect or cost, nor who was turned round."""
    norm = torch.tensor(float("inf"), dtype=torch.float64)
    names = ("like", "effect", TIMES, "cost", "turned")
    zeros = {name: torch.zeros(n, dtype=torch.float64) for name in names}
    return {TRUST: {"norm": norm, **zeros}}


def replace_rows(replies: Replies, some: Replies, rows: Bool) -> Replies:
    """Return the replies with the models of some rows replaced."""
    if rows.all():
        return some
    at = torch.from_numpy(np.flatnonzero(rows))
    models = {
        n: t.index_copy(0, at.to(t.device), some.models[n]) for n, t in replies.models.items()
    }
    return replace(replies, models=models)
