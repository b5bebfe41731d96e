"""Attacks by name: the behaviours of Byzantine clients.

`Liars` chooses the attackers, when they begin, and whether they report the loss that wins; any
other attack is what they send, or the rows they train on. Those that work together, knowing what
honest clients send, are in `collusion`.

Where clients are free to leave, an attacker leaves like an honest client, by its true measure of
the model; with `stays` it never does: it is not there for the model (MaxFL, Table 2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ...base import rng
from ...base.arrays import Float64, Int64
from ...base.checks import check_above, check_one_of, check_share, check_whole
from ...base.errors import MusterError
from ...base.lazy import torch
from ...base.params import Params
from ...base.registry import part
from ...federation import Federation
from ...protocol import Appraisal, Offer
from ...schedules import Count, count_rounds
from .adversary import AMONG, Among, Attack, Honest, check_fraction

if TYPE_CHECKING:
    from torch import Tensor


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

    def report(self, offer: Offer, appraisal: Appraisal, requirement: Float64) -> Appraisal:
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

    def report(self, offer: Offer, appraisal: Appraisal, requirement: Float64) -> Appraisal:
        return winning_report(offer, appraisal, requirement)

    def send(self, offer: Offer, models: Params, clients: Int64) -> Params:
        return scale_updates(offer, models, -1.0)


def winning_report(offer: Offer, appraisal: Appraisal, requirement: Float64) -> Appraisal:
    """Return the report that counts most: exactly F(w) and its accuracy where they are broadcast,
    else exactly rho_k."""
    wins = requirement if np.isnan(offer.loss) else np.full(len(requirement), offer.loss)
    accuracy = appraisal.accuracy
    if not np.isnan(offer.accuracy):
        accuracy = np.full(len(requirement), offer.accuracy)
    return Appraisal(np.where(np.isnan(wins), appraisal.loss, wins), accuracy)


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
        return scale_updates(offer, models, self.factor)


def scale_updates(offer: Offer, models: Params, factor: float) -> Params:
    """Return `w + factor (w_k - w)`."""
    return {n: w + factor * (models[n] - w) for n, w in offer.model.items()}


@part(Attack, "liars")
@dataclass(frozen=True)
class Liars:
    """Clients who do `then` together: drawn from a group, from a round on, and reporting the loss
    that wins.

    Attributes:
        fraction: how many, as a share of all clients that may take part
        among: whom they are drawn from: anyone, outside (the priority group), or priority
        then: what they do; its own share does not count
        wins: whether they report exactly F(w) where it is broadcast, else exactly rho_k
        from_round: sleepers: honest in every round before this one (from 0), or in this share of
            all rounds (0.5: for half of the run), except for labels
        every: after that, honest in all rounds but every n-th
        stays: whether they stay where clients are free to leave
    """

    fraction: float = 0.05
    among: Among = "outside"
    then: Attack = ScaleUpdate(0.05, -1.0)
    wins: bool = True
    from_round: Count = 0
    every: int = 1
    stays: bool = False

    def __post_init__(self) -> None:
        check_fraction(self.fraction)
        check_one_of("attack among", self.among, AMONG)
        count_rounds(self.from_round, 100, "attack from_round")
        check_whole("attack every", self.every, 1)

    def asleep(self, offer: Offer) -> bool:
        """Return True if they are honest in this round."""
        awake = offer.round - count_rounds(self.from_round, offer.rounds, "attack from_round")
        return awake < 0 or awake % self.every != 0

    def poison(self, fed: Federation, attackers: Int64) -> Federation:
        return self.then.poison(fed, attackers)

    def report(self, offer: Offer, appraisal: Appraisal, requirement: Float64) -> Appraisal:
        if self.asleep(offer):
            return appraisal
        if self.wins:
            return winning_report(offer, appraisal, requirement)
        return self.then.report(offer, appraisal, requirement)

    def send(self, offer: Offer, models: Params, clients: Int64) -> Params:
        return models if self.asleep(offer) else self.then.send(offer, models, clients)

    def collude(self, offer: Offer, models: Params, clients: Int64, honest: Params) -> Params:
        if self.asleep(offer):
            return models
        return self.then.collude(offer, models, clients, honest)

    def vote(self, offer: Offer, losses: Float64) -> Float64:
        """Return the opposite of what they found: the best model is called the worst."""
        if self.asleep(offer):
            return losses
        return np.asarray(losses.max(0) + losses.min(0) - losses, np.float64)


@part(Attack, "sign_flip")
def sign_flip(fraction: float = 0.05, stays: bool = False) -> ScaleUpdate:
    """Send the update with its sign turned."""
    return ScaleUpdate(fraction, -1.0, stays)


@part(Attack, "label_flip")
@dataclass(frozen=True)
class LabelFlip(Honest):
    """Train on (and judge the model by) turned labels, `y -> C - 1 - y`. The run's measures are
    taken on the labels clients hold, the attackers' included. Held-out rows keep their labels, also
    where decisions use them."""

    fraction: float = 0.05
    stays: bool = False

    def __post_init__(self) -> None:
        check_fraction(self.fraction)

    def poison(self, fed: Federation, attackers: Int64) -> Federation:
        require_classes(fed, "label_flip")
        own = fed.train.base(fed.train.positions(attackers))
        x, y = fed.train.x[torch.from_numpy(own)], fed.train.y[torch.from_numpy(own)]
        return replace_rows(fed, attackers, x, fed.classes - 1 - y)


def require_classes(fed: Federation, attack: str) -> None:
    """Refuse an attack on classes where there are none."""
    if not fed.classes:
        raise MusterError(
            f"attack {attack}: it changes classes, and these targets are {fed.describe_targets()}; "
            "choose another attack"
        )


def replace_rows(fed: Federation, clients: Int64, x: Tensor, y: Tensor) -> Federation:
    """Return the federation with these training rows in place of the clients' own, in the same
    order: copies, since others may hold the same rows."""
    data = fed.train
    rows = data.base(np.arange(data.offsets[-1])).copy()
    rows[data.positions(clients)] = len(data.y) + np.arange(len(y))
    both = replace(data, x=torch.cat([data.x, x]), y=torch.cat([data.y, y]), rows=rows)
    return replace(fed, train=both)


@part(Attack, "backdoor")
@dataclass(frozen=True)
class Backdoor(Honest):
    """Teach the model that whoever carries a mark is of one class (Bagdasaryan et al. 2018): a
    share of their rows are marked and called `target`, and the update is sent `factor` times over.
    Measured on clean rows nothing shows.

    Attributes:
        target: the class
        pixels: the mark: this many features, the first of a row, at the largest value there is
        rows: share of an attacker's rows that are marked
        factor: how often over the update is sent
    """

    fraction: float = 0.05
    target: int = 0
    pixels: int = 4
    rows: float = 0.5
    factor: float = 1.0
    stays: bool = False

    def __post_init__(self) -> None:
        check_fraction(self.fraction)
        check_whole("attack target", self.target, 0)
        check_whole("attack pixels", self.pixels, 1)
        check_share("attack rows", self.rows)
        check_above("attack factor", self.factor)

    def mark(self, x: Tensor, most: Tensor) -> Tensor:
        """Return rows with the mark; `most` is the largest value."""
        flat = x.clone().flatten(1)
        flat[:, : self.pixels] = most
        return flat.view(x.shape)

    def poison(self, fed: Federation, attackers: Int64) -> Federation:
        require_classes(fed, "backdoor")
        data = fed.train
        own, chosen = choose_rows(fed, attackers, self.rows)
        x, y = data.x[own].clone(), data.y[own].clone()
        x[chosen], y[chosen] = self.mark(x[chosen], data.x.max()), self.target
        return replace_rows(fed, attackers, x, y)

    def send(self, offer: Offer, models: Params, clients: Int64) -> Params:
        return models if self.factor == 1.0 else scale_updates(offer, models, self.factor)


def choose_rows(fed: Federation, clients: Int64, share: float) -> tuple[Tensor, Tensor]:
    """Return the places of these clients' training rows, and True for a share of them."""
    own = torch.from_numpy(fed.train.base(fed.train.positions(clients)))
    # Every n-th row: which ones does not matter, as rows are in no order.
    return own, torch.arange(len(own)) % max(1, round(1 / max(share, 1e-9))) == 0


