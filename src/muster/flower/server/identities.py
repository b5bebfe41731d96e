"""Identities of clients: their registered public keys, and nothing they state themselves.

A node proves its key to the SuperLink when it connects; the grid names the key of every node. A
client's number is its place in the configuration, wherever it connects from.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
    load_ssh_public_key,
)
from flwr.serverapp import Grid

from ...base.errors import MusterError
from ...config.network import Member


@lru_cache(maxsize=2**20)  # the same keys are looked up before every request
def to_der(key: bytes) -> bytes:
    """Return a public key as DER, whichever form it was written in."""
    load = load_pem_public_key if key.lstrip().startswith(b"-----BEGIN") else load_ssh_public_key
    return load(key).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True)
class KeyRegistry:
    """The registered keys, with the number of each client."""

    members: tuple[Member, ...]
    keys: dict[bytes, int]

    @classmethod
    def from_members(cls, members: tuple[Member, ...]) -> KeyRegistry:
        """Build the registry that a configuration describes."""
        keys: dict[bytes, int] = {}
        for k, member in enumerate(members):
            try:
                key = to_der(member.public_key().encode())
            except (ValueError, UnsupportedAlgorithm):
                raise MusterError(
                    f"clients.{member.name}.key: not a public key; make one with `muster keys`"
                ) from None
            if key in keys:
                other = members[keys[key]].name
                raise MusterError(f"clients: {other} and {member.name} have the same key")
            keys[key] = k
        return cls(members, keys)

    def find_nodes(self, grid: Grid) -> tuple[dict[int, int], set[str]]:
        """Return the node of each registered client that is connected, and short hashes of the
        keys of connected nodes that are not registered."""
        nodes: dict[int, int] = {}
        unregistered: set[str] = set()
        for node in grid.get_nodes():
            try:
                key = to_der(node.public_key)
            except (ValueError, UnsupportedAlgorithm):
                key = node.public_key
            if key in self.keys:
                nodes[self.keys[key]] = node.node_id
            else:
                unregistered.add(hashlib.sha256(key).hexdigest()[:16])
        return nodes, unregistered
