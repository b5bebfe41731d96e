"""Runs of muster's methods on small federations, with the models after some rounds recorded.

Local SGD takes `w <- w - eta_t (g + lam w)` with Theorem 1's `eta_t = 2/(mu (t + gamma))`, t
counting local steps, in float64, and every step draws its batch again: then E[g_t | past] is the
gradient at w_t, as eq. 37 has it. Who was admitted is read from the run's ledger.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ...base.arrays import Bool, Float64
from ...base.lazy import pl, torch
from ...base.params import Params, State
from ...data.sets.synth import synth
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
from .convex import Constants, scale_rows

BATCH = 10  # rows of a batch


def small_synth(seed: int = 0) -> Federation:
    """Build SYNTH(1, 1) at low noise, rows of norm at most 1: 2 priority clients and 6 others, each
    with 40 training rows."""
    return scale_rows(synth(priority=2, others=6, noise="low", seed=seed, max_rows=50))


def mirror_pair() -> Federation:
    """Build a priority client and its mirror image: equal in loss at every model that does not use
    the second feature, where FedALIGN from w = 0 stays, and with another minimum."""
    x, flip, y = np.array([[0.8, 0.6], [-0.8, -0.6]]), np.array([1.0, -1.0]), [1, 0]
    return Federation.from_arrays([(x, y), (x * flip, y)], priority=[0], name="mirrored")


def opposed_pair() -> Federation:
    """Build a priority client of two rows, and another of forty rows with the labels swapped."""
    x = np.array([[1.0, 0.0], [-1.0, 0.0]])
    other = (np.tile(x, (20, 1)), [0, 1] * 20)
    return Federation.from_arrays([(x, [1, 0]), other], priority=[0], name="opposed")


@dataclass(frozen=True)
class RecordingStep:
    """A server step that also records its models after the rounds asked for."""

    step: Step
    rounds: frozenset[int]
    models: dict[int, Float64]

    @property
    def only_mean(self) -> bool:
        return self.step.only_mean

    def memory(self, model: Params, seen: Bool) -> State:
        return self.step.memory(model, seen)

    def __call__(self, offer: Offer, replies: Replies, weight: Float64, server: State) -> Moved:
        model, server = self.step(offer, replies, weight, server)
        if offer.round + 1 in self.rounds:
            self.models[offer.round + 1] = matrix(model)
        return model, server


def matrix(model: Params) -> Float64:
    """Join softmax regression's weight and bias to one matrix, [class, feature], the bias last."""
    weight, bias = model.values()
    return np.concatenate([weight.cpu().numpy(), bias.cpu().numpy()[:, None]], axis=1)


@dataclass(frozen=True)
class Trajectory:
    """A run, and its models after some rounds."""

    run: Run
    models: dict[int, Float64]

    def admitted_sums(self, fed: Federation, Gamma_k: Float64) -> tuple[Float64, Float64]:
        """Sum `p_k` (S_t) and `p_k Gamma_k` over each round's admitted non-priority clients."""
        admitted = self.run.clients.filter(pl.col("admitted") & ~pl.col("priority"))
        at, who = admitted["round"].to_numpy() - 1, admitted["client"].to_numpy()
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
) -> Trajectory:
    """Run softmax regression in float64 and record the models after the rounds `at`. It starts from
    0, or from the matrix `start`."""
    models: dict[int, Float64] = {}
    recording = replace(method, step=RecordingStep(method.step, frozenset(at), models))
    module = Softmax().build(fed, seed).double()
    if start is not None:
        weight, bias = module.parameters()
        weight.data, bias.data = torch.tensor(start[:, :-1]), torch.tensor(start[:, -1])
    run = simulate(
        fed,
        recording,
        module,
        rounds,
        local,
        seed,
        evaluate_every=0,
        dtype="float64",
        engine="stacked",
    )
    return Trajectory(run, models)


def theorem_local(c: Constants, steps: int, batch_size: int | None) -> Local:
    """Return Theorem 1's local work: `eta_t = 2/(mu (t + gamma))`, independent batches (eq. 37),
    and the quadratic's pull on all parameters."""
    gamma = offset(c, steps)
    return Local(
        steps=steps,
        batch_size=batch_size,
        lr=Inverse(2 / (c.mu * gamma), 1 / gamma),
        lr_counts="steps",
        batches="independent",
        optimizer=sgd(weight_decay=c.mu),
    )


def log_spaced_rounds(rounds: int, points: int) -> list[int]:
    """Return rounds from 1 to the last, evenly spaced by their logarithm, each once.

    >>> log_spaced_rounds(100, 5)
    [1, 3, 10, 32, 100]
    """
    found: list[int] = np.unique(np.rint(np.geomspace(1, rounds, points)).astype(int)).tolist()
    return found
