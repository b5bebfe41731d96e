"""Geometry of replies: their updates as vectors, with norms, distances and medians.

Distances are those of what moves by gradient; statistics (BatchNorm's) are looked at by themselves,
so that neither hides in the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...base.arrays import Float64
from ...base.checks import check_whole, require
from ...base.lazy import torch
from ...base.params import Params, as_rows
from ...protocol import Offer
from ...schedules import Count

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST = 2.0**-1022  # the smallest number that float64 has all its digits for
TOLERANCE = 1e-9  # by which shares of weight that should be equal may differ


def gradient_names(offer: Offer) -> tuple[str, ...]:
    """Return the names of the parameters that move by gradient; all, if the offer lists none."""
    return offer.trainable or tuple(offer.model)


def updates(offer: Offer, models: Params, names: tuple[str, ...]) -> Tensor:
    """Return `w_k - w` over these parameters, one row per reply, in float64."""
    return torch.cat([as_rows(models[n] - offer.model[n]).double() for n in names], 1)


def directions(rows: Tensor) -> Tensor:
    """Return each row scaled to length 1; a row of zeros as it is.

    Scaled by its largest number first: the squares of very small ones are 0.
    """
    scaled = rows / rows.abs().amax(1, keepdim=True).clamp(min=SMALLEST)
    length: Tensor = scaled.norm(dim=1, keepdim=True)
    return scaled / length.clamp(min=SMALLEST)


def shrink_updates(offer: Offer, models: Params, by: Float64, names: tuple[str, ...]) -> Params:
    """Return `w + by_k (w_k - w)` for these parameters, the others as they are."""
    out = dict(models)
    for n in names:
        w, t = offer.model[n], models[n]
        factor = torch.from_numpy(by).to(t).view(-1, *[1] * w.dim())
        # A factor of 1 leaves a reply as it is, to the bit.
        out[n] = torch.where(factor == 1, t, w + factor * (t - w))
    return out


def bound_updates(offer: Offer, models: Params, most: Float64, names: tuple[str, ...]) -> Params:
    """Return the replies with updates over these parameters no longer than `most`, one for each."""
    if not names:
        return models
    norm = updates(offer, models, names).norm(dim=1).cpu().numpy()
    return shrink_updates(
        offer, models, np.where(norm > most, most / np.maximum(norm, 1e-300), 1.0), names
    )


def statistic_names(offer: Offer) -> tuple[str, ...]:
    """Return the names of the parameters that do not move by gradient."""
    return tuple(n for n in offer.model if n not in gradient_names(offer))


def weighted_median(values: Tensor, weight: Float64) -> Tensor:
    """Return the median along the first axis of values that count by weight: where the weight below
    equals that above. Between two such values, their mean; with equal weights, the median.

    >>> weighted_median(torch.tensor([[1.0], [2.0], [10.0]]), np.array([1.0, 1.0, 3.0])).item()
    10.0
    """
    ordered, below = sorted_shares(values, weight)
    # below[i] is the share of weight up to and with the i-th value.
    low = (below < 0.5 - TOLERANCE).sum(0, keepdim=True).clamp(max=len(values) - 1)
    high = (below <= 0.5 + TOLERANCE).sum(0, keepdim=True).clamp(max=len(values) - 1)
    return ((ordered.gather(0, low) + ordered.gather(0, high)) / 2)[0]


def sorted_shares(values: Tensor, weight: Float64) -> tuple[Tensor, Tensor]:
    """Return values in order along the first axis, and the share of weight up to and with each."""
    ordered, at = values.sort(0)
    share = torch.from_numpy(weight / weight.sum()).to(values.device)
    return ordered, share[at].cumsum(0)


def geometric_median(rows: Tensor, weight: Float64, nu: float, iterations: int) -> Tensor:
    """Return the weight of each row in the point nearest to all, by Weiszfeld's iteration from 0:
    `b_k = p_k / max(nu, |x_k - z|)`, `z = sum_k b_k x_k / sum_k b_k`."""
    p, z = torch.from_numpy(weight / weight.sum()).to(rows), torch.zeros_like(rows[0])
    b = p
    for _ in range(iterations):
        b = p / (rows - z).norm(dim=1).clamp(min=nu)
        b = b / b.sum()
        z = b @ rows
    return b


def squared_distances(rows: Tensor) -> Tensor:
    """Return `|x_i - x_j|^2`, exactly 0 on the diagonal."""
    return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist") ** 2


def check_tolerance(f: Count) -> None:
    """Refuse a number of liars that is not a number, or a share of half or more."""
    if isinstance(f, float):
        require(0.0 <= f < 0.5, "f", f, "a whole number, or a share from 0.0 up to 0.5")
    else:
        check_whole("f", f, 0)
