"""Access to the proxy: limits on connections, authentication of requests, and a log of refusals.

Every connection is unauthenticated from the moment the kernel hands it over, before TLS has begun,
until a request on it is signed by a registered key. One that takes too long is closed; so is the
oldest one, when its address has too many, or there are too many altogether. Connections of nodes
are counted by key, so that any number of nodes may share an address.

A request is authenticated by a registered key and its signature over the time. The SuperLink checks
the same once more. The proxy does it first, with Flower's own functions, so that nothing but the
headers of an unauthenticated request is read, stored or forwarded. The SuperLink knows which keys
are registered; it is asked when a request brings an unknown key. The log cannot fill a disk.
"""

from __future__ import annotations

import asyncio
import binascii
import datetime
import ipaddress
import logging
import socket
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from ..compat import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
    PROTOBUF_MEDIA_TYPE,
    SYSTEM_TIME_TOLERANCE,
    TIMESTAMP_HEADER,
    TIMESTAMP_TOLERANCE,
    ListNodesRequest,
    ListNodesResponse,
    NodeStatus,
    bytes_to_public_key,
    now,
    verify_signature,
)
from .wire import clean_line

LINES_A_MINUTE = 30  # of the log
LONGEST_LINE = 250  # characters

Say = Callable[[str], None]


class Refusal(Exception):
    """A request that is not forwarded: the HTTP status and the reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass
class Log:
    """A log that writes so many short lines a minute, and then counts."""

    say: Say
    minute: int = 0
    lines: int = 0

    def __call__(self, text: str) -> None:
        now = int(time.monotonic() // 60)
        if now != self.minute:
            if self.lines > LINES_A_MINUTE:
                self.say(f"and {self.lines - LINES_A_MINUTE} more refusals")
            self.minute, self.lines = now, 0
        self.lines += 1
        if self.lines <= LINES_A_MINUTE:
            self.say(clean_line(text, LONGEST_LINE))


class LogHandler(logging.Handler):
    """A logging handler that sends other packages' records to the same log."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record as a line, with its exception but no traceback."""
        error = record.exc_info[1] if record.exc_info else None
        self.log(f"{record.getMessage()} {error!r}" if error else record.getMessage())


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


LIST_NODES = "/v1/control/list-nodes"
RETRY_PAUSE = 2.0  # seconds before the SuperLink is asked for its keys again, for an unknown key
CACHE_TIMEOUT = 60.0  # seconds after which it is asked anyway


@dataclass
class RegisteredKeys:
    """The public keys of the nodes that are registered with a SuperLink.

    Attributes:
        client: the HTTP client that reaches the SuperLink
    """

    client: httpx.AsyncClient
    keys: frozenset[bytes] = frozenset()
    asked: float = float("-inf")
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def has(self, key: bytes) -> bool:
        """Return True for a registered key; ask the SuperLink where the cache may be outdated."""
        if self._is_due(key):
            async with self.turn:
                if self._is_due(key):  # and nobody has asked meanwhile
                    await self._ask()
        return key in self.keys

    def _is_due(self, key: bytes) -> bool:
        age = asyncio.get_running_loop().time() - self.asked
        return age > (CACHE_TIMEOUT if key in self.keys else RETRY_PAUSE)

    async def _ask(self) -> None:
        answer = await self.client.post(
            LIST_NODES,
            content=ListNodesRequest().SerializeToString(),
            headers={"content-type": PROTOBUF_MEDIA_TYPE, "accept": PROTOBUF_MEDIA_TYPE},
        )
        answer.raise_for_status()
        listed = ListNodesResponse.FromString(answer.content).nodes_info
        self.keys = frozenset(
            node.public_key for node in listed if node.status != NodeStatus.UNREGISTERED
        )
        self.asked = asyncio.get_running_loop().time()


async def authenticate(headers: Mapping[str, str], registered: RegisteredKeys) -> bytes:
    """Return the registered key that signed a request; refuse any other request."""
    try:
        key = b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True)
        signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER], validate=True)
        stated = headers[TIMESTAMP_HEADER]
        age = (now() - datetime.datetime.fromisoformat(stated)).total_seconds()
        signed = stated.encode("ascii")
    except (KeyError, ValueError, TypeError, OverflowError, binascii.Error):
        raise Refusal(401, "not signed as a node's requests are") from None
    if not await registered.has(key):
        raise Refusal(
            400,
            "this node's key is not registered; the server's people register it with "
            "`flwr supernode register`",
        )
    if not verify_signature(_load_key(key), signed, signature):
        raise Refusal(401, "the signature is not of this key")
    check_clock(age)
    return key


def check_clock(age: float) -> None:
    """Refuse a signature that was made too long ago, or in the future.

    Args:
        age: seconds since it was made, by the two machines' clocks
    """
    if age <= -SYSTEM_TIME_TOLERANCE:
        off, allowed = f"{-age:.0f} s fast", SYSTEM_TIME_TOLERANCE
    elif age >= TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE:
        off, allowed = f"{age:.0f} s slow", TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE
    else:
        return
    raise Refusal(
        400, f"this node's clock is {off}, and less than {allowed} s is allowed; set it (by NTP)"
    )


@lru_cache(maxsize=2**16)
def _load_key(key: bytes) -> EllipticCurvePublicKey:
    return bytes_to_public_key(key)
