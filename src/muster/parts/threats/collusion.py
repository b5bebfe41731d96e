"""Attackers who work together: they know what the honest clients send, and all send the same, or
nearly so.

With no honest client to look at (all of a portion of replies are theirs) they use what they
trained themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...base import rng
from ...base.arrays import Int64
from ...base.checks import check_at_least, check_whole
from ...base.lazy import torch
from ...base.params import Params
from ...base.registry import part
from ...protocol import Offer
from ..defences.geometry import directions, gradient_names, updates
from .adversary import Attack, Honest, check_fraction


class Collusion(Honest):
    """Base of attacks in which all send the same model, computed from those of the honest."""

    def send(self, offer: Offer, models: Params, clients: Int64) -> Params:
        """Return what they send alone, from what they trained themselves."""
        return self.collude(offer, models, clients, models)

    def collude(self, offer: Offer, models: Params, clients: Int64, honest: Params) -> Params:
        seen = honest if len(next(iter(honest.values()))) else models
        sent: Params = {}
        for n, t in models.items():
            sent[n] = self.forge(offer.model[n], seen[n]).to(t).expand_as(t).clone()
            if n.endswith("running_var"):
                sent[n].clamp_(min=0)  # a negative variance would be refused
        return sent

    def forge(self, w: torch.Tensor, honest: torch.Tensor) -> torch.Tensor:
        """Return the model they send, from the offer's and those of the honest."""
        raise NotImplementedError


@part(Attack, "alie")
@dataclass(frozen=True)
class ALIE(Collusion):
    """A little is enough (Baruch et al. 2019): `mean + z std` of the honest, number by number;
    close enough to pass for one of them."""

    fraction: float = 0.05
    z: float = 1.5
    stays: bool = False

    def __post_init__(self) -> None:
        check_fraction(self.fraction)

    def forge(self, w: torch.Tensor, honest: torch.Tensor) -> torch.Tensor:
        spread = honest.std(0) if len(honest) > 1 else torch.zeros_like(w)
        return honest.mean(0) + self.z * spread


@part(Attack, "ipm")
@dataclass(frozen=True)
class IPM(Collusion):
    """Inner product manipulation (Xie et al. 2020): `w - factor (mean - w)`; a small factor stays
    within the norm of honest updates, a large one turns the mean round."""

    fraction: float = 0.05
    factor: float = 1.0
    stays: bool = False

    def __post_init__(self) -> None:
        check_fraction(self.fraction)
        check_at_least("attack factor", self.factor)

    def forge(self, w: torch.Tensor, honest: torch.Tensor) -> torch.Tensor:
        return w - self.factor * (honest.mean(0) - w)


@part(Attack, "mimic")
@dataclass(frozen=True)
class Mimic(Collusion):
    """All copy one honest client (Karimireddy et al. 2022): nothing in a reply is false, and that
    client counts as many times over.

    Attributes:
        which: its place among the honest who replied
    """

    fraction: float = 0.05
    which: int = 0
    stays: bool = False

    def __post_init__(self) -> None:
        check_fraction(self.fraction)
        check_whole("attack which", self.which, 0)

    def forge(self, w: torch.Tensor, honest: torch.Tensor) -> torch.Tensor:
        return honest[self.which % len(honest)]


@part(Attack, "drift")
@dataclass(frozen=True)
class Drift(Collusion):
    """All push the same way for the whole run, at right angles to the honest clients' mean update,
    so that no round shows much and the rounds add up: `w + length m (u + noise z_k)`, where u is a
    fixed direction less its part along that mean, m the median length of honest updates, and z_k a
    direction of each attacker's own, so that they are no copies of one another.

    Attributes:
        length: of what they send, in median honest updates
        noise: length of z_k
    """

    fraction: float = 0.05
    length: float = 1.45
    noise: float = 0.07
    stays: bool = False

    def __post_init__(self) -> None:
        check_fraction(self.fraction)
        check_at_least("attack length", self.length)
        check_at_least("attack noise", self.noise)

    def collude(self, offer: Offer, models: Params, clients: Int64, honest: Params) -> Params:
        seen = honest if len(next(iter(honest.values()))) else models
        names = gradient_names(offer)
        moved = updates(offer, seen, names)
        mean = directions(moved.mean(0, keepdim=True))
        fixed = rng.generator(offer.seed, "drift").normal(size=moved.shape[1])
        own = [rng.generator(offer.seed, "drift noise", offer.round, int(k)) for k in clients]
        noise = np.stack([draw.normal(size=moved.shape[1]) for draw in own])
        u = torch.from_numpy(fixed).to(moved)[None]
        u = directions(u - (u @ mean.T) * mean)
        push = u + self.noise * directions(torch.from_numpy(noise).to(moved))
        push = self.length * moved.norm(dim=1).quantile(0.5) * push
        sizes = [offer.model[n].numel() for n in names]
        parts = dict(zip(names, push.split(sizes, dim=1), strict=True))
        return {
            n: offer.model[n] + parts[n].to(t).view_as(t) if n in parts else t
            for n, t in models.items()
        }
