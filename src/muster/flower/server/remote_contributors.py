"""Contributions over a network: the clients' messages to a private sum.

Plain, the server adds up the contributions that arrive; secure (`RemoteSum`), it sees masked ones
and learns their sum alone:

    train   everyone asked answers with a masked vector, those who abstain too
    unmask  every member of the committee answers the list of those who did

Attempts are numbered by the server's clock, and never twice the same: clients refuse any that is
not newer than the last. A member that fails is asked again for the same list, which it answers the
same way, before the attempt is given up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from flwr.app import ConfigRecord, MessageType

from ...base.arrays import Int64
from ...base.params import State
from ...config.network import Precision
from ...privacy.committee import Committee, Groups, JoinerRecord, write_groups
from ...privacy.contributions import CONTRIBUTION, Contributions
from ...privacy.fixed_point import Vectors, centre
from ...privacy.masks import Attempt
from ...privacy.secure_sum import SecureSum, hash_offer, sum_securely
from ...protocol import Appraisal, Decision, Offer, Roster
from ...run.evaluation_cache import EvaluationCache
from ..transport.sum_wire import LIST, NUMBER, SUM, UNMASK, read_vector
from ..transport.wire import ClientRole, Reply, apply_precision
from .messenger import Messenger, Records
from .remote_clients import COUNTED, get_counted

Ask = Callable[[Mapping[str, ConfigRecord]], dict[int, Reply]]
AskSome = Callable[[list[int], Mapping[str, ConfigRecord]], dict[int, Reply]]


@dataclass
class RemoteSum:
    """The server's half of secure sums in a run.

    Attributes:
        run: hash of the run
        tries: attempts at a sum, and requests to a member in each
        last: number of the last attempt
    """

    committee: Committee
    run: bytes
    precision: Precision
    tries: int
    last: int = 0

    def sum(
        self,
        offer: Offer,
        ask_everyone: Ask,
        ask_some: AskSome,
        charge: Callable[[], None],
        say: Callable[[str], None],
        group_of: Mapping[int, int],
    ) -> tuple[SecureSum | None, dict[int, Reply]]:
        """Return the sums, if they came about, and everyone's last reply.

        Args:
            ask_everyone: sends the offer with more records, and returns the replies
            ask_some: does so to these members of the committee, with the request to unmask
            group_of: the group of each client
        """
        replies: dict[int, Reply] = {}

        def ask_joiners(attempt: Attempt) -> dict[int, JoinerRecord]:
            replies.update(ask_everyone({SUM: ConfigRecord({NUMBER: attempt.number})}))
            found = {k: read_vector(reply, attempt) for k, reply in replies.items()}
            return {k: record for k, record in found.items() if record is not None}

        def ask_members(attempt: Attempt, groups: Groups) -> dict[int, Vectors]:
            more = {SUM: ConfigRecord({NUMBER: attempt.number, LIST: write_groups(groups)})}
            given: dict[int, Vectors] = {}
            for _ in range(self.tries):
                missing = [j for j in self.committee.members if j not in given]
                for k, reply in (ask_some(missing, more) if missing else {}).items():
                    if reply.model is not None and not reply.why:
                        given[k] = reply.model[CONTRIBUTION].numpy()
                    else:
                        say(f"secure sum: the committee's client {k} gave no answer: {reply.why}")
            return given

        tries = self.attempts(offer)
        done = sum_securely(self.committee, tries, ask_joiners, ask_members, charge, say, group_of)
        return done, replies

    def attempts(self, offer: Offer) -> Iterator[Attempt]:
        """Yield attempts at a round's sum, each newer than any before."""
        server = {p: apply_precision(table, self.precision) for p, table in offer.server.items()}
        content = hash_offer(replace(offer, server=server))
        for _ in range(self.tries):
            self.last = max(time.time_ns(), self.last + 1)
            yield Attempt(self.run, offer.round, self.last, content)


