"""Secure sums over the network: the server's requests to joiners and to the committee.

    train   everyone asked answers with a masked vector, those who abstain too
    unmask  every member of the committee answers the list of those who did

Attempts are numbered by the server's clock, and never twice the same: clients refuse any that is
not newer than the last. A member that fails is asked again for the same list, which it answers the
same way, before the attempt is given up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from flwr.app import ConfigRecord

from ...config.network import Precision
from ...privacy.committee import Committee, Groups, JoinerRecord, write_groups
from ...privacy.contributions import CONTRIBUTION
from ...privacy.fixed_point import Vectors
from ...privacy.masks import Attempt
from ...privacy.secure_sum import SecureSum, hash_offer, sum_securely
from ...protocol import Offer
from ..transport.sum_wire import LIST, NUMBER, SUM, read_vector
from ..transport.wire import Reply, apply_precision

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
