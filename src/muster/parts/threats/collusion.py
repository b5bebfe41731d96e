"""Attackers who work together: they know what the honest clients send, and all send the same.

With no honest client to look at (all of a portion of replies are theirs) they use what they
trained themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...base.arrays import Int64
from ...base.checks import check_at_least, check_whole
from ...base.lazy import torch
from ...base.params import Params
from ...base.registry import part
from ...protocol import Offer
from .attacks import Attack, Honest, check_fraction


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
