"""Trust in groups: the checks of an audit that released sums of groups allow.

Where clients are protected nobody looks at a single reply, and no client's loss decides about
another's. What remains is a function of released and public numbers, and costs no privacy: S_0 is
the sum of the priority clients' updates, S_g that of a group of others, each with noise of
deviation s in every one of d numbers; W_g is the weight of a group's clients.

bound      `|S_g|^2 <= (norm m W_g)^2 + s^2 (d + 3 sqrt(2 d))`, `m W_0` being the length of S_0
           without what noise adds to it: a longer sum is shortened to that.
likeness   `l_g = <S_g, u> / (C W_g)`, u being the direction of `sum_i recall^i S_0(t - i)`: what a
           client of the group adds in that direction on average, in clips.
standing   h_k, an estimate of each client's own likeness from all groups it was in: the mean over a
           group moves towards l_g by the share `n P / (n P + (s / C)^2)`, which is 1 without noise
           (Kaczmarz' method of solving linear equations one by one); P is how far clients'
           likenesses are apart. Membership changes from round to round, so that whoever does harm
           stands out. A group counts while the mean standing of its clients is not below 0.

How far one client can stand out is bounded by its own privacy: sums that hide whether a client
contributed hide as well whether it lied.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...base.arrays import Bool, Float64, Int64
from .trust import Audit

APART = 0.1  # P, the variance of clients' likenesses, in squared clips
BEYOND_NOISE = 3.0  # deviations of the noise's squared length
UNLIKE_GROUP = "its group is unlike the priority clients"


@dataclass(frozen=True)
class GroupAudit:
    """The findings about a round's groups.

    Attributes:
        factor: by which each group's sum is multiplied: 0, it does not count; below 1, it was too
            long
        reference: what u is the direction of, for the next round
        standing: of each client asked
    """

    factor: Float64
    reference: Float64
    standing: Float64


def audit_groups(
    audit: Audit,
    sums: Float64,
    weight: Float64,
    possible: Bool,
    clip: float,
    deviation: float,
    group: Int64,
    reference: Float64,
    standing: Float64,
) -> GroupAudit:
    """Bound and judge released sums of groups, of which the first is the priority clients'.

    Args:
        sums: `[group, number]`
        weight: of the clients of each group that may contribute
        possible: False for sums that honest clients cannot have
        clip: C
        deviation: of the noise in every number
        group: of each client asked
        reference: of the round before
        standing: of each client asked
    """
    judged = (weight > 0) & (np.arange(len(weight)) > 0)
    per = np.where(weight > 0, weight, 1.0)
    factor = np.where(possible, bound_sums(audit.norm, sums, per, deviation), 0.0)
    reference = audit.recall * reference + sums[0]
    unit = reference / max(float(np.linalg.norm(reference)), 1e-300)
    like = factor * (sums @ unit) / (clip * per)
    many = np.bincount(group, minlength=len(weight))
    share = many * APART / np.maximum(many * APART + (deviation / clip) ** 2, 1e-300)
    moved = share * (np.where(possible, like, -1.0) - average(standing, group, many))
    standing = standing + np.where(judged, moved, 0.0)[group]
    counts = judged & (average(standing, group, many) >= 0)
    counts[0] = True
    return GroupAudit(np.where(counts, factor, 0.0), reference, standing)


def bound_sums(norm: float, sums: Float64, weight: Float64, deviation: float) -> Float64:
    """Return the factor, at most 1, by which each sum becomes as short as the first one allows."""
    squared, numbers = (sums**2).sum(1), sums.shape[1]
    noise = numbers * deviation**2
    mean = max(0.0, float(squared[0]) - noise) / weight[0] ** 2
    doubt = BEYOND_NOISE * np.sqrt(2 * numbers) * deviation**2
    most = norm**2 * mean * weight**2 + noise + doubt
    factor = np.minimum(1.0, np.sqrt(most / np.maximum(squared, 1e-300)))
    factor[0] = 1.0
    return np.asarray(factor, np.float64)


def average(values: Float64, group: Int64, many: Int64) -> Float64:
    """Return the mean over the clients of each group; 0 of an empty one."""
    return np.bincount(group, values, minlength=len(many)) / np.maximum(many, 1)
