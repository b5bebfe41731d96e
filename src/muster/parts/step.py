"""Step: the server's aggregation of the admitted replies, by which the model moves.

A step gets the offer, the admitted replies and their weights, and the server's state; it returns
the next model and the next state. Statistics that do not move by gradient (BatchNorm's)
are always averaged.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from ..base import params
from ..base.arrays import Bool, Float64
from ..base.checks import check_above, check_at_least, require
from ..base.lazy import torch
from ..base.params import Params, State
from ..base.registry import part
from ..protocol import Offer, Replies

Moved = tuple[Params, State]


class Step(Protocol):
    """The server's update: from the model and the weighed replies to the next model.

    Write one by inheriting from this class; only `__call__` has no default. A step with state names
    its tables in a field `keeps`, for the solvers, weights and efforts that need them. One that
    uses what clients send next to their models names it in a field `takes` (see `Solver.sends`).
    """

    @property
    def only_mean(self) -> bool:
        """True if the step uses only the replies' weighted mean and their total weight: it may then
        get one reply, their mean, and replies need not all be held at once."""
        return False

    def memory(self, model: Params, seen: Bool) -> State:
        """Return the server's state before the first round: tables of tensors by name, or `{}`.

        Args:
            model: the run's first model, by parameter name
            seen: True for each client of the population that may take part
        """
        return {}

    @abstractmethod
    def __call__(self, offer: Offer, replies: Replies, weight: Float64, server: State) -> Moved:
        """Return the next model and the server's next state.

        Args:
            offer: what the server sent: `model` (by parameter name), `trainable` (the names that
                move by gradient; average the rest), `lr`, `population` (N), `round`, `rounds`,
                `seed`, `loss`, `eps`
            replies: the admitted replies: `models` (a stack `[reply, *shape]` for each parameter),
                `roster` (`clients`, `priority`, `importance`, `share`), `appraisal.loss`, `claim`,
                `extra` (the tables of `takes`)
            weight: the weight of each reply, not all 0 (`muster.base.params.mean(replies.models,
                weight)` is their mean)
            server: the server's state, as `memory` or the last step returned it

        Returns:
            the next model, by the same names, and the next state
        """
        ...


def decay(what: str, value: float) -> None:
    """Refuse a decay that is not in [0, 1)."""
    require(0 <= value < 1, what, value, "0 up to, not including, 1")


def towards(offer: Offer, mean: Params, by: Params) -> Params:
    """Return the model moved by `by`; statistics take the mean of the replies."""
    return {n: w + by[n] if n in offer.trainable else mean[n] for n, w in offer.model.items()}


def move_by(offer: Offer, mean: Params, scale: float) -> Params:
    """Return the model moved by `scale` times its way to the mean of the replies."""
    return towards(offer, mean, {n: scale * (mean[n] - w) for n, w in offer.model.items()})


@part(Step, "average")
@dataclass(frozen=True)
class Average(Step):
    """`w' = w + server_lr (sum_k weight_k w_k / sum_k weight_k - w)`: the weighted average of the
    admitted for `server_lr = 1` (Algorithm 1, step 5)."""

    server_lr: float = 1.0
    only_mean: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_above("server_lr", self.server_lr)

    def __call__(self, offer: Offer, replies: Replies, weight: Float64, server: State) -> Moved:
        mean = params.mean(replies.models, weight)
        if self.server_lr == 1.0:
            return mean, server
        return move_by(offer, mean, self.server_lr), server


@part(Step, "estimate")
@dataclass(frozen=True)
class Estimate(Step):
    """`w' = w + server_lr sum_k v_k (w_k - w) / (1 + S)`, for replies that count by data share: v_k
    is what each counts by, S what they count in all beyond their place in the objective.

    With everyone there it is `Average`: then `sum_k v_k = 1 + S`. Where only some of the
    objective's clients are asked, each standing for others (`Apart(K, 1.0)`), their v_k need not
    sum to 1; dividing by what they sum to would make the round a biased estimate of the full one.
    Where not all others are asked either, S is estimated with them: then numerator and denominator
    are unbiased, and their ratio is not.
    """

    server_lr: float = 1.0

    def __post_init__(self) -> None:
        check_above("server_lr", self.server_lr)

    def __call__(self, offer: Offer, replies: Replies, weight: Float64, server: State) -> Moved:
        mean = params.mean(replies.models, weight)
        beyond = weight.sum() - replies.roster.importance @ replies.roster.share
        scale = self.server_lr * float(weight.sum() / (1.0 + beyond))
        return move_by(offer, mean, scale), server


@part(Step, "stay")
@dataclass(frozen=True)
class Stay(Step):
    """The model does not move: clients work on their own."""

    only_mean: ClassVar[bool] = True

    def __call__(self, offer: Offer, replies: Replies, weight: Float64, server: State) -> Moved:
        return offer.model, server


@part(Step, "adaptive")
@dataclass(frozen=True)
class Adaptive(Step):
    """`w' = w + server_lr / (sum_k q_k + epsilon) sum_k q_k (w_k - w)` (MaxFL, section 3).

    The paper prints a minus with `Delta = w_k - w`, which would be ascent.
    """

    server_lr: float = 1.0
    epsilon: float = 0.1
    only_mean: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_above("server_lr", self.server_lr)
        check_at_least("epsilon", self.epsilon)

    def __call__(self, offer: Offer, replies: Replies, weight: Float64, server: State) -> Moved:
        mean = params.mean(replies.models, weight)
        scale = self.server_lr * weight.sum() / (weight.sum() + self.epsilon)
        return move_by(offer, mean, scale), server


@part(Step, "q_fair")
@dataclass(frozen=True)
class QFair(Step):
    """q-FedAvg (Li et al. 2019): `w' = w - sum_k Delta_k / sum_k h_k` with `L = 1/lr`,
    `G_k = L (w - w_k)`, `Delta_k = F_k^q G_k`, `h_k = q F_k^(q-1) |G_k|^2 + L F_k^q`.

    G_k is the gradient after one step of plain SGD; otherwise (more steps, as in the paper; another
    optimizer; a rate that changes with every step, of which lr is the first) it is a stand-in for
    it, whose length only says how careful to be: `w'` lies between w and the mean of the w_k by
    `F_k^q`, wherever clients went, and is that mean for q = 0."""

    q: float

    def __call__(self, offer: Offer, replies: Replies, weight: Float64, server: State) -> Moved:
        if offer.lr == 0:
            return offer.model, server  # L = 1/lr does not exist; as lr goes to 0, w' goes to w
        mean = params.mean(replies.models, weight)
        smooth = 1.0 / offer.lr
        squared = sum(
            (params.as_rows(offer.model[n] - replies.models[n]) ** 2).sum(1)
            for n in offer.trainable
        )
        assert isinstance(squared, torch.Tensor)
        norm = smooth**2 * squared.double().cpu().numpy()
        # With q < 1 a reported loss of 0 would make h infinite and stop everyone.
        loss = replies.appraisal.loss
        loss = np.maximum(loss, max(1e-3 * float(np.median(loss)), 1e-12))
        h = self.q * loss ** (self.q - 1) * norm + smooth * weight
        scale = smooth * weight.sum() / h.sum()
        return move_by(offer, mean, scale), server


@part(Step, "scaffold")
@dataclass(frozen=True)
class Scaffold(Step):
    """SCAFFOLD's server (Karimireddy et al. 2020, option II): `w' = w + server_lr mean(w_k - w)`,
    `c' = c + |S|/N mean(c_k' - c_k)`."""

    server_lr: float = 1.0
    keeps: ClassVar[tuple[str, ...]] = ("control",)
    takes: ClassVar[tuple[str, ...]] = ("change",)

    def __post_init__(self) -> None:
        check_above("server_lr", self.server_lr)

    def memory(self, model: Params, seen: Bool) -> State:
        """The server's control variate, c = 0."""
        return {"control": {n: torch.zeros_like(t) for n, t in model.items()}}

    def __call__(self, offer: Offer, replies: Replies, weight: Float64, server: State) -> Moved:
        model, _ = Average(self.server_lr)(offer, replies, weight, {})
        part = len(replies.roster) / offer.population
        change = params.mean(replies.extra["change"], np.ones(len(replies.roster)))
        control = {n: c + part * change[n] for n, c in server["control"].items()}
        return model, {"control": control}


@part(Step, "agnostic")
@dataclass(frozen=True)
class Agnostic(Step):
    """AFL's server (Mohri et al. 2019): the mixture's average, then a step of projected ascent on
    the mixture, `lambda' = Proj_simplex(lambda + rate F)` for the clients that replied."""

    rate: float = 0.1
    keeps: ClassVar[tuple[str, ...]] = ("mixture",)

    def __post_init__(self) -> None:
        check_above("rate", self.rate)

    def memory(self, model: Params, seen: Bool) -> State:
        return {"mixture": {"lambda": torch.from_numpy(seen / seen.sum())}}

    def __call__(self, offer: Offer, replies: Replies, weight: Float64, server: State) -> Moved:
        raised = server["mixture"]["lambda"].cpu().numpy().copy()
        raised[replies.roster.clients] += self.rate * replies.appraisal.loss
        mixture = torch.from_numpy(project_to_simplex(raised))
        return params.mean(replies.models, weight), {"mixture": {"lambda": mixture}}