@dataclass(frozen=True)
class RemoteContributors:
    """The clients of a private federation, asked for contributions.

    Attributes:
        sums: the server's half of secure sums; None: they are not secure
    """

    messenger: Messenger
    sums: RemoteSum | None = None

    def contribute(
        self, offer: Offer, roster: Roster, given: Int64, cache: EvaluationCache, memory: State
    ) -> Contributions:
        """Ask clients for their contributions, and sum those that are no longer than the clip.
        Nodes count their own contributions; an answer that is missing or malformed adds nothing."""
        asked, n = roster.clients, len(roster)
        replies = self.messenger.ask(MessageType.TRAIN, offer, self._contributors(roster, memory))
        received = [replies[int(k)] for k in asked]
        groups = int(roster.group.max(initial=0)) + 1
        sums = np.zeros((groups, self.messenger.job.count_numbers(offer.model)), np.uint32)
        yes = np.zeros(n, np.bool_)
        reason = np.array([r.why or "abstained" for r in received], np.dtypes.StringDType())
        for i, r in enumerate(received):
            if r.why or r.model is None:
                continue
            vector = r.model[CONTRIBUTION].numpy()
            yes[i] = is_within_clip(vector, roster.share[i] * self.messenger.job.scale(offer))
            reason[i] = "contributed" if yes[i] else "malformed: longer than the clip"
            if yes[i]:
                sums[roster.group[i]] += vector
        return self._record_contributions(offer, roster, sums, Decision(yes, reason), received)

    def contribute_securely(
        self,
        offer: Offer,
        roster: Roster,
        given: Int64,
        cache: EvaluationCache,
        memory: State,
        charge: Callable[[], None],
    ) -> Contributions:
        """Ask clients for masked contributions, and the committee for the sum of the masks. All
        that is known of a client is that it answered."""
        assert self.sums is not None, "the terms of a secure run have its parties"
        roles = self._contributors(roster, memory)

        def ask_some(members: list[int], more: Records) -> dict[int, Reply]:
            self.messenger.wait_for(members)
            some = [self.messenger.build_role(k) for k in members]
            return self.messenger.request(UNMASK, offer, some, frozenset(), more)

        def log(line: str) -> None:
            self.messenger.events.append((-1, line))
            self.messenger.say(line)

        done, replies = self.sums.sum(
            offer,
            lambda more: self.messenger.ask(MessageType.TRAIN, offer, roles, more),
            ask_some,
            charge,
            log,
            dict(zip(roster.clients.tolist(), roster.group.tolist(), strict=True)),
        )
        inside = [] if done is None else done.clients
        yes = np.isin(roster.clients, inside)
        received = [replies[int(k)] for k in roster.clients]
        why = [r.why or ("answered" if yes[i] else "no sum") for i, r in enumerate(received)]
        decision = Decision(yes, np.array(why, np.dtypes.StringDType()))
        sums = None if done is None else done.sums
        return self._record_contributions(offer, roster, sums, decision, received)

    def _contributors(self, roster: Roster, memory: State) -> list[ClientRole]:
        counted = get_counted(memory, len(roster))
        return [
            replace(self.messenger.build_role(int(k), counted=int(count)), share=float(share))
            for k, count, share in zip(roster.clients, counted, roster.share, strict=True)
        ]

    def _record_contributions(
        self,
        offer: Offer,
        roster: Roster,
        sums: Vectors | None,
        decision: Decision,
        received: Sequence[Reply],
    ) -> Contributions:
        """Return what the server knows after it asked for contributions."""
        n, yes = len(roster), decision.yes
        unknown = np.full(n, np.nan)
        return Contributions(
            sums,
            decision,
            Appraisal.unknown(n),
            np.where(yes, unknown, 0.0),
            unknown,
            np.zeros(n, np.int64),
            {COUNTED: {"round": torch.full((int(yes.sum()),), offer.round + 1)}},
            np.array([bool(r.failed) for r in received], np.bool_),
            self.messenger.counter.take(roster.clients),
            self.messenger.take_events(),
        )


def is_within_clip(vector: Vectors, most: float) -> bool:
    """Return True if a contribution's length is at most this: a check of one reply alone."""
    whole = centre(vector).astype(np.float64)
    return float(np.sqrt((whole * whole).sum())) <= most * (1 + 1e-9)
