"""Steps that bound replies, or mix them with one another, before another step aggregates them.

step = {kind = "nearest_neighbours", f = 0.2, then = {kind = "trimmed_mean", f = 0.2}}
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...base import params, rng
from ...base.arrays import Bool, Float64, Int64
from ...base.checks import check_above, check_whole
from ...base.lazy import torch
from ...base.params import Params, State
from ...base.registry import part
from ...protocol import Offer, Replies
from ...schedules import Count, count_rounds
from ..step import Average, Moved, Step
from .geometry import (
    bound_updates,
    check_tolerance,
    gradient_names,
    squared_distances,
    statistic_names,
    updates,
    weighted_median,
)

AVERAGE = Average()


class Preprocessing(Step):
    """A step that changes replies, and hands them to another step."""

    then: Step

    def memory(self, model: Params, seen: Bool) -> State:
        return self.then.memory(model, seen)

    def prepare(self, offer: Offer, replies: Replies, weight: Float64) -> tuple[Replies, Float64]:
        """Return the replies and weights for the next step."""
        raise NotImplementedError

    def __call__(self, offer: Offer, replies: Replies, weight: Float64, server: State) -> Moved:
        return self.then(offer, *self.prepare(offer, replies, weight), server)


@part(Step, "norm_bound")
@dataclass(frozen=True)
class NormBound(Preprocessing):
    """No update longer than `most` times the median one (by weight): longer ones are shortened,
    `w + (w_k - w) min(1, most med / |w_k - w|)`. Statistics are bounded in the same way, by
    themselves."""

    most: float = 1.0
    then: Step = AVERAGE

    def __post_init__(self) -> None:
        check_above("most", self.most)

    def prepare(self, offer: Offer, replies: Replies, weight: Float64) -> tuple[Replies, Float64]:
        models = replies.models
        for names in (gradient_names(offer), statistic_names(offer)):
            if names:
                norm = updates(offer, models, names).norm(dim=1)
                middle = float(weighted_median(norm[:, None], weight))
                models = bound_updates(
                    offer, models, np.full(len(weight), self.most * middle), names
                )
        return replace(replies, models=models), weight


@part(Step, "nearest_neighbours")
@dataclass(frozen=True)
class NearestNeighbours(Preprocessing):
    """Nearest-neighbour mixing (NNM, Allouah et al. 2023): every reply becomes the mean, by
    weight, of the `n - f` nearest to it, itself included; then `then`.

    Attributes:
        f: how many liars are expected: a whole number, or a share of the replies
    """

    f: Count = 0.2
    then: Step = AVERAGE

    def __post_init__(self) -> None:
        check_tolerance(self.f)

    def prepare(self, offer: Offer, replies: Replies, weight: Float64) -> tuple[Replies, Float64]:
        n = len(weight)
        kept = max(1, n - count_rounds(self.f, n, "f"))
        rows = updates(offer, replies.models, gradient_names(offer))
        near = squared_distances(rows).sort(stable=True, dim=1).indices[:, :kept].cpu().numpy()
        mix = np.zeros((n, n))
        np.put_along_axis(mix, near, weight[near], 1)
        return mix_replies(replies, mix / mix.sum(1, keepdims=True), np.arange(n)), weight


@part(Step, "bucketing")
@dataclass(frozen=True)
class Bucketing(Preprocessing):
    """Bucketing (Karimireddy et al. 2022): replies in random groups of `size`, each group the mean
    of its replies by weight; then `then`. The groups are drawn by the run's seed and the round."""

    size: int = 2
    then: Step = AVERAGE

    def __post_init__(self) -> None:
        check_whole("size", self.size)

    def prepare(self, offer: Offer, replies: Replies, weight: Float64) -> tuple[Replies, Float64]:
        n = len(weight)
        order = rng.generator(offer.seed, "bucketing", offer.round).permutation(n)
        group = np.empty(n, np.int64)
        group[order] = np.arange(n) // self.size
        mix = np.where(group == np.arange(group.max() + 1)[:, None], weight, 0.0)
        total = mix.sum(1)
        return mix_replies(replies, mix / total[:, None], order[:: self.size]), total


def mix_replies(replies: Replies, mix: Float64, standing: Int64) -> Replies:
    """Return mixtures of the replies, one for each row of `mix`, each with the roster entry of one
    of them."""
    models = {
        n: torch.tensordot(torch.from_numpy(mix).to(t), t, dims=1)
        for n, t in replies.models.items()
    }
    return Replies(
        replies.roster.pick(standing),
        models,
        replies.appraisal.pick(standing),
        replies.claim[standing],
        {p: params.select(table, standing) for p, table in replies.extra.items()},
    )
