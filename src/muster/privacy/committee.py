"""Secure sums: the halves of a joiner, of a member of the committee, and of the server.

    joiner  y_k = x_k + sum_j mask_kj mod 2^32, signed
    server  checks signatures; sends every member the list of (k, nonce, hash, signature) in groups
    member  checks the list; answers sum_{k in group} mask_kj - noise_j, for one list an attempt
    server  sum of a group = sum_k y_k - sum_j answer_j mod 2^32

A single contribution stays hidden while one member is honest. All of this is pure: a joiner and a
member return the record that they must have written down before they send what is in it. Asked the
same again, they repeat it; they answer no other request of that attempt, and none of an earlier.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..base.errors import MusterError, unknown_name
from .fixed_point import Vectors
from .masks import (
    ATTEMPT,
    KEY,
    SIGNATURE,
    Attempt,
    PublicSumKey,
    SumKey,
    bind_pair,
    derive_mask,
    hash_vector,
)

LEAST_MEMBERS, LEAST_GROUP = 3, 3
OTHER_OWNERS = 2  # in a group, besides the owner of the member that is asked
ENTRY = np.dtype(
    [("group", "<u4"), ("client", "<u4"), ("nonce", "V32"), ("hash", "V32"), ("signature", "V64")]
)
HEAD = struct.Struct(">I")


@dataclass(frozen=True)
class Committee:
    """The parties of secure sums, by the number of a client; everyone agrees to this beforehand.
    No two clients share half a key: a mask is of the key that it was agreed on with, so that the
    answer for one client would take off the mask of another.

    Attributes:
        keys: public keys of every client
        owners: the owner of every client
        members: the clients whose masks hide the sum, each of another owner
    """

    keys: tuple[PublicSumKey, ...]
    owners: tuple[str, ...]
    members: tuple[int, ...]

    def __post_init__(self) -> None:
        n, halves = len(self.keys), ("sign", "agree")
        different = [len({getattr(key, half) for key in self.keys}) for half in halves]
        if len(self.owners) != n or different != [n, n]:
            raise MusterError("privacy: clients share a key for secure sums; give each its own")
        check_members(self.members, self.owners)


def check_members(members: Sequence[int], owners: Sequence[str]) -> None:
    """Refuse a committee that is too small, or in which someone has two places."""
    different = {owners[j] for j in members if 0 <= j < len(owners)}
    if len(members) < LEAST_MEMBERS or len(different) != len(members):
        raise MusterError(
            f"privacy.committee: {len(members)} clients of {len(different)} owners; name "
            f"{LEAST_MEMBERS} or more, each of another owner"
        )


def choose_members(
    committee: Sequence[str], names: Sequence[str], owners: Sequence[str], priority: Sequence[bool]
) -> tuple[int, ...]:
    """Return the numbers of a committee's members.

    Args:
        committee: their names; empty: the first priority clients of three owners
        names: of all clients, by their number, like the next two
    """
    numbers = {name: k for k, name in enumerate(names)}
    if committee:
        for name in committee:
            if name not in numbers:
                raise unknown_name("client in privacy.committee", name, numbers)
        return tuple(numbers[name] for name in committee)
    first: dict[str, int] = {}
    for k in np.flatnonzero(np.asarray(priority, np.bool_)).tolist():
        first.setdefault(owners[k], k)
    return tuple(first.values())[:LEAST_MEMBERS]


@dataclass(frozen=True)
class Entry:
    """A joiner's answer as the members see it: its nonce, its vector's hash, its signature."""

    client: int
    nonce: bytes
    hash: bytes
    signature: bytes

    def verify(self, committee: Committee, attempt: Attempt) -> bool:
        """Return True if a client of the roster signed it for this attempt."""
        if not 0 <= self.client < len(committee.keys):
            return False
        content = signed_bytes(attempt, self.client, self.nonce, self.hash)
        return committee.keys[self.client].verify(self.signature, content)


Groups = tuple[tuple[Entry, ...], ...]


@dataclass(frozen=True)
class JoinerRecord:
    """A joiner's answer to an attempt, which it writes down before it sends it."""

    attempt: Attempt
    nonce: bytes
    signature: bytes
    values: Vectors

    def to_bytes(self) -> bytes:
        """Return it as the bytes of a file."""
        return self.attempt.to_bytes() + self.nonce + self.signature + self.values.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> JoinerRecord:
        """Return the record of a file's bytes."""
        cuts = np.cumsum([ATTEMPT.size, KEY, SIGNATURE]).tolist()
        attempt = Attempt.from_bytes(data[: cuts[0]])
        values = np.frombuffer(data[cuts[2] :], np.uint32)
        return cls(attempt, data[cuts[0] : cuts[1]], data[cuts[1] : cuts[2]], values)


