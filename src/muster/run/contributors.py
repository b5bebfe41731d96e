"""The clients' side of a private run: each contributes to one sum, or adds nothing to it.

`Contributors` is the interface, wherever the clients are. `LocalContributors` are those whose data
is in this process: they decide, train, and their contributions are clipped, made whole numbers and
summed; in a secure sum with masks and a committee's noise, as a federation does it. `muster.flower`
implements the same interface with messages over a network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ..base import params
from ..base.arrays import Float64, Int64
from ..base.lazy import torch
from ..base.params import State
from ..privacy.contributions import Contributions, contribute, flatten_updates
from ..privacy.fixed_point import Vectors, add, encode
from ..privacy.masks import Attempt
from ..privacy.noise import draw_vectors, seeded_words, system_words
from ..privacy.secure_sum import find_members, hash_offer, simulate_sum
from ..protocol import Appraisal, Decision, Offer, Roster
from .evaluation_cache import EvaluationCache
from .job import Job
from .local_clients import LocalClients

NOT_FINITE = "malformed: not finite"  # the reason of a client whose contribution is 0 for it


class Contributors(Protocol):
    """The clients of a private run, wherever they are."""

    def contribute(
        self, offer: Offer, roster: Roster, given: Int64, cache: EvaluationCache, memory: State
    ) -> Contributions:
        """Ask them to contribute to a private sum. `given` are the contributions of each so far,
        and `memory` their client state, where these are stored here."""
        ...

    def contribute_securely(
        self,
        offer: Offer,
        roster: Roster,
        given: Int64,
        cache: EvaluationCache,
        memory: State,
        charge: Callable[[], None],
    ) -> Contributions:
        """Ask them for a secure sum, with the committee's noise; `charge` the account for it before
        there is one."""
        ...


@dataclass(frozen=True)
class LocalContributors:
    """Contributors whose data is in this process: all clients, or the one of a node."""

    clients: LocalClients

    @property
    def job(self) -> Job:
        return self.clients.job

    def contribute(
        self,
        offer: Offer,
        roster: Roster,
        given: Int64,
        cache: EvaluationCache,
        memory: State,
        each: Callable[[Int64, Vectors], None] = lambda rows, vectors: None,
    ) -> Contributions:
        """Let each client decide whether to join; those who do, train, and their contributions are
        clipped, made whole numbers and summed. Each decides and contributes by its own rows and
        public numbers alone: the method's rules for joining and admission are both its own.

        Args:
            each: is given the rows of the roster that contribute, and their contributions
        """
        privacy, method, n = self.job.get_privacy(), self.job.method, len(roster)
        asked = roster.clients
        known = cache.appraise(asked) if method.appraises else cache.known.pick(asked)
        known = self.clients.apply_attack(
            offer, asked, known, self.clients.get_decision_requirements(asked)
        )
        extent = method.admit(offer, roster, known)
        if offer.round < self.job.warmup:
            extent = np.minimum(extent, roster.importance)
        decision = self.decide_to_contribute(offer, roster, given, known, extent, cache)
        joined = np.flatnonzero(decision.yes)
        claim, steps = np.full(n, np.nan), np.zeros(n, np.int64)
        factor = np.where(decision.yes, roster.share * extent, 0.0)
        folded = privacy.folded and method.refers
        groups = int(roster.group.max(initial=0)) + 1
        sums = np.zeros((groups, self.job.count_numbers(offer.model)), np.uint32)
        states = []
        most = max(
            1, self.clients.max_replies(offer.model) // 4
        )  # updates are in float64, and copied
        for start in range(0, len(joined), most):
            rows = joined[start : start + most]
            some = roster.pick(rows)
            own = {part: params.select(table, rows) for part, table in memory.items()}
            work, steps[rows], _ = self.clients.train(offer, some, own, None)
            states.append(work.memory)
            if method.claim.needs_requirement:
                rho = self.clients.get_decision_requirements(some.clients)
                tuned = self.clients.appraise_after_tuning(offer, some.clients, known.pick(rows))
                tuned = self.clients.apply_attack(offer, some.clients, tuned, rho)
                claim[rows] = method.claim(tuned, rho)
                factor[rows] *= np.nan_to_num(claim[rows]) / method.claim.most
            models = self.clients.adversary.send(offer, some.clients, work.models)
            updates = flatten_updates(models, offer.model)
            broken = rows[~np.isfinite(updates).all(1)]
            factor[broken], decision.reason[broken] = 0.0, NOT_FINITE
            sent = contribute(
                privacy,
                updates,
                factor[rows],
                known.loss[rows] if folded else None,
                some.share * some.importance,
            )
            vectors = encode(sent, privacy.clip, self.job.scale(offer))
            each(rows, vectors)
            for g in np.unique(some.group):
                sums[g] += add(vectors[some.group == g])
        return Contributions(
            sums,
            decision,
            known,
            factor,
            claim,
            steps,
            concat_states(states),
            np.zeros(n, np.bool_),
        )

    def contribute_securely(
        self,
        offer: Offer,
        roster: Roster,
        given: Int64,
        cache: EvaluationCache,
        memory: State,
        charge: Callable[[], None],
    ) -> Contributions:
        """Let clients contribute, and sum their contributions as a federation does: with masks and
        a committee. Those who do not join answer with 0."""
        job, privacy = self.job, self.job.get_privacy()
        every = np.zeros((len(roster), job.count_numbers(offer.model)), np.uint32)

        def store(rows: Int64, vectors: Vectors) -> None:
            every[rows] = vectors

        answers = self.contribute(offer, roster, given, cache, memory, store)
        words = seeded_words(offer.seed, offer.round) if privacy.seeded else system_words
        attempt = Attempt(bytes(32), offer.round, offer.round, hash_offer(offer))
        done = simulate_sum(
            find_members(privacy, self.clients.fed),
            attempt,
            dict(zip(roster.clients.tolist(), every, strict=True)),
            self.clients.fed.n,
            lambda shape: draw_vectors(shape, job.noise_deviation(offer), words),
            charge,
            dict(zip(roster.clients.tolist(), roster.group.tolist(), strict=True)),
        )
        return replace(answers, sums=None if done is None else done.sums)

    def decide_to_contribute(
        self,
        offer: Offer,
        roster: Roster,
        given: Int64,
        known: Appraisal,
        extent: Float64,
        cache: EvaluationCache,
    ) -> Decision:
        """Return who contributes: those that join, count, stay, and have budget left."""
        job, t = self.job, offer.round
        privacy, member = job.get_privacy(), roster.importance > 0
        decision = job.method.join(offer, roster, known)
        yes, reason = decision.yes, decision.reason.astype(np.dtypes.StringDType())
        budget = [privacy.budget(of, job.rounds, job.warmup) for of in (True, False)]
        most = [np.iinfo(np.int64).max if b is None else b for b in budget]
        stays = np.ones(len(roster), np.bool_)
        if job.may_leave(t):
            stays = self.clients.would_stay(roster.clients, cache)
        for rule, why in (
            (extent > 0, job.method.admit.reason),
            (stays, "requirement not met"),
            (privacy.find_due(roster, t, job.rounds), "not its turn"),
            (given < np.where(member, *most), "budget spent"),
        ):
            reason[yes & ~rule] = why
            yes = yes & rule
        return Decision(yes, reason)


def concat_states(states: Sequence[State]) -> State:
    """Return the client states of one portion of clients after another's."""
    first = states[0] if states else {}
    return {
        part: {name: torch.cat([s[part][name] for s in states]) for name in table}
        for part, table in first.items()
    }
