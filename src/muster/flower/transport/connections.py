"""Who is connected to the gate: strangers, for a moment and not many, and nodes by their keys.

Every connection is a stranger's from the moment the kernel hands it over, before TLS has begun,
until a request on it is signed by a registered key. A stranger that takes too long is shown out;
so is the one that has been there longest, when its address has too many, or there are too many
altogether. What nodes hold is counted by key, so that any number of them may share an address.
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

from .proxy_log import Refused

KNOWN_WITHIN = 15.0  # seconds from a connection to the first signed request on it
STRANGERS, STRANGERS_OF_ADDRESS = 512, 32  # connections
OF_KEY = 64  # connections of one node

Place = tuple[str, int]  # where a connection comes from


def neighbourhood(host: str) -> str:
    """The address that a connection counts for: for IPv6 the network of 64 bits, which is one
    customer's."""
    with suppress(ValueError):
        address = ipaddress.ip_address(host.partition("%")[0])
        if isinstance(address, ipaddress.IPv6Address):
            if address.ipv4_mapped is not None:
                return str(address.ipv4_mapped)
            return str(ipaddress.ip_network((address, 64), strict=False))
    return host


@dataclass
class Visitors:
    """The connections there are.

    Attributes:
        most: strangers at a time
    """

    most: int = STRANGERS
    strangers: dict[Place, Callable[[], None]] = field(default_factory=dict)  # oldest first
    nodes: dict[Place, bytes] = field(default_factory=dict)
    _of_address: Counter[str] = field(default_factory=Counter)
    _of_key: Counter[bytes] = field(default_factory=Counter)

    def came(self, place: Place, show_out: Callable[[], None]) -> None:
        """Somebody connected, and can be shown out."""
        home = neighbourhood(place[0])
        if self._of_address[home] >= STRANGERS_OF_ADDRESS:
            self._show_out(next(p for p in self.strangers if neighbourhood(p[0]) == home))
        elif len(self.strangers) >= self.most:
            self._show_out(next(iter(self.strangers)))
        self.strangers[place] = show_out
        self._of_address[home] += 1
        asyncio.get_running_loop().call_later(KNOWN_WITHIN, self._expire, place, show_out)

    def known(self, place: Place, key: bytes) -> None:
        """A connection turned out to be a node's."""
        if self._forget(place):
            self.nodes[place] = key
            self._of_key[key] += 1
        if self._of_key[key] > OF_KEY:
            raise Refused(503, f"over {OF_KEY} connections of one node")

    def left(self, place: Place) -> None:
        """A connection is closed."""
        self._forget(place)
        key = self.nodes.pop(place, None)
        if key is not None:
            self._of_key[key] -= 1
            self._of_key += Counter()  # without those that are 0

    def _expire(self, place: Place, show_out: Callable[[], None]) -> None:
        if self.strangers.get(place) is show_out:
            self._show_out(place)

    def _show_out(self, place: Place) -> None:
        show_out = self.strangers[place]
        self._forget(place)
        show_out()

    def _forget(self, place: Place) -> bool:
        if self.strangers.pop(place, None) is None:
            return False
        home = neighbourhood(place[0])
        self._of_address[home] -= 1
        if not self._of_address[home]:
            del self._of_address[home]
        return True


class Visit(socket.socket):
    """A connection that says when it is closed."""

    on_close: Callable[[], None] | None = None

    def close(self) -> None:
        """Close it, and say so once."""
        super().close()
        if self.on_close is not None:
            self.on_close()
            self.on_close = None

    def show_out(self) -> None:
        """End it from this side; whoever reads from it then closes it."""
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)


class Listener(socket.socket):
    """A listening socket whose connections are counted as they come."""

    visitors: Visitors

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection."""
        plain, address = super().accept()
        place = (str(address[0]), int(address[1]))
        visit = Visit(plain.family, plain.type, plain.proto, fileno=plain.detach())
        visit.on_close = lambda: self.visitors.left(place)
        self.visitors.came(place, visit.show_out)
        return visit, address


def listen(host: str, port: int, visitors: Visitors) -> Listener:
    """A socket that listens at an address of this machine."""
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = Listener(kind, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    listener.visitors = visitors
    return listener