@dataclass(frozen=True)
class MemberRecord:
    """A member's answer to an attempt, `[group, d]`, with the hash of the one list it is for."""

    attempt: Attempt
    list_hash: bytes
    values: Vectors

    def to_bytes(self) -> bytes:
        """Return it as the bytes of a file."""
        head = self.attempt.to_bytes() + self.list_hash + HEAD.pack(len(self.values))
        return head + self.values.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> MemberRecord:
        """Return the record of a file's bytes."""
        cuts = np.cumsum([ATTEMPT.size, KEY, HEAD.size]).tolist()
        (groups,) = HEAD.unpack(data[cuts[1] : cuts[2]])
        values = np.frombuffer(data[cuts[2] :], np.uint32).reshape(groups, -1)
        return cls(Attempt.from_bytes(data[: cuts[0]]), data[cuts[0] : cuts[1]], values)


def signed_bytes(attempt: Attempt, client: int, nonce: bytes, vector_hash: bytes) -> bytes:
    """Return what a joiner signs."""
    return b"muster sum 1" + attempt.to_bytes() + HEAD.pack(client) + nonce + vector_hash


def is_repeated(before: JoinerRecord | MemberRecord | None, attempt: Attempt) -> bool:
    """Return True if this attempt was answered; refuse one that is not newer than the last."""
    if before is None or before.attempt.number < attempt.number:
        return False
    if before.attempt == attempt:
        return True
    raise MusterError(
        f"secure sum: attempt {attempt.number} of round {attempt.round} is not newer than "
        f"{before.attempt.number} of round {before.attempt.round}, which was answered; nothing was "
        "sent"
    )


def answer_offer(
    committee: Committee,
    key: SumKey,
    client: int,
    attempt: Attempt,
    values: Vectors,
    before: JoinerRecord | None,
) -> JoinerRecord:
    """Return the answer of a joiner with this contribution: what it answered before, if it did."""
    if before is not None and is_repeated(before, attempt):
        return before
    check_own_key(committee, key, client)
    nonce = secrets.token_bytes(KEY)
    masked = values.copy()
    for member in (committee.keys[j] for j in committee.members):
        pair = bind_pair(attempt, nonce, committee.keys[client], member)
        masked += derive_mask(key, member, pair, len(values))
    signature = key.make_signature(signed_bytes(attempt, client, nonce, hash_vector(masked)))
    return JoinerRecord(attempt, nonce, signature, masked)


def answer_list(
    committee: Committee,
    key: SumKey,
    client: int,
    attempt: Attempt,
    groups: Groups,
    size: int,
    noise: Callable[[tuple[int, int]], Vectors],
    before: MemberRecord | None,
    group_of: Mapping[int, int] | None = None,
) -> MemberRecord:
    """Return the answer of a member to a list: what it answered before, if it was the same list.

    Args:
        size: numbers of a contribution
        noise: draws the member's own noise of this shape, as whole numbers modulo 2^32
        group_of: the group of each client by the agreed draw; default: one for all
    """
    listed = hashlib.sha256(write_groups(groups)).digest()
    if before is not None and is_repeated(before, attempt):
        if before.list_hash != listed:
            raise MusterError(
                f"secure sum: attempt {attempt.number} of round {attempt.round} was answered for "
                "another list; nothing was sent"
            )
        return before
    check_own_key(committee, key, client)
    check_groups(committee, client, attempt, groups, group_of)
    answer = np.zeros((len(groups), size), np.uint32) - noise((len(groups), size))
    for row, group in zip(answer, groups, strict=True):
        for entry in group:
            joiner = committee.keys[entry.client]
            pair = bind_pair(attempt, entry.nonce, joiner, committee.keys[client])
            row += derive_mask(key, joiner, pair, size)
    return MemberRecord(attempt, listed, answer)