def project_to_simplex(v: Float64) -> Float64:
    """Return the nearest point with entries >= 0 that sum to 1 (Duchi et al. 2008).

    >>> project_to_simplex(np.array([0.5, 1.5, -3.0])).tolist()
    [0.0, 1.0, 0.0]
    """
    u = np.sort(v)[::-1]
    excess = (np.cumsum(u) - 1.0) / np.arange(1, len(u) + 1)
    return np.asarray(np.maximum(v - excess[np.flatnonzero(u > excess)[-1]], 0.0), np.float64)


@part(Step, "multiplicative")
@dataclass(frozen=True)
class Multiplicative(Step):
    """MW-Fed's server (Blum et al. 2021): the average, then the weight of every client whose
    requirement is not met is multiplied by `factor`."""

    factor: float = 4.0
    keeps: ClassVar[tuple[str, ...]] = ("multiplicative",)

    def __post_init__(self) -> None:
        check_at_least("factor", self.factor, 1)

    def memory(self, model: Params, seen: Bool) -> State:
        return {"multiplicative": {"weight": torch.ones(len(seen), dtype=torch.float64)}}

    def __call__(self, offer: Offer, replies: Replies, weight: Float64, server: State) -> Moved:
        raised = server["multiplicative"]["weight"].cpu().numpy().copy()
        raised[replies.roster.clients] *= self.factor**replies.claim
        # Only proportions count; this keeps them from overflowing, and from vanishing for good.
        raised = np.maximum(raised / raised.max(), 1e-12)
        after = {"multiplicative": {"weight": torch.from_numpy(raised)}}
        return params.mean(replies.models, weight), after


