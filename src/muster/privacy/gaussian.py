"""Gaussian: the settings of differential privacy of a run, and the public numbers they fix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..base import rng
from ..base.arrays import Bool, Float64, Int64
from ..base.checks import check_above, check_one_of, check_whole, is_number, require
from ..base.errors import MusterError
from ..base.registry import part
from ..protocol import Roster
from ..schedules import Schedule, as_schedule
from .accountant import check_delta, epsilon, noise_for
from .committee import LEAST_MEMBERS

Protect = Literal["everyone", "others"]
Unit = Literal["clients", "rows"]
PROTECT = ("everyone", "others")
UNIT = ("clients", "rows")
OBJECTIVE, OTHERS = "objective", "others"  # the roles that have an account each


class Privacy:
    """The differential privacy of a run; `Gaussian` is the one there is."""


@part(Privacy, "gaussian")
@dataclass(frozen=True)
class Gaussian(Privacy):
    """Differential privacy of whole clients: a round releases the sum of their contributions, each
    at most `clip` long, with Gaussian noise of deviation `noise * clip`, once, whoever joined.

    Attributes:
        clip: C, the most that a client's contribution to one round may measure
        noise: z, the deviation of the noise in units of the clip; or give epsilon. With `secure`
            it may be 0: the server sees sums alone, and nothing else is promised
        epsilon: what the run may cost each protected client, from which the noise follows
        delta: the chance with which epsilon need not hold; well below one over the clients
        joins: R, the most rounds a protected client contributes to; those of the objective spread
            theirs evenly; default: every round
        protect: "everyone", or "others": clients outside the objective alone, and F(w) is exact
        unit: "clients": a client with all its rows is protected; "rows": each of its rows
        cap: rows from which on a client counts in full; below, it counts by its declared number of
            rows; default: every client counts the same
        denominator: weight of contributions that a sum is divided by; default: that of all asked
        loss: public schedule that takes the place of F(w); default: F(w) is released with the sum
        most_loss: B, the largest loss that counts in a released F(w)
        loss_share: beta, the part of a released F(w) in a contribution, next to 1 for the model
        smoothing: share of the last released F(w) that stays in the next
        groups: sums that a round releases, one of the priority clients and the others of clients
            dealt again every round, for `trust` to judge; 1: one sum
        secure: true: the server sees sums alone, which a committee of clients adds the noise to
        committee: names of its members, each of another owner; default: three priority clients
        colluders: members whose noise is not counted on: the others add so much more
        seeded: true: noise comes from the seed, for simulations: they repeat, and are not private
    """

    clip: float
    noise: float | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    joins: int | None = None
    protect: Protect = "everyone"
    unit: Unit = "clients"
    cap: int | None = None
    denominator: float | None = None
    loss: Schedule | None = None
    most_loss: float = 5.0
    loss_share: float = 0.5
    smoothing: float = 0.9
    groups: int = 1
    secure: bool = False
    committee: tuple[str, ...] = ()
    colluders: int = 1
    seeded: bool = False

    def __post_init__(self) -> None:
        check_above("privacy.clip", self.clip)
        if (self.noise is None) == (self.epsilon is None):
            raise MusterError("privacy: give noise or epsilon, one of both")
        for name in ("secure", "seeded"):
            flag = getattr(self, name)
            require(isinstance(flag, bool), f"privacy.{name}", flag, "True or False")
        if self.loss is not None:
            object.__setattr__(self, "loss", as_schedule(self.loss, "privacy.loss"))
        for name in ("noise", "epsilon", "denominator"):
            if getattr(self, name) is not None and not (name == "noise" and self.silent):
                check_above(f"privacy.{name}", getattr(self, name))
        check_delta(self.delta, "privacy.delta")
        for name in ("joins", "cap"):
            if getattr(self, name) is not None:
                check_whole(f"privacy.{name}", getattr(self, name))
        check_one_of("privacy.protect", self.protect, PROTECT)
        check_one_of("privacy.unit", self.unit, UNIT)
        check_above("privacy.most_loss", self.most_loss)
        check_above("privacy.loss_share", self.loss_share)
        smooth = self.smoothing
        ok = is_number(smooth) and 0.0 <= smooth < 1.0
        require(ok, "privacy.smoothing", smooth, "0.0 up to, not including, 1.0")
        check_whole("privacy.groups", self.groups)
        self._check_secure()
        if self.protect == "others" and self.loss is not None:
            raise MusterError(
                'privacy.loss: protect = "others" makes F(w) exact; leave one of both out'
            )

    def _check_secure(self) -> None:
        named = isinstance(self.committee, (tuple, list))
        require(named, "privacy.committee", self.committee, "a list of clients' names")
        object.__setattr__(self, "committee", tuple(self.committee))
        if not self.secure:
            require(not self.committee, "privacy.committee", self.committee, "with secure = true")
            return
        check_whole("privacy.colluders", self.colluders, 0, self.members - 1)
        if self.protect == "others":
            raise MusterError(
                'privacy.protect: "others" shows the server single losses, and secure = true sums '
                'alone; use protect = "everyone"'
            )
        if self.cap is not None:
            raise MusterError(
                "privacy.cap: with secure = true the server would set what each client counts by; "
                "leave it out"
            )

    @property
    def members(self) -> int:
        """The number of parties that add noise: the committee, or the server alone."""
        return (len(self.committee) or LEAST_MEMBERS) if self.secure else 1

    def noise_share(self, noise: float) -> float:
        """Return the deviation of one party's noise, so that those who do not collude add up to
        that of the sum: `noise / sqrt(members - colluders)`."""
        return noise / math.sqrt(self.members - self.colluders) if self.secure else noise

    @property
    def silent(self) -> bool:
        """True if secure sums have no noise: then they are all that is promised."""
        return self.secure and self.noise == 0

    @property
    def private(self) -> bool:
        """True if there is noise, and it cannot be computed again."""
        return not self.seeded and not self.silent

    def budget(self, member: bool, rounds: int, warmup: int) -> int | None:
        """Return the most rounds that a client of the objective, or another, contributes to; None:
        it is not protected, and contributes to all."""
        if member and self.protect == "others":
            return None
        asked = rounds if member else rounds - warmup
        return asked if self.joins is None else min(self.joins, asked)

    def multiplier(self, rounds: int, warmup: int) -> float:
        """Return z: the noise, or what the epsilon asks for in a run of so many rounds."""
        budgets = [self.budget(member, rounds, warmup) for member in (True, False)]
        most = max(b for b in budgets if b is not None)
        if not most:
            raise MusterError(
                'privacy.protect: "others", and none of them is ever asked; use protect = '
                '"everyone", or fewer rounds of warm-up'
            )
        if self.noise is not None:
            return float(self.noise)
        assert self.epsilon is not None, "one of both is given"
        return noise_for(self.epsilon, most, self.delta)

    def account(
        self, rounds: int, warmup: int, releases: int, early: int
    ) -> dict[str, float | None]:
        """Return the epsilon that releases have cost a client of each role at most; None: clients
        of that role are not protected.

        Args:
            releases: number of releases so far, also of rounds that were repeated
            early: how many of these were in warm-up, in which others are not asked
        """
        z = self.multiplier(rounds, warmup)
        spent: dict[str, float | None] = {}
        for role, asked in ((OBJECTIVE, releases), (OTHERS, releases - early)):
            most = self.budget(role == OBJECTIVE, rounds, warmup)
            if most is None or self.silent:
                spent[role] = None
            else:
                spent[role] = epsilon(z, min(most, asked), self.delta)
        return spent

    def find_due(self, roster: Roster, t: int, rounds: int) -> Bool:
        """Return True for clients that may contribute in round t. Those of the objective, who join
        every round, spread a budget evenly, each from a public phase of its own on."""
        due = np.ones(len(roster), np.bool_)
        if self.joins is None or self.joins >= rounds or self.protect == "others":
            return due
        phase = rng.uniform(rng.keys(0, "contributions", 0, roster.ids))
        passed = [np.floor(at * self.joins / rounds + phase) for at in (t, t + 1)]
        return np.where(roster.importance > 0, passed[1] > passed[0], due)

    def weights(self, rows: Int64) -> Float64:
        """Return a_k, by which each client counts, from declared numbers of rows: `min(rows, cap) /
        cap`; 1 without a cap."""
        if self.cap is None:
            return np.ones(len(rows))
        return np.asarray(np.minimum(rows, self.cap) / self.cap, np.float64)

    @property
    def folded(self) -> bool:
        """True if F(w), where a rule needs it, is released with the sum."""
        return self.protect == "everyone" and self.loss is None

    @property
    def model_part(self) -> float:
        """Length that the update has at most, next to the loss: `C / sqrt(1 + beta^2)`."""
        return self.clip / math.sqrt(1.0 + self.loss_share**2)