def check_own_key(committee: Committee, key: SumKey, client: int) -> None:
    """Refuse to act for a client with other keys than everyone agreed to."""
    if not 0 <= client < len(committee.keys) or committee.keys[client] != key.public:
        raise MusterError(
            f"secure sum: the terms have another key for client {client} than this node's; give "
            "it the NAME.agg whose public half was registered"
        )


def check_groups(
    committee: Committee,
    member: int,
    attempt: Attempt,
    groups: Groups,
    group_of: Mapping[int, int] | None = None,
) -> None:
    """Refuse a list by which the server, alone or with this member's owner, could single anyone
    out: a group too small or of too few owners, a client listed twice, a signature that is wrong,
    clients put together or apart by another hand than the draw that was agreed on."""

    def refuse(why: str) -> MusterError:
        return MusterError(f"secure sum: the server's list {why}; nothing was sent")

    if member not in committee.members:
        raise refuse("came to a client that is not in the committee")
    clients = [entry.client for group in groups for entry in group]
    if not groups or len(set(clients)) != len(clients):
        raise refuse("names a client twice" if groups else "is empty")
    for group in groups:
        if len(group) < LEAST_GROUP:
            raise refuse(f"has a group of {len(group)}, and the least is {LEAST_GROUP}")
        for entry in group:
            if not entry.verify(committee, attempt):
                raise refuse(f"has no valid signature of client {entry.client}")
        owners = {committee.owners[entry.client] for entry in group}
        if len(owners - {committee.owners[member]}) < OTHER_OWNERS:
            raise refuse(f"has a group of fewer than {OTHER_OWNERS} other owners")
    of = group_of or {}
    dealt = [g for group in groups for g in sorted({of.get(entry.client, 0) for entry in group})]
    if len(dealt) != len(groups) or dealt != sorted(set(dealt)):
        raise refuse("has other groups than the agreed seed deals in this round")


def check_vector(
    committee: Committee, attempt: Attempt, client: int, answer: JoinerRecord
) -> Entry | None:
    """Return a joiner's answer as an entry of the list; None if its signature is wrong."""
    entry = Entry(client, answer.nonce, hash_vector(answer.values), answer.signature)
    return entry if entry.verify(committee, attempt) else None


def unmask(
    groups: Groups, vectors: Mapping[int, Vectors], answers: Sequence[Vectors]
) -> list[Vectors]:
    """Return the sum of each group, from the masked vectors and every member's answer."""
    sums = []
    for g, group in enumerate(groups):
        total = np.zeros_like(answers[0][g])
        for entry in group:
            total += vectors[entry.client]
        for answer in answers:
            total -= answer[g]
        sums.append(total)
    return sums


def write_groups(groups: Groups) -> bytes:
    """Return a list as it travels."""
    rows = [
        (g, entry.client, entry.nonce, entry.hash, entry.signature)
        for g, group in enumerate(groups)
        for entry in group
    ]
    return np.array(rows, ENTRY).tobytes()


def count_groups(data: bytes) -> int:
    """Return the number of groups of a list that travels."""
    return int(np.frombuffer(data, ENTRY)["group"][-1]) + 1


def read_groups(data: bytes, clients: int) -> Groups:
    """Return the list that travelled, of at most this many clients."""
    if len(data) > clients * ENTRY.itemsize or len(data) % ENTRY.itemsize:
        raise MusterError(f"secure sum: a list of {len(data)} bytes; nothing was sent")
    groups: list[list[Entry]] = []
    for row in np.frombuffer(data, ENTRY):
        g = int(row["group"])
        if g not in (len(groups) - 1, len(groups)):
            raise MusterError("secure sum: a list whose groups are out of order; nothing was sent")
        if g == len(groups):
            groups.append([])
        nonce, vector_hash, signature = (
            row[name].tobytes() for name in ("nonce", "hash", "signature")
        )
        groups[g].append(Entry(int(row["client"]), nonce, vector_hash, signature))
    return tuple(tuple(group) for group in groups)
