"""Robust steps: aggregations that a minority of replies, whatever they hold, cannot drag far away.

A robust step reduces all replies to one, the *centre*, and hands it with their whole weight to
`then`: `Median()` moves the model to the centre, `Median(Adaptive())` is MaxFL's step on it.
Replies count by weight wherever the rule allows it; with equal weights the rules are those of
their papers. Distances are those of what moves by gradient. Statistics (BatchNorm's) follow: number
by number where the rule is, else as the rule weighs the replies, so that variances stay variances.
What comes before an aggregation is in `mixing`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ...base import params
from ...base.arrays import Bool, Float64
from ...base.checks import check_above, check_whole, require
from ...base.lazy import torch
from ...base.params import Params, State
from ...base.registry import part
from ...protocol import Offer, Replies
from ...schedules import Count, count_rounds
from ..step import Average, Moved, Step
from .geometry import (
    check_tolerance,
    geometric_median,
    gradient_names,
    sorted_shares,
    squared_distances,
    updates,
    weighted_median,
)

if TYPE_CHECKING:
    from torch import Tensor

AVERAGE = Average()


def trimmed_mean(values: Tensor, weight: Float64, cut: float) -> Tensor:
    """Return the mean along the first axis without the share `cut` of the weight at either end."""
    ordered, upto = sorted_shares(values, weight)
    inside = upto.clamp(cut, 1 - cut)
    kept = torch.diff(inside, dim=0, prepend=torch.full_like(inside[:1], cut))
    return (ordered * kept.to(ordered)).sum(0) / (1 - 2 * cut)


class Reduction(Step):
    """A step that reduces all replies to one, and hands it to another step."""

    then: Step

    def check_then(self) -> None:
        """Refuse a next step that needs more than a mean: there is one reply left."""
        allowed = "a step that uses the mean alone (average, adaptive, momentum, adaptive_moments)"
        require(getattr(self.then, "only_mean", False), "then", type(self.then).__name__, allowed)

    def memory(self, model: Params, seen: Bool) -> State:
        return self.then.memory(model, seen)

    def centre(self, offer: Offer, replies: Replies, weight: Float64) -> Params:
        """Return one model for all replies."""
        raise NotImplementedError

    def __call__(self, offer: Offer, replies: Replies, weight: Float64, server: State) -> Moved:
        one = as_one(replies, weight, self.centre(offer, replies, weight))
        return self.then(offer, *one, server)


def as_one(replies: Replies, weight: Float64, model: Params) -> tuple[Replies, Float64]:
    """Return one reply with the total weight."""
    first = replies.pick(np.arange(len(weight)) == 0)
    models = {n: t[None] for n, t in model.items()}
    return replace(first, models=models), np.array([float(weight.sum())])


@part(Step, "median")
@dataclass(frozen=True)
class Median(Reduction):
    """The coordinate median (Yin et al. 2018): of each number in the model, the median of the
    replies', by their weight."""

    then: Step = AVERAGE

    def __post_init__(self) -> None:
        self.check_then()

    def centre(self, offer: Offer, replies: Replies, weight: Float64) -> Params:
        return {n: weighted_median(t, weight) for n, t in replies.models.items()}


@part(Step, "trimmed_mean")
@dataclass(frozen=True)
class TrimmedMean(Reduction):
    """The trimmed mean (Yin et al. 2018): of each number in the model, the mean of the replies'
    without the `f` largest and the `f` smallest.

    Attributes:
        f: how many replies (a whole number), or what share of the weight (a fraction), at either
            end; replies count by weight, so f of n replies is f/n of the weight
    """

    f: Count = 0.1
    then: Step = AVERAGE

    def __post_init__(self) -> None:
        self.check_then()
        check_tolerance(self.f)

    def centre(self, offer: Offer, replies: Replies, weight: Float64) -> Params:
        n = len(weight)
        cut = min(float(self.f) / n if isinstance(self.f, int) else self.f, (n - 1) / (2 * n))
        return {name: trimmed_mean(t, weight, cut) for name, t in replies.models.items()}


