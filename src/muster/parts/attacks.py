"""Attacks: what Byzantine clients say and send, and what it gains them.

An attack changes what an attacker reports of its loss, the model it sends, or the labels it
trains on. Everything it does passes through the same guard and rules as an honest reply.

Where clients are free to leave, an attacker leaves like an honest client, by what it really makes
of the model; with `stays` it never does: it is not there for the model (MaxFL, Table 2).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from .. import rng
from ..arrays import Float64, Int64
from ..checks import require
from ..federation import Federation
from ..lazy import torch
from ..params import Params
from ..protocol import Appraisal, Offer
from ..registry import part


@runtime_checkable
class Attack(Protocol):
    """A behaviour of some clients."""

    @property
    def fraction(self) -> float:
        """Share of the clients that attack, among all that may take part."""
        ...

    @property
    def stays(self) -> bool:
        """Whether attackers stay where clients are free to leave, whatever they make of the
        model."""
        ...

    def poison(self, fed: Federation, attackers: Int64) -> Federation:
        """The federation with the attackers' training data as they make it."""
        ...

    def say(self, offer: Offer, appraisal: Appraisal, requirement: Float64) -> Appraisal:
        """What attackers report (and decide by) instead of what they measured."""
        ...

    def send(self, offer: Offer, models: Params, clients: Int64) -> Params:
        """What attackers send instead of what they trained."""
        ...


def attackers_of(fed: Federation, attack: Attack | None, seed: int) -> Int64:
    """Who attacks: a seeded draw among the clients that may take part."""
    if attack is None:
        return np.empty(0, np.int64)
    candidates = np.flatnonzero(~fed.unseen)
    n = max(1, round(attack.fraction * len(candidates))) if attack.fraction > 0 else 0
    chosen = rng.generator(seed, "attackers").choice(candidates, n, replace=False)
    return np.sort(chosen)


class Honest:
    """What an attack does not change."""

    stays: bool = False

    def poison(self, fed: Federation, attackers: Int64) -> Federation:
        """Their data as it is."""
        return fed

    def say(self, offer: Offer, appraisal: Appraisal, requirement: Float64) -> Appraisal:
        return appraisal

    def send(self, offer: Offer, models: Params, clients: Int64) -> Params:
        return models


def check_fraction(fraction: float) -> None:
    """Refuse a share of clients that cannot be."""
    require(0.0 <= fraction < 1.0, "attack fraction", fraction, "0 (nobody), or more and below 1")


@part(Attack, "inflate_and_noise")
@dataclass(frozen=True)
class InflateAndNoise(Honest):
    """The MaxFL paper's Byzantine clients (Table 2): report an inflated loss, and mix the update
    with Gaussian noise of `noise` times its root mean square."""

    fraction: float = 0.05
    loss_factor: float = 10.0
    noise: float = 1.0
    stays: bool = False

    def __post_init__(self) -> None:
        check_fraction(self.fraction)

    def say(self, offer: Offer, appraisal: Appraisal, requirement: Float64) -> Appraisal:
        return replace(appraisal, loss=appraisal.loss * self.loss_factor)

    def send(self, offer: Offer, models: Params, clients: Int64) -> Params:
        sent = {n: t.clone() for n, t in models.items()}
        for i, k in enumerate(clients):
            draw = torch.Generator().manual_seed(
                rng.torch_seed(rng.keys(offer.seed, "attack noise", offer.round, k))
            )
            moved = torch.cat([(models[n][i] - w).flatten() for n, w in offer.model.items()])
            size = self.noise * moved.pow(2).mean().sqrt()
            for t in sent.values():
                noise = torch.randn(t[i].shape, generator=draw, dtype=torch.float64)
                t[i] += size * noise.to(t)
        return sent


