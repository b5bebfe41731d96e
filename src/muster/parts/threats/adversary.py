"""The role `Attack`: what an attacker may do; and the attackers of a run, who do it.

An attack changes the loss that an attacker reports, the model it sends, or the labels it trains
on. Everything it does passes through the same guard and rules as an honest reply.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from ...base import params, rng
from ...base.arrays import Float64, Int64
from ...base.checks import require
from ...base.errors import MusterError
from ...base.lazy import torch
from ...base.params import Params
from ...federation import Federation
from ...protocol import Appraisal, Offer

Among = Literal["anyone", "outside", "priority"]
AMONG = ("anyone", "outside", "priority")


@runtime_checkable
class Attack(Protocol):
    """The behaviour of some clients that do not follow the protocol.

    Write one by inheriting from `muster.parts.Honest`, which follows it in all that the class does
    not override; only `fraction` has no default. In what follows `offer` is what the server sent
    (`model`, `loss`, `score`, `eps`, `round`, `seed`), `models` a stack `[client, *shape]` for each
    parameter, and `clients` the numbers of these clients in the federation `fed`.
    """

    @property
    def fraction(self) -> float:
        """The number of attackers, as a share of all clients that may take part."""
        ...

    @property
    def among(self) -> Among:
        """The group they are drawn from: anyone, outside (the priority group), or priority."""
        ...

    @property
    def stays(self) -> bool:
        """True if attackers stay where clients are free to leave, however bad the model is."""
        ...

    def poison(self, fed: Federation, attackers: Int64) -> Federation:
        """Return the federation with the attackers' training data changed, before the run."""
        ...

    def report(self, offer: Offer, appraisal: Appraisal, requirement: Float64) -> Appraisal:
        """Return the attackers' reports (`loss`, `score`), from their true measures of the offered
        model and their requirements rho_k. They also decide by what they report."""
        ...

    def send(self, offer: Offer, models: Params, clients: Int64) -> Params:
        """Return the models that attackers send, from those they trained."""
        ...

    def collude(self, offer: Offer, models: Params, clients: Int64, honest: Params) -> Params:
        """Return the models that attackers send, from those they trained and those that the honest
        clients send. This is the method that the run calls."""
        ...

    def vote(self, offer: Offer, losses: Float64) -> Float64:
        """Return what attackers report of candidate models, from their true losses `[model,
        attacker]`."""
        ...


def draw_attackers(fed: Federation, attack: Attack | None, seed: int) -> Int64:
    """Return the attackers: a seeded draw among the clients that may take part, or the group that
    the attack names. Where these are fewer than the attack's share, all of them."""
    if attack is None:
        return np.empty(0, np.int64)
    seen = ~fed.unseen
    of = {"anyone": seen, "outside": seen & ~fed.priority, "priority": seen & fed.priority}
    candidates = np.flatnonzero(of[attack.among])
    require(
        len(candidates) > 0, "attack among", attack.among, "a group with clients that take part"
    )
    n = min(len(candidates), max(1, round(attack.fraction * int(seen.sum()))))
    n = n if attack.fraction > 0 else 0
    chosen = rng.generator(seed, "attackers").choice(candidates, n, replace=False)
    return np.sort(chosen)


class Honest:
    """Base class of attacks: whatever a subclass does not override is done honestly."""

    def __init_subclass__(cls) -> None:
        if "say" in vars(cls):  # its name before 0.2: without this it would be honest in silence
            raise MusterError(f"attack {cls.__name__}: its method `say` is called `report` now")

    stays: bool = False
    among: Among = "anyone"

    def poison(self, fed: Federation, attackers: Int64) -> Federation:
        return fed

    def report(self, offer: Offer, appraisal: Appraisal, requirement: Float64) -> Appraisal:
        return appraisal

    def send(self, offer: Offer, models: Params, clients: Int64) -> Params:
        return models

    def collude(self, offer: Offer, models: Params, clients: Int64, honest: Params) -> Params:
        return self.send(offer, models, clients)

    def vote(self, offer: Offer, losses: Float64) -> Float64:
        return losses


def check_fraction(fraction: float) -> None:
    """Refuse a share of clients that cannot be."""
    require(0.0 <= fraction < 1.0, "attack fraction", fraction, "0 (nobody), or more and below 1")


@dataclass(frozen=True)
class Adversary:
    """An attack and who carries it out."""

    attack: Attack | None = None
    clients: Int64 = field(default_factory=lambda: np.empty(0, np.int64))

    def report(
        self, offer: Offer, clients: Int64, appraisal: Appraisal, requirement: Float64
    ) -> Appraisal:
        """Return everyone's reports, the attackers' changed by their attack."""
        who = np.isin(clients, self.clients)
        if self.attack is None or not who.any():
            return appraisal
        lie = self.attack.report(offer, appraisal.pick(who), requirement[who])
        loss, accuracy = appraisal.loss.copy(), appraisal.accuracy.copy()
        loss[who], accuracy[who] = lie.loss, lie.accuracy
        return Appraisal(loss, accuracy)

    def vote(self, offer: Offer, clients: Int64, losses: Float64) -> Float64:
        """Return everyone's appraisals of candidate models, the attackers' changed by their
        attack."""
        who = np.isin(clients, self.clients)
        if self.attack is None or not who.any():
            return losses
        losses = losses.copy()
        losses[:, who] = self.attack.vote(offer, losses[:, who])
        return losses

    def send(self, offer: Offer, clients: Int64, models: Params) -> Params:
        """Return everyone's models, the attackers' as they send them."""
        who = np.flatnonzero(np.isin(clients, self.clients))
        if self.attack is None or not len(who):
            return models
        at = torch.from_numpy(who)
        theirs = self.attack.collude(
            offer,
            params.select(models, who),
            clients[who],
            params.select(models, ~np.isin(clients, self.clients)),
        )
        return {n: t.index_copy(0, at.to(t.device), theirs[n]) for n, t in models.items()}
