"""The audit of a round: replies are bounded, groups of them tried out, and one group counts.

What is checked, and why, is `parts.trust`; here is whom it concerns, and the one extra exchange:
the priority clients that replied appraise a few candidate models (`Clients.trial`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Bool, Float64, Text
from ..federation import Population
from ..lazy import torch
from ..methods import Method
from ..params import Memory, Params
from ..parts.trust import Audit
from ..protocol import Offer, Replies, Trial
from .clients import Clients
from .memo import Memo

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
    server: Memory


def audit(
    population: Population,
    clients: Clients,
    method: Method,
    trust: Audit,
    offer: Offer,
    replies: Replies,
    extent: Float64,
    server: Memory,
    memo: Memo,
) -> Ruling:
    """Bound, check and try out the replies that were admitted to this extent."""
    seen, heard = ~population.unseen, replies.roster.priority[extent > 0].any()
    # A method that is not for the priority clients may ask a round without any of them.
    everyone = bool(population.priority[seen].all()) or not (heard or method.refers)

    def weigh(some: Replies, to: Float64) -> Float64:
        weight = np.zeros(len(to))
        let_in = to > 0
        if let_in.any():
            weight[let_in] = method.weigh(some.pick(let_in), to[let_in], server)
        return weight

    admitted = extent > 0
    before = float(server[TRUST]["norm"])
    inquiry = trust.inquire(offer, replies.pick(admitted), everyone, before)
    checked, root = inquiry.replies, inquiry.root
    own = np.zeros(int(admitted.sum())) if everyone else checked.roster.importance

    def counted(group: Bool) -> tuple[Float64, Float64]:
        """How far replies count, and their weights, when those of a group count in full: the
        others only for their own place in the objective."""
        to = np.where(root | group, extent[admitted], np.minimum(extent[admitted], own))
        to[inquiry.barred] = 0.0
        return to, trust.capped(weigh(checked, to), root, inquiry.copies)

    def model(weight: Float64) -> Params:
        let_in = weight > 0
        if not let_in.any():
            return offer.model
        return method.step(offer, checked.pick(let_in), weight[let_in], server)[0]

    nobody = np.zeros(len(root), np.bool_)
    chosen, trial = nobody, None
    tried = [group for group in inquiry.groups if group.any()]
    if tried:
        weights = [counted(group)[1] for group in tried]
        share = np.array(
            [w[group].sum() / w.sum() for w, group in zip(weights, tried, strict=True)]
        )
        voters = checked.roster.pick(root | everyone)
        models = [model(w) for w in (counted(nobody)[1], *weights)]
        trial = clients.trial(offer, [clients.arriving(m) for m in models], voters.clients, memo)
        by = voters.share if not everyone else np.ones(len(voters))
        at = trust.chosen(trial.words, by, share)
        chosen = nobody if at is None else tried[at]
    to, weight = counted(chosen)
    full_to, full_weight = np.zeros(len(extent)), np.zeros(len(extent))
    full_to[admitted], full_weight[admitted] = to, weight
    refused, reason = np.zeros(len(extent), np.bool_), np.full(len(extent), "", dtype="U40")
    refused[admitted] = (to == 0) | ~(root | chosen)
    reason[admitted] = inquiry.reason
    after, kept = put_back(replies, checked, admitted), remembered(inquiry.norm)
    return Ruling(after, full_to, full_weight, refused, reason, trial, kept)


def remembered(norm: float = float("inf")) -> Memory:
    """What the server remembers for the next audit: the length of the median update."""
    return {TRUST: {"norm": torch.tensor(norm, dtype=torch.float64)}}


def put_back(replies: Replies, some: Replies, rows: Bool) -> Replies:
    """The replies with some of them changed."""
    if rows.all():
        return some
    at = torch.from_numpy(np.flatnonzero(rows))
    models = {
        n: t.index_copy(0, at.to(t.device), some.models[n]) for n, t in replies.models.items()
    }
    return replace(replies, models=models)