@part(Step, "geometric_median")
@dataclass(frozen=True)
class GeometricMedian(Reduction):
    """The geometric median (RFA, Pillutla et al. 2019): the point nearest to all replies,
    `min_z sum_k p_k |w_k - z|`, by Weiszfeld's iteration
    `z = sum_k b_k w_k / sum_k b_k`, `b_k = p_k / max(nu, |w_k - z|)`, from z = w.

    Attributes:
        nu: below this distance a reply counts no more for being nearer
        iterations: how often
    """

    nu: float = 1e-6
    iterations: int = 8
    then: Step = AVERAGE

    def __post_init__(self) -> None:
        self.check_then()
        check_above("nu", self.nu)
        check_whole("iterations", self.iterations)

    def centre(self, offer: Offer, replies: Replies, weight: Float64) -> Params:
        rows = updates(offer, replies.models, gradient_names(offer))
        b = geometric_median(rows, weight, self.nu, self.iterations)
        return params.mean(replies.models, b.cpu().numpy())


@part(Step, "krum")
@dataclass(frozen=True)
class Krum(Reduction):
    """Krum and multi-Krum (Blanchard et al. 2017): the mean, by weight, of the `m` replies whose
    `n - f - 2` nearest others are nearest, `score_k = sum |w_k - w_j|^2`.

    It suits clients with similar data: among honest clients with different data it keeps those of
    one kind.

    Attributes:
        f: how many liars are expected: a whole number, or a share of the replies
        m: how many replies are kept; 1 is Krum
    """

    f: Count = 0.2
    m: int = 1
    then: Step = AVERAGE

    def __post_init__(self) -> None:
        self.check_then()
        check_tolerance(self.f)
        check_whole("m", self.m)

    def centre(self, offer: Offer, replies: Replies, weight: Float64) -> Params:
        n = len(weight)
        near = max(1, n - count_rounds(self.f, n, "f") - 2)
        rows = updates(offer, replies.models, gradient_names(offer))
        # The nearest of all is the reply itself, at 0.
        score = squared_distances(rows).sort(1).values[:, 1 : near + 1].sum(1)
        kept = np.zeros(n, np.bool_)
        kept[np.argsort(score.cpu().numpy(), kind="stable")[: self.m]] = True
        return params.mean(params.select(replies.models, kept), weight[kept])


@part(Step, "centred_clipping")
@dataclass(frozen=True)
class CentredClipping(Step):
    """Centred clipping (Karimireddy et al. 2021): from the last round's update v,
    `v <- v + sum_k p_k (x_k - v) min(1, radius / |x_k - v|)`, where `x_k = w_k - w`.

    Statistics take the median of the replies, number by number.

    Attributes:
        radius: how far from v a reply counts in full; None: as far as the median reply is
        iterations: how often
    """

    radius: float | None = None
    iterations: int = 1
    then: Step = AVERAGE
    keeps: ClassVar[tuple[str, ...]] = ("centre",)

    def __post_init__(self) -> None:
        Reduction.check_then(self)  # type: ignore[arg-type]
        if self.radius is not None:
            check_above("radius", self.radius)
        check_whole("iterations", self.iterations)

    def memory(self, model: Params, seen: Bool) -> State:
        """v, at first 0, and what the next step remembers."""
        still = {n: torch.zeros_like(t) for n, t in model.items()}
        return {"centre": still, **self.then.memory(model, seen)}

    def __call__(self, offer: Offer, replies: Replies, weight: Float64, server: State) -> Moved:
        names = gradient_names(offer)
        rows = updates(offer, replies.models, names)
        v = torch.cat([server["centre"][n].flatten().double() for n in names])
        p = torch.from_numpy(weight / weight.sum()).to(rows)
        for _ in range(self.iterations):
            away = (rows - v).norm(dim=1)
            radius = self.radius or float(weighted_median(away[:, None], weight))
            v = v + (p * (radius / away.clamp(min=1e-300)).clamp(max=1)) @ (rows - v)
        moved, at = {}, 0
        for n in names:
            t = offer.model[n]
            moved[n] = v[at : at + t.numel()].view(t.shape).to(t)
            at += t.numel()
        model = {
            n: w + moved[n] if n in moved else weighted_median(replies.models[n], weight)
            for n, w in offer.model.items()
        }
        after, kept = self.then(offer, *as_one(replies, weight, model), server)
        return after, {**kept, "centre": {**server["centre"], **moved}}