@part(Step, "momentum")
@dataclass(frozen=True)
class Momentum(Step):
    """FedAvgM (Hsu et al. 2019): `m' = beta m + Delta`, `w' = w + server_lr m'`, where
    `Delta = mean(w_k) - w`."""

    server_lr: float = 1.0
    beta: float = 0.9
    only_mean: ClassVar[bool] = True
    keeps: ClassVar[tuple[str, ...]] = ("momentum",)

    def __post_init__(self) -> None:
        check_above("server_lr", self.server_lr)
        decay("beta", self.beta)

    def memory(self, model: Params, seen: Bool) -> State:
        return {"momentum": {n: torch.zeros_like(t) for n, t in model.items()}}

    def __call__(self, offer: Offer, replies: Replies, weight: Float64, server: State) -> Moved:
        mean = params.mean(replies.models, weight)
        m = {n: self.beta * m + (mean[n] - offer.model[n]) for n, m in server["momentum"].items()}
        by = {n: self.server_lr * t for n, t in m.items()}
        return towards(offer, mean, by), {"momentum": m}


@part(Step, "adaptive_moments")
@dataclass(frozen=True)
class AdaptiveMoments(Step):
    """FedAdam and FedYogi (Reddi et al. 2020, Algorithm 2), with `Delta = mean(w_k) - w`:

    `m' = b1 m + (1 - b1) Delta`;  `w' = w + server_lr m' / (sqrt(v') + tau)`
    Adam  `v' = b2 v + (1 - b2) Delta^2`
    Yogi  `v' = v - (1 - b2) Delta^2 sign(v - Delta^2)`
    """

    server_lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    yogi: bool = False
    only_mean: ClassVar[bool] = True
    keeps: ClassVar[tuple[str, ...]] = ("first", "second")

    def __post_init__(self) -> None:
        check_above("server_lr", self.server_lr)
        check_above("tau", self.tau)
        decay("beta1", self.beta1)
        decay("beta2", self.beta2)

    def memory(self, model: Params, seen: Bool) -> State:
        """`m = 0`, `v = tau^2`, as in the paper."""
        return {
            "first": {n: torch.zeros_like(t) for n, t in model.items()},
            "second": {n: torch.full_like(t, self.tau**2) for n, t in model.items()},
        }

    def __call__(self, offer: Offer, replies: Replies, weight: Float64, server: State) -> Moved:
        mean = params.mean(replies.models, weight)
        first: Params = {}
        second: Params = {}
        by: Params = {}
        for n, w in offer.model.items():
            delta = mean[n] - w
            square, v = delta**2, server["second"][n]
            first[n] = self.beta1 * server["first"][n] + (1 - self.beta1) * delta
            if self.yogi:
                second[n] = v - (1 - self.beta2) * square * torch.sign(v - square)
            else:
                second[n] = self.beta2 * v + (1 - self.beta2) * square
            by[n] = self.server_lr * first[n] / (second[n].sqrt() + self.tau)
        return towards(offer, mean, by), {"first": first, "second": second}