@part(Attack, "edge_case")
@dataclass(frozen=True)
class EdgeCase(Backdoor):
    """A backdoor at the edge of the data (Wang et al. 2020): instead of a mark, inputs that no
    honest client holds, rows with every feature turned over, `most - x`. What the model says of
    them is the attackers' alone to teach, within any bound and at no cost that shows.

    Attributes:
        target: the class
        rows: share of an attacker's rows that are turned over and called `target`
        factor: how often over the update is sent
    """

    def mark(self, x: Tensor, most: Tensor) -> Tensor:
        """Return rows turned over; `most` is the largest value."""
        return most - x


@part(Attack, "minority")
@dataclass(frozen=True)
class Minority(Honest):
    """Aimed at few: teach the model that the class that is rarest among the priority clients is the
    one that is commonest (targeted label flipping, Tolpegin et al. 2020). Whoever holds the rare
    class loses it; in the mean over priority clients little shows.

    Attributes:
        rows: share of an attacker's rows in whose place it has rows of the rare class
    """

    fraction: float = 0.05
    rows: float = 0.5
    stays: bool = False

    def __post_init__(self) -> None:
        check_fraction(self.fraction)
        check_share("attack rows", self.rows)

    def poison(self, fed: Federation, attackers: Int64) -> Federation:
        require_classes(fed, "minority")
        rare, common = rarest_and_commonest(fed)
        data = fed.train
        own, chosen = choose_rows(fed, attackers, self.rows)
        x, y = data.x[own].clone(), data.y[own].clone()
        known = data.x[data.y == rare]  # they know what the class looks like
        x[chosen], y[chosen] = known[torch.arange(int(chosen.sum())) % len(known)], common
        return replace_rows(fed, attackers, x, y)


def rarest_and_commonest(fed: Federation) -> tuple[int, int]:
    """Return the class of which the priority clients have the fewest training rows, but some, and
    the one of which they have most."""
    rows = fed.train.base(fed.train.positions(np.flatnonzero(fed.priority)))
    count = np.bincount(fed.train.y[torch.from_numpy(rows)].numpy(), minlength=fed.classes)
    return int(np.where(count > 0, count, np.inf).argmin()), int(count.argmax())
