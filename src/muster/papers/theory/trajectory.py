"""A method of muster's run on the regularised problem, with the models on its way kept.

Local SGD takes `w <- w - eta_t (g + lam w)` with Theorem 1's `eta_t = 2/(mu (t + gamma))`, t
counting local steps, in float64, and every step draws its batch anew: then E[g_t | past] is the
gradient at w_t, as eq. 37 has it. What was admitted comes from the run's own ledger.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ...base.arrays import Bool, Float64
from ...base.lazy import pl, torch
from ...base.params import Params, State
from ...federation import Federation
from ...local import Local
from ...methods import Method
from ...models.specs import Softmax
from ...optimizers import sgd
from ...parts.step import Moved, Step
from ...protocol import Offer, Replies
from ...results.run import Run
from ...run.simulate import simulate
from ...schedules import Inverse
from .bounds import offset
from .convex import Constants


@dataclass(frozen=True)
class Watched:
    """A server step that also keeps the models it leads to, after the rounds asked for."""

    step: Step
    rounds: frozenset[int]
    kept: dict[int, Float64]

    @property
    def only_mean(self) -> bool:
        return self.step.only_mean

    def memory(self, model: Params, seen: Bool) -> State:
        return self.step.memory(model, seen)

    def __call__(self, offer: Offer, replies: Replies, weight: Float64, server: State) -> Moved:
        model, server = self.step(offer, replies, weight, server)
        if offer.round + 1 in self.rounds:
            self.kept[offer.round + 1] = matrix(model)
        return model, server


def matrix(model: Params) -> Float64:
    """Softmax regression's weight and bias as one matrix, [class, feature], the bias last."""
    weight, bias = model.values()
    return np.concatenate([weight.cpu().numpy(), bias.cpu().numpy()[:, None]], axis=1)


@dataclass(frozen=True)
class Followed:
    """A run, and its models after some rounds."""

    run: Run
    models: dict[int, Float64]

    def admitted(self, fed: Federation, Gamma_k: Float64) -> tuple[Float64, Float64]:
        """`S_t` and `sum p_k Gamma_k` over the admitted non-priority clients, one per round."""
        let_in = self.run.clients.filter(pl.col("admitted") & ~pl.col("priority"))
        at, who = let_in["round"].to_numpy() - 1, let_in["client"].to_numpy()
        p, rounds = fed.share[who], len(self.run.rounds)
        extra, bias = np.zeros(rounds), np.zeros(rounds)
        np.add.at(extra, at, p)
        np.add.at(bias, at, p * Gamma_k[who])
        return extra, bias


def follow(
    fed: Federation,
    method: Method,
    local: Local,
    rounds: int,
    seed: int,
    at: Iterable[int],
    start: Float64 | None = None,
) -> Followed:
    """Run softmax regression in float64, and keep the models after these rounds. It starts from 0,
    or from the matrix `start`."""
    kept: dict[int, Float64] = {}
    watched = replace(method, step=Watched(method.step, frozenset(at), kept))
    module = Softmax().build(fed, seed).double()
    if start is not None:
        weight, bias = module.parameters()
        weight.data, bias.data = torch.tensor(start[:, :-1]), torch.tensor(start[:, -1])
    run = simulate(
        fed, watched, module, rounds, local, seed,
        evaluate_every=0, dtype="float64", engine="stacked",
    )  # fmt: skip
    return Followed(run, kept)


def theorem_local(c: Constants, steps: int, batch_size: int | None) -> Local:
    """Theorem 1's local work: `eta_t = 2/(mu (t + gamma))`, independent batches (eq. 37), and the
    quadratic's pull on all parameters."""
    gamma = offset(c, steps)
    return Local(
        steps=steps,
        batch_size=batch_size,
        lr=Inverse(2 / (c.mu * gamma), 1 / gamma),
        lr_counts="steps",
        batches="independent",
        optimizer=sgd(weight_decay=c.mu),
    )


def log_spaced(rounds: int, points: int) -> list[int]:
    """Rounds from 1 to the last, evenly spaced by their logarithm, each once.

    >>> log_spaced(100, 5)
    [1, 3, 10, 32, 100]
    """
    found: list[int] = np.unique(np.rint(np.geomspace(1, rounds, points)).astype(int)).tolist()
    return found
