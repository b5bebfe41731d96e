"""Faults: replies that are broken at random, by nobody's intent.

Machines fail, disks flip bits, programs divide by 0. Every reply of the clients concerned has one
of these faults with a probability, drawn by seed, round and client, so that a run can be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...base import rng
from ...base.arrays import Float64, Int64
from ...base.checks import check_one_of, check_share
from ...base.lazy import torch
from ...base.params import Params
from ...base.registry import part
from ...protocol import Appraisal, Offer
from .adversary import Attack, Honest, check_fraction
from .attacks import scale_updates

LOSSES = {"loss nan": np.nan, "loss negative": -1.0, "loss huge": 1e30}  # what is reported
WEIGHTS = "nan", "infinite", "zero", "huge", "scaled", "turned", "stale", "noise", "one bit"
FAULTS = (*WEIGHTS, *LOSSES)
BIT = 2.0**30  # by how much a number grows when one bit of its exponent flips


@part(Attack, "faults")
@dataclass(frozen=True)
class Faults(Honest):
    """Each reply is broken with a probability, in one of several ways.

    Attributes:
        fraction: whose replies, as a share of all clients that may take part
        rate: how many of their replies
        kinds: in which ways; none named: in all
        stays: whether these clients stay where clients are free to leave
    """

    fraction: float = 0.99
    rate: float = 0.2
    kinds: tuple[str, ...] = ()
    stays: bool = False

    def __post_init__(self) -> None:
        check_fraction(self.fraction)
        check_share("faults rate", self.rate)
        for kind in self.kinds:
            check_one_of("faults kinds", kind, FAULTS)

    def draw_faults(self, offer: Offer, clients: Int64) -> list[str]:
        """Return the fault of each client's reply; "" for none."""
        kinds = self.kinds or FAULTS
        key = rng.keys(offer.seed, "faults", offer.round, clients)
        which = (rng.uniform(rng.fold(key, 1)) * len(kinds)).astype(np.int64)
        broken = rng.uniform(key) < self.rate
        return [kinds[i] if bad else "" for i, bad in zip(which, broken, strict=True)]

    def report(self, offer: Offer, appraisal: Appraisal, requirement: Float64) -> Appraisal:
        """Return reports, some with a broken loss: by place, since only replies have names."""
        loss = appraisal.loss.copy()
        for i, kind in enumerate(self.draw_faults(replace(offer, model={}), np.arange(len(loss)))):
            if kind in LOSSES:
                loss[i] = LOSSES[kind]
        return Appraisal(loss, appraisal.accuracy)

    def send(self, offer: Offer, models: Params, clients: Int64) -> Params:
        sent = {n: t.clone() for n, t in models.items()}
        for i, kind in enumerate(self.draw_faults(offer, clients)):
            one = {n: t[i : i + 1] for n, t in models.items()}
            for n, w in offer.model.items():
                sent[n][i] = break_tensor(kind, offer, one, n, w)
        return sent


def break_tensor(kind: str, offer: Offer, one: Params, n: str, w: torch.Tensor) -> torch.Tensor:
    """Return one tensor of a reply with a fault."""
    t = one[n][0]
    if kind in ("nan", "infinite"):
        return torch.full_like(t, float(kind[:3]))
    if kind == "zero":
        return torch.zeros_like(t)
    if kind == "huge":
        return t * 1e12
    if kind in ("scaled", "turned"):
        return scale_updates(offer, one, 1e6 if kind == "scaled" else -10.0)[n][0]
    if kind == "stale":
        return w
    if kind == "noise":
        noise = torch.linspace(-1.0, 1.0, t.numel(), dtype=torch.float64).view(t.shape)
        return t + 10 * noise.to(t)
    if kind == "one bit":
        flipped = t.clone()
        flipped.view(-1)[0] = flipped.view(-1)[0] * BIT + 1.0
        return flipped
    return t
