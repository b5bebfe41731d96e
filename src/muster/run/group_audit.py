"""The trust audit of a private round: groups are dealt, and their released sums judged.

Everything here is a function of released and public numbers, and costs no privacy; the rules are in
`parts.defences.group_trust`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..base.arrays import Bool, Float64
from ..base.lazy import torch
from ..base.params import Params
from ..federation import Population
from ..parts.defences.group_trust import audit_groups
from ..privacy.fixed_point import Vectors
from ..privacy.groups import deal_everyone, deal_groups
from ..privacy.secure_sum import is_possible
from ..protocol import Offer, Roster
from .job import Job

REFERENCE, STANDING = "reference", "standing"  # tables of a private run's part of the state


def build_standing(job: Job, n: int, model: Params) -> Params:
    """Return the state of an audit before the first round; nothing where groups are not judged."""
    if job.method.trust is None:
        return {}
    numbers = sum(t.numel() for t in model.values())
    return {
        REFERENCE: torch.zeros(numbers, dtype=torch.float64),
        STANDING: torch.zeros(n, dtype=torch.float64),
    }


def deal(job: Job, population: Population, roster: Roster, t: int, own: Params) -> Roster:
    """Return the roster with the group of each client, where groups are judged."""
    if job.method.trust is None:
        return roster
    groups = job.get_privacy().groups
    if job.hides_clients:
        dealt = deal_everyone(population.priority, population.ids, groups, job.seed, t)
        return replace(roster, group=dealt[roster.clients])
    standing = own[STANDING].cpu().numpy()[roster.clients]
    return replace(roster, group=deal_groups(roster, groups, job.seed, t, standing))


def weigh_groups(job: Job, offer: Offer, roster: Roster, due: Bool) -> Float64:
    """Return the weight of all that may contribute to each group, which is public."""
    most = roster.importance if offer.round < job.warmup else np.ones(len(roster))
    weight = np.bincount(roster.group, roster.share * most * due, minlength=1)
    return np.asarray(weight, np.float64)


def find_possible(job: Job, offer: Offer, roster: Roster, sums: Vectors) -> Bool:
    """Return True for groups whose secure sum honest clients can have; of sums that are not secure,
    every contribution was looked at."""
    privacy, many = job.get_privacy(), np.bincount(roster.group, minlength=len(sums))
    if not privacy.secure:
        return np.ones(len(sums), np.bool_)
    deviation = job.noise_deviation(offer) * math.sqrt(privacy.members)
    scale = job.scale(offer)
    found = [is_possible(s, int(n), scale, deviation) for s, n in zip(sums, many, strict=True)]
    return np.array(found, np.bool_)


def audit_sums(
    job: Job,
    offer: Offer,
    roster: Roster,
    weight: Float64,
    possible: Bool,
    updates: Float64,
    own: Params,
) -> tuple[Float64, Params]:
    """Return the factor by which each group's sum counts, and the audit's tables of the state."""
    privacy, trust = job.get_privacy(), job.method.trust
    if trust is None:
        return np.ones(len(updates)), {}
    standing = own[STANDING].cpu().clone()
    deviation = job.noise_deviation(offer) * math.sqrt(privacy.members)
    found = audit_groups(
        trust,
        updates,
        weight,
        possible,
        privacy.clip,
        deviation * privacy.clip / job.scale(offer),
        roster.group,
        own[REFERENCE].cpu().numpy(),
        standing[roster.clients].numpy(),
    )
    standing[roster.clients] = torch.from_numpy(found.standing)
    return found.factor, {REFERENCE: torch.from_numpy(found.reference), STANDING: standing}
