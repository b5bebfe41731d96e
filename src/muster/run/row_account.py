"""Each client's own account where its rows are protected: its noise, and the epsilon it costs.

In a round a row is in the gradients of a client's batches, and in its released loss where a rule
asks for it. The account is of what the code draws:

full batches        every row in each step: Gaussian releases, in closed form
shuffled            every row once a pass, in a batch that anybody may know: as many releases as
                    passes were begun; no amplification is claimed
poisson             every row by itself with probability q = batch_size / rows, drawn in secret:
                    sampled releases, one for each step

Neighbours are data with a row and the same without what it adds, as for whole clients: the numbers
of rows stay, and are public. To replace a row is to take one out and to put one in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from ..base.arrays import Float64, Int64
from ..base.lazy import pl
from ..engines.batches import count_batches, count_steps
from ..local import Local
from ..method import Method
from ..parts.invite import Apart, Fraction, Full, Sample
from ..privacy.accountant import epsilon, noise_for
from ..privacy.gaussian import Gaussian
from ..privacy.row_noise import RowNoise
from ..privacy.sampled_accountant import SampledRelease, find_noise, measure_epsilon
from ..results.run_warnings import Facts
from .job import Job

STEP = 0.02  # rates are rounded up by so much at most, so that few accounts are computed


@dataclass(frozen=True)
class RowUse:
    """The use of a row in a run.

    Attributes:
        rate: the probability with which it is in a release of gradients
        gradients: the number of releases of gradients that may have it
        losses: the number of releases of its client's loss
    """

    rate: float
    gradients: int
    losses: int

    def measure(self, noise: float, loss_noise: float, delta: float) -> float:
        """Return the epsilon of these releases; of Gaussians alone, in closed form."""
        if self.rate == 1.0:
            return epsilon(1.0, self._sum(noise, loss_noise), delta)
        return measure_epsilon(self._list(noise, loss_noise), delta)

    def choose_noise(self, epsilon: float, loss_noise: float, delta: float) -> float:
        """Return the noise of gradients with which everything costs this epsilon."""
        if self.rate == 1.0:
            # Of mu^2 = 1 / z^2 for one release that costs all of it, losses take their part.
            left = noise_for(epsilon, 1, delta) ** -2 - self._sum(math.inf, loss_noise)
            return math.sqrt(self.gradients / left)
        return find_noise(lambda z: self._list(z, loss_noise), epsilon, delta)

    def _sum(self, noise: float, loss_noise: float) -> float:
        """Return mu^2 of these releases where all are Gaussian."""
        return self.gradients / noise**2 + self.losses / loss_noise**2

    def _list(self, noise: float, loss_noise: float) -> list[SampledRelease]:
        kinds = [(self.rate, noise, self.gradients), (1.0, loss_noise, self.losses)]
        return [SampledRelease(*kind) for kind in kinds if kind[2]]


@dataclass(frozen=True)
class RowAccount:
    """The accounts of all clients of a run.

    Attributes:
        noise: z of each client's gradients, and of its losses
    """

    privacy: Gaussian
    method: Method
    local: Local
    sizes: Int64
    noise: RowNoise

    @classmethod
    def open(cls, job: Job, sizes: Int64) -> RowAccount | None:
        """Return the accounts of clients with these numbers of rows before a run, with each one's
        noise: what the privacy has, or what its epsilon asks for. None: rows are not protected."""
        if job.privacy is None or not job.protects_rows:
            return None
        privacy, delta = job.privacy, job.privacy.delta

        @cache
        def choose(use: RowUse) -> tuple[float, float]:
            only = RowUse(use.rate, use.gradients, 0)
            target, z = privacy.epsilon, privacy.noise
            if target is None:
                assert z is not None, "one of both is given"
                target = only.measure(z, 1.0, delta)
            loss_noise = 1.0
            if use.losses:
                loss_noise = noise_for(privacy.loss_share * target, use.losses, delta)
            return use.choose_noise(target, loss_noise, delta) if z is None else z, loss_noise

        uses = list_uses(job.method, job.local, job.rounds, sizes)
        both = np.array([choose(use) for use in uses])
        most, seeded = privacy.most_loss, privacy.seeded
        noise = RowNoise(privacy.clip, both[:, 0], most, both[:, 1], seeded)
        return cls(privacy, job.method, job.local, sizes, noise)

    @property
    def least_noise(self) -> float:
        """The least z of any client's gradients."""
        return float(self.noise.noise.min())

    def measure(self, played: int) -> Float64:
        """Return the epsilon that so many rounds, repeated ones too, cost each client's rows at
        most."""

        @cache
        def spend(use: RowUse, noise: float, loss_noise: float) -> float:
            return use.measure(noise, loss_noise, self.privacy.delta)

        spent = [
            spend(use, float(z), float(loss))
            for use, z, loss in zip(
                list_uses(self.method, self.local, played, self.sizes),
                self.noise.noise,
                self.noise.loss_noise,
                strict=True,
            )
        ]
        return np.array(spent, np.float64)

    def find_warnings(self) -> list[str]:
        """Return warnings of settings whose promise says little."""
        rows, delta = int(self.sizes.max()), self.privacy.delta
        if delta * rows < 1.0:
            return []
        return [
            f"privacy.delta is {delta:g}, and a client has {rows} rows: to release one of them "
            f"whole would be allowed; use less than {1 / rows:.0e}"
        ]

    def describe(self, played: int) -> Facts:
        """Return the facts of a run that protects rows: the least noise and the largest epsilon of
        any client."""
        return {
            "privacy": {
                "private": self.privacy.private,
                "unit": self.privacy.unit,
                "protect": self.privacy.protect,
                "clip": float(self.privacy.clip),
                "noise": self.least_noise,
                "delta": float(self.privacy.delta),
                "releases": played,
                "epsilon_rows": float(self.measure(played).max()),
            }
        }

    def add_columns(self, final: pl.DataFrame, played: int) -> pl.DataFrame:
        """Return the table of clients with the account of each after so many rounds."""
        spent = pl.when("unseen").then(0.0).otherwise(pl.Series(self.measure(played)))
        noise = pl.Series("row_noise", self.noise.noise)
        return final.with_columns(noise, spent.alias("row_epsilon"))


def list_uses(method: Method, local: Local, rounds: int, sizes: Int64) -> list[RowUse]:
    """Return each client's use of a row in so many rounds, asked in all of them."""
    steps, rate = count_steps(sizes, local), np.ones(len(sizes))
    if local.batch_size is not None and local.batches == "poisson":
        exact = np.log(np.minimum(1.0, local.batch_size / sizes))
        rate = np.exp(np.minimum(0.0, STEP * np.ceil(exact / STEP)))
    elif local.batch_size is not None:
        steps = -(-steps // count_batches(sizes, local.batch_size, False))  # passes begun
    losses = rounds + 1 if releases_losses(method) and rounds else 0  # also of the last model
    return [RowUse(float(q), int(n), losses) for q, n in zip(rate, rounds * steps, strict=True)]


def releases_losses(method: Method) -> bool:
    """Return True if clients report losses of a round's model, by some rule of the method."""
    return method.reports or not isinstance(method.invite, (Full, Sample, Fraction, Apart))
