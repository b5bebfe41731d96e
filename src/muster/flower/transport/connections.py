"""Limits on the proxy's connections: few and short while unauthenticated, then counted by key.

Every connection is unauthenticated from the moment the kernel hands it over, before TLS has begun,
until a request on it is signed by a registered key. One that takes too long is closed; so is the
oldest one, when its address has too many, or there are too many altogether. Connections of nodes
are counted by key, so that any number of nodes may share an address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from .proxy_log import Refusal

AUTHENTICATION_TIMEOUT = 15.0  # seconds from a connection to the first signed request on it
MAX_UNAUTHENTICATED, MAX_UNAUTHENTICATED_PER_ADDRESS = 512, 32  # connections
MAX_PER_KEY = 64  # connections of one node

Peer = tuple[str, int]  # address and port that a connection comes from


def address_block(host: str) -> str:
    """Return the address that a connection counts for: for IPv6 the network of 64 bits, which is
    one customer's."""
    with suppress(ValueError):
        address = ipaddress.ip_address(host.partition("%")[0])
        if isinstance(address, ipaddress.IPv6Address):
            if address.ipv4_mapped is not None:
                return str(address.ipv4_mapped)
            return str(ipaddress.ip_network((address, 64), strict=False))
    return host


@dataclass
class Connections:
    """The open connections of the proxy.

    Attributes:
        limit: the most that may be unauthenticated at a time
    """

    limit: int = MAX_UNAUTHENTICATED
    unauthenticated: dict[Peer, Callable[[], None]] = field(default_factory=dict)  # oldest first
    nodes: dict[Peer, bytes] = field(default_factory=dict)
    _per_address: Counter[str] = field(default_factory=Counter)
    _per_key: Counter[bytes] = field(default_factory=Counter)

    def add(self, peer: Peer, disconnect: Callable[[], None]) -> None:
        """Count a new connection, and close the oldest one where there are too many."""
        block = address_block(peer[0])
        if self._per_address[block] >= MAX_UNAUTHENTICATED_PER_ADDRESS:
            self._disconnect(next(p for p in self.unauthenticated if address_block(p[0]) == block))
        elif len(self.unauthenticated) >= self.limit:
            self._disconnect(next(iter(self.unauthenticated)))
        self.unauthenticated[peer] = disconnect
        self._per_address[block] += 1
        asyncio.get_running_loop().call_later(
            AUTHENTICATION_TIMEOUT, self._expire, peer, disconnect
        )

    def authenticate(self, peer: Peer, key: bytes) -> None:
        """Count a connection for the registered key that signed a request on it."""
        if self._forget(peer):
            self.nodes[peer] = key
            self._per_key[key] += 1
        if self._per_key[key] > MAX_PER_KEY:
            raise Refusal(503, f"over {MAX_PER_KEY} connections of one node")

    def remove(self, peer: Peer) -> None:
        """Forget a connection that was closed."""
        self._forget(peer)
        key = self.nodes.pop(peer, None)
        if key is not None:
            self._per_key[key] -= 1
            self._per_key += Counter()  # without those that are 0

    def _expire(self, peer: Peer, disconnect: Callable[[], None]) -> None:
        if self.unauthenticated.get(peer) is disconnect:
            self._disconnect(peer)

    def _disconnect(self, peer: Peer) -> None:
        disconnect = self.unauthenticated[peer]
        self._forget(peer)
        disconnect()

    def _forget(self, peer: Peer) -> bool:
        if self.unauthenticated.pop(peer, None) is None:
            return False
        block = address_block(peer[0])
        self._per_address[block] -= 1
        if not self._per_address[block]:
            del self._per_address[block]
        return True


class Connection(socket.socket):
    """A connection that calls back when it is closed."""

    on_close: Callable[[], None] | None = None

    def close(self) -> None:
        """Close it, and call back once."""
        super().close()
        if self.on_close is not None:
            self.on_close()
            self.on_close = None

    def disconnect(self) -> None:
        """End it from this side; whoever reads from it then closes it."""
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)


class Listener(socket.socket):
    """A listening socket whose connections are counted as they come."""

    connections: Connections

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection."""
        plain, address = super().accept()
        peer = (str(address[0]), int(address[1]))
        connection = Connection(plain.family, plain.type, plain.proto, fileno=plain.detach())
        connection.on_close = lambda: self.connections.remove(peer)
        self.connections.add(peer, connection.disconnect)
        return connection, address


def listen(host: str, port: int, connections: Connections) -> Listener:
    """Return a socket that listens at an address of this machine."""
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = Listener(kind, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    listener.connections = connections
    return listener
