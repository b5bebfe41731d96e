"""Sketches: a thousand numbers of a model, from which the server chooses whose model it needs.

A count sketch (Charikar, Chen & Farach-Colton 2002) adds every number of a model, with a sign, to
one of `size` places; places and signs are drawn from the run's seed and the round, so that all
clients draw the same. It is linear, and products survive: `<S x, S y>` is an unbiased estimate of
`<x, y>` whose standard deviation is at most `sqrt(2 / size) |x| |y|`.

Helpers send their sketch first. Those who would get no weight by it never send a model; the weights
of the others are computed from the models themselves, so that no bound depends on the sketch.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from ..base import rng
from ..base.arrays import Bool
from ..base.errors import MusterError
from ..base.lazy import torch
from ..base.params import Params, as_rows, group_by_layer
from ..protocol import Offer, Replies

if TYPE_CHECKING:
    from torch import Tensor

SKETCH = "sketch"  # among the extras of a reply
LEAST, MOST = 16, 1_000_000  # numbers of a sketch


@lru_cache(maxsize=1)
def draw_places(key: int, counts: tuple[int, ...], size: int) -> tuple[Tensor, Tensor]:
    """Return the place and the sign of each number of layers that have so many."""
    generator = torch.Generator().manual_seed(key)
    places = [
        torch.randint(at.start, at.stop, (count,), generator=generator)
        for at, count in zip(divide(size, len(counts)), counts, strict=True)
    ]
    return torch.cat(places), 2 * torch.randint(2, (sum(counts),), generator=generator) - 1


def project(models: Params, offer: Offer, size: int) -> Tensor:
    """Return the sketches of a stack of models, `[client, size]`, in float64: of the parameters
    that move by gradient. Each layer has separate places, as many as any other."""
    layers = group_by_layer(offer.trainable)
    if size < len(layers):
        raise MusterError(
            f"method: sketch: {size} numbers for {len(layers)} layers; at least one for each, "
            "better a hundred"
        )
    in_order = [name for names in layers.values() for name in names]
    rows = torch.cat([as_rows(models[name]) for name in in_order], 1).double()
    counts = tuple(sum(models[n][0].numel() for n in names) for names in layers.values())
    key = rng.torch_seed(rng.keys(offer.seed, SKETCH, offer.round))
    places, signs = draw_places(key, counts, size)
    sketch = rows.new_zeros(len(rows), size)
    return sketch.index_add_(1, places.to(rows.device), rows * signs.to(rows.device))


def divide(size: int, layers: int) -> list[range]:
    """Return the places of each layer in a sketch.

    >>> divide(5, 2)
    [range(0, 2), range(2, 5)]
    """
    ends = [size * i // layers for i in range(layers + 1)]
    return [range(a, b) for a, b in pairwise(ends)]


def as_model(sketches: Tensor, offer: Offer) -> Params:
    """Return sketches as models, with a parameter for each layer."""
    layers = group_by_layer(offer.trainable)
    places = divide(sketches.shape[1], len(layers))
    return {
        f"{layer}.{SKETCH}": sketches[:, at.start : at.stop]
        for layer, at in zip(layers, places, strict=True)
    }


def as_sketches(replies: Replies, offer: Offer, size: int, own: Bool) -> Replies:
    """Return replies with sketches in place of their models, for the rule of weights.

    Args:
        own: replies whose models are here, which are sketched here
    """
    sketches = replies.extra[SKETCH][SKETCH].double().clone()
    mine = torch.from_numpy(own).to(sketches.device)
    kept = {name: t[mine.to(t.device)] for name, t in replies.models.items()}
    sketches[mine] = project(kept, offer, size)
    models = as_model(sketches, offer)
    extra = {part: table for part, table in replies.extra.items() if part != SKETCH}
    return replace(replies, models=models, extra=extra, trainable=tuple(models))
