"""One secure sum from the server's side, and parties that are simulated.

An attempt has two exchanges: everyone asked answers with a masked vector, then every member of the
committee answers one list of those who did. A client that fails is not in the list. A member that
fails ends the attempt, and the next one draws other masks. The account is charged when all answers
are there, before they are put together.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..base.params import Params
from ..federation import Federation
from ..protocol import Offer
from .committee import (
    LEAST_GROUP,
    Committee,
    Groups,
    JoinerRecord,
    MemberRecord,
    answer_list,
    answer_offer,
    check_members,
    check_vector,
    choose_members,
    unmask,
)
from .fixed_point import DEVIATIONS, Vectors, centre
from .gaussian import Gaussian
from .masks import Attempt, SumKey

DrawNoise = Callable[[tuple[int, int]], Vectors]  # of a member, as whole numbers modulo 2^32
Say = Callable[[str], None]


def hash_offer(offer: Offer) -> bytes:
    """Return the hash of everything in an offer that decides what clients answer."""
    numbers = (
        offer.round,
        offer.rounds,
        offer.population,
        offer.loss,
        offer.score,
        offer.eps,
        offer.lr,
    )
    found = hashlib.sha256(" ".join(map(repr, numbers)).encode())
    parts: dict[str, Params] = {"": offer.model, **offer.server}
    for part, table in sorted(parts.items()):
        for name, t in sorted(table.items()):
            found.update(f"{part} {name} {t.dtype} {tuple(t.shape)} ".encode())
            found.update(np.ascontiguousarray(t.detach().cpu().numpy()).tobytes())
    return found.digest()


def find_members(privacy: Gaussian, fed: Federation) -> tuple[int, ...]:
    """Return the committee of a simulation, in which each client is of another owner."""
    names = [fed.population.get_name(k) for k in range(fed.n)]
    members = choose_members(privacy.committee, names, names, fed.priority.tolist())
    check_members(members, names)
    return members


def is_possible(total: Vectors, clients: int, scale: int, deviation: float) -> bool:
    """Return True if contributions of so many clients, none longer than the clip, with noise of
    this deviation can have this sum. It is a function of the released sum alone; no single
    contribution can be looked at, and one that is far too long spoils the sum."""
    whole = centre(total).astype(np.float64)
    longest_noise = deviation * (math.sqrt(whole.size) + DEVIATIONS)
    return float(np.sqrt((whole * whole).sum())) <= clients * scale + longest_noise


@dataclass(frozen=True)
class SecureSum:
    """The sums of an attempt that succeeded, with every member's noise.

    Attributes:
        sums: of each group, `[group, number]`; 0 of one that is not listed
        clients: who is in one of them
    """

    sums: Vectors
    clients: tuple[int, ...]


def sum_securely(
    committee: Committee,
    attempts: Iterable[Attempt],
    ask_joiners: Callable[[Attempt], Mapping[int, JoinerRecord]],
    ask_members: Callable[[Attempt, Groups], Mapping[int, Vectors]],
    charge: Callable[[], None],
    say: Say = lambda line: None,
    group_of: Mapping[int, int] | None = None,
) -> SecureSum | None:
    """Return the sums of the first attempt that succeeds; None if none does. A group of too few
    answers is not in the list, but for the first, without which there is no sum.

    Args:
        ask_joiners: returns the answers of those asked that came
        ask_members: returns the answers, `[group, d]`, of the members that gave one to this list
        charge: accounts for the release, before there is one
        group_of: the group of each client; default: one for all
    """
    of = group_of or {}
    count = max(of.values(), default=0) + 1
    for attempt in attempts:
        answers = ask_joiners(attempt)
        found = {k: check_vector(committee, attempt, k, a) for k, a in answers.items()}
        every = [entry for entry in found.values() if entry is not None]
        dealt = [tuple(e for e in every if of.get(e.client, 0) == g) for g in range(count)]
        listed = [g for g, group in enumerate(dealt) if len(group) >= LEAST_GROUP]
        groups = tuple(dealt[g] for g in listed)
        for k in (k for k, entry in found.items() if entry is None):
            say(f"client {k}: its signature of a masked vector is wrong; it does not count")
        for g in (g for g in range(count) if g not in listed):
            say(f"secure sum: {len(dealt[g])} answered, and a group has {LEAST_GROUP}; no sum")
        if 0 not in listed:
            continue
        given = ask_members(attempt, groups)
        silent = [j for j in committee.members if j not in given]
        if not silent:
            charge()
            vectors = {k: answers[k].values for k in found}
            answered = np.stack(unmask(groups, vectors, [given[j] for j in committee.members]))
            sums = np.zeros((count, answered.shape[1]), np.uint32)
            sums[listed] = answered
            return SecureSum(sums, tuple(e.client for group in groups for e in group))
        say(f"secure sum: no answer of the committee's client {silent[0]}; no sum")
    return None


@dataclass
class SimulatedParties:
    """Joiners and members in this process, with keys of their own and what they wrote down."""

    committee: Committee
    keys: tuple[SumKey, ...]
    joined: dict[int, JoinerRecord] = field(default_factory=dict)
    answered: dict[int, MemberRecord] = field(default_factory=dict)

    @classmethod
    def create(cls, clients: int, members: tuple[int, ...]) -> SimulatedParties:
        """Return parties with new keys, each client of another owner."""
        keys = tuple(SumKey.generate() for _ in range(clients))
        public, owners = tuple(key.public for key in keys), tuple(map(str, range(clients)))
        return cls(Committee(public, owners, members), keys)

    def join(self, attempt: Attempt, vectors: Mapping[int, Vectors]) -> dict[int, JoinerRecord]:
        """Return the answers of clients with these contributions."""
        for k, values in vectors.items():
            before = self.joined.get(k)
            self.joined[k] = answer_offer(self.committee, self.keys[k], k, attempt, values, before)
        return {k: self.joined[k] for k in vectors}

    def answer(
        self,
        attempt: Attempt,
        groups: Groups,
        size: int,
        noise: DrawNoise,
        group_of: Mapping[int, int] | None = None,
    ) -> dict[int, Vectors]:
        """Return every member's answer to a list."""
        for j in self.committee.members:
            before = self.answered.get(j)
            self.answered[j] = answer_list(
                self.committee, self.keys[j], j, attempt, groups, size, noise, before, group_of
            )
        return {j: self.answered[j].values for j in self.committee.members}


def simulate_sum(
    members: tuple[int, ...],
    attempt: Attempt,
    vectors: Mapping[int, Vectors],
    clients: int,
    noise: DrawNoise,
    charge: Callable[[], None],
    group_of: Mapping[int, int] | None = None,
) -> SecureSum | None:
    """Return the secure sum of these contributions, by parties of this process with new keys."""
    parties = SimulatedParties.create(clients, members)
    size = len(next(iter(vectors.values()))) if vectors else 0
    return sum_securely(
        parties.committee,
        [attempt],
        lambda at: parties.join(at, vectors),
        lambda at, groups: parties.answer(at, groups, size, noise, group_of),
        charge,
        group_of=group_of,
    )