@part(Attack, "forge_loss")
@dataclass(frozen=True)
class ForgeLoss(Honest):
    """Report the loss that wins: exactly F(w) where the server broadcasts it (FedALIGN admits
    whoever is close), otherwise exactly rho_k (MaxFL's largest weight); the update is sign-flipped.
    """

    fraction: float = 0.05
    stays: bool = False

    def __post_init__(self) -> None:
        check_fraction(self.fraction)

    def say(self, offer: Offer, appraisal: Appraisal, requirement: Float64) -> Appraisal:
        wins = requirement if np.isnan(offer.loss) else np.full(len(requirement), offer.loss)
        accuracy = appraisal.accuracy
        if not np.isnan(offer.accuracy):
            accuracy = np.full(len(requirement), offer.accuracy)
        return Appraisal(np.where(np.isnan(wins), appraisal.loss, wins), accuracy)

    def send(self, offer: Offer, models: Params, clients: Int64) -> Params:
        return scaled(offer, models, -1.0)


@part(Attack, "scale_update")
@dataclass(frozen=True)
class ScaleUpdate(Honest):
    """Send the update `factor` times over; -1 is a sign flip."""

    fraction: float = 0.05
    factor: float = 10.0
    stays: bool = False

    def __post_init__(self) -> None:
        check_fraction(self.fraction)

    def send(self, offer: Offer, models: Params, clients: Int64) -> Params:
        return scaled(offer, models, self.factor)


def scaled(offer: Offer, models: Params, factor: float) -> Params:
    """`w + factor (w_k - w)`."""
    return {n: w + factor * (models[n] - w) for n, w in offer.model.items()}


@part(Attack, "sign_flip")
def sign_flip(fraction: float = 0.05, stays: bool = False) -> ScaleUpdate:
    """Send the update with its sign turned."""
    return ScaleUpdate(fraction, -1.0, stays)


@part(Attack, "label_flip")
@dataclass(frozen=True)
class LabelFlip(Honest):
    """Train on (and judge the model by) turned labels, `y -> C - 1 - y`. The run's measures are
    taken on the labels clients hold, the attackers' included. Held-out rows keep their labels, also
    where decisions go by them."""

    fraction: float = 0.05
    stays: bool = False

    def __post_init__(self) -> None:
        check_fraction(self.fraction)

    def poison(self, fed: Federation, attackers: Int64) -> Federation:
        # Copies of their rows, since honest clients may hold the same ones.
        data = fed.train
        at = data.positions(attackers)
        mine = torch.from_numpy(data.base(at))
        rows = data.base(np.arange(data.offsets[-1])).copy()
        rows[at] = len(data.y) + np.arange(len(at))
        x = torch.cat([data.x, data.x[mine]])
        y = torch.cat([data.y, fed.classes - 1 - data.y[mine]])
        return replace(fed, train=replace(data, x=x, y=y, rows=rows))


@dataclass(frozen=True)
class Adversary:
    """An attack and who carries it out."""

    attack: Attack | None = None
    clients: Int64 = field(default_factory=lambda: np.empty(0, np.int64))

    def say(
        self, offer: Offer, clients: Int64, appraisal: Appraisal, requirement: Float64
    ) -> Appraisal:
        """Everyone's word: the attackers' is what their attack makes of it."""
        who = np.isin(clients, self.clients)
        if self.attack is None or not who.any():
            return appraisal
        lie = self.attack.say(offer, appraisal.pick(who), requirement[who])
        loss, accuracy = appraisal.loss.copy(), appraisal.accuracy.copy()
        loss[who], accuracy[who] = lie.loss, lie.accuracy
        return Appraisal(loss, accuracy)

    def send(self, offer: Offer, clients: Int64, models: Params) -> Params:
        """Everyone's models, the attackers' as they send them."""
        who = np.flatnonzero(np.isin(clients, self.clients))
        if self.attack is None or not len(who):
            return models
        at = torch.from_numpy(who)
        theirs = self.attack.send(offer, {n: t[at] for n, t in models.items()}, clients[who])
        return {n: t.index_copy(0, at.to(t.device), theirs[n]) for n, t in models.items()}
