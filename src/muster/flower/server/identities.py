"""Who is who: clients are their registered public keys, and nothing they say themselves.

A node proves its key to the superlink before it is let on; the grid names the key of every node.
A client's number is its place in the configuration, wherever it connects from.
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
    """A public key in one form (DER), however it was written."""
    load = load_pem_public_key if key.lstrip().startswith(b"-----BEGIN") else load_ssh_public_key
    return load(key).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True)
class KeyRegistry:
    """The registered keys, by client number."""

    members: tuple[Member, ...]
    keys: dict[bytes, int]

    @classmethod
    def of(cls, members: tuple[Member, ...]) -> KeyRegistry:
        """The registry a configuration describes."""
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
        """The node of each registered client that is connected, and the keys of strangers."""
        nodes: dict[int, int] = {}
        strangers: set[str] = set()
        for node in grid.get_nodes():
            try:
                key = to_der(node.public_key)
            except (ValueError, UnsupportedAlgorithm):
                key = node.public_key
            if key in self.keys:
                nodes[self.keys[key]] = node.node_id
            else:
                strangers.add(hashlib.sha256(key).hexdigest()[:16])
        return nodes, strangers
