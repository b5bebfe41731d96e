"""Peers: how clients check one another where nobody is outside the objective.

There is no root of trust then: what follows holds while most clients of every kind of data are
honest. D_k is an update, S are those that count.

kin      `l_k = sum_j cos(D_k, D_j)^3 >= 0` over the others, copies aside. Of those below 0 the one
         that has been the least like over the rounds is left out first and no longer speaks for or
         against the others, and so on until none is below 0: liars lose their say before they turn
         it against the honest clients of their kind. What is remembered decides only between
         clients that are below 0 today: one that never is while others go is kin.
effect   those who are kin appraise the model that comes of S, and for each of a few replies, drawn
         in every round, the model without it (for one that is not in S: with it). A reply's effect
         is how much lower the mean of what they say is with it than without, in units of the median
         size of such an effect. Who is kin and not in S still has a voice: else a kind of client
         that is left out once could not speak for itself any more.
history  what is remembered of a client is the mean of its effects, the last ones counting most. It
         is in S while that mean is not below `-harm` times the median size of the others'. Who is
         not is tried out all the same, and comes back when it does no harm.
"""

from __future__ import annotations

import numpy as np

from ...base import rng
from ...base.arrays import Bool, Float64, Int64
from ...protocol import Offer

MOST_EFFECT = 10.0  # an effect counts for no more than this many median ones


def kin_of(cosine: Float64, copy: float, before: Float64) -> tuple[Bool, Float64]:
    """Who is like the others, by their cosines `[reply, reply]`, and how like (l_k). Above `copy`
    they are copies: they say nothing of each other, and speak of the others with the voice of one.

    Args:
        before: how like each was in the rounds before
    """
    same = cosine > copy
    cubes = np.where(same, 0.0, cosine) ** 3 / np.maximum(1, same.sum(0))
    like, left = cubes.sum(1), np.ones(len(cubes), np.bool_)
    while (below := left & (like < 0)).any():
        least = int(np.argmin(np.where(below, like + before, np.inf)))
        left[least] = False
        like = like - cubes[:, least]
    return np.asarray(like >= 0, np.bool_), np.asarray(like, np.float64)


def drawn(some: Bool, most: int, offer: Offer, clients: Int64) -> Int64:
    """The places of at most this many of some replies, drawn by seed, round and client."""
    key = np.where(some, rng.uniform(rng.keys(offer.seed, "tried", offer.round, clients)), np.inf)
    first = np.argsort(key, kind="stable")[: min(most, int(some.sum()))]
    return np.sort(first)


def effects(
    words: Float64, inside: Bool, alone: Bool, weight: Float64, voice: float
) -> Float64 | None:
    """The effect of each reply that was tried, in median ones; None when too few spoke.

    Args:
        words: `[model, voter]`: of S, and of S without (with) each of them; lower is better
        inside: which of them are in S
        alone: which are no copies, whose effect is small because they share one weight
        weight: how much each voter counts
        voice: how much a voter may say changes, in what the median voter says
    """
    heard = np.isfinite(words).all(0)
    if not len(inside) or weight[heard].sum() <= 0.5 * weight.sum():
        return None
    change = (words[1:, heard] - words[0, heard]) * np.where(inside, 1.0, -1.0)[:, None]
    size = np.sqrt((change**2).mean(0))
    most = voice * float(np.median(size))
    change = change * np.minimum(1.0, most / np.maximum(size, 1e-300))
    effect = change @ (weight[heard] / weight[heard].sum())
    middle = float(np.median(np.abs(effect[alone if alone.any() else slice(None)])))
    shown = np.clip(effect / max(middle, 1e-300), -MOST_EFFECT, MOST_EFFECT)
    return np.asarray(shown, np.float64)
