"""The in-process grid, with sites that tamper with their replies, and a log of what travelled."""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import Error, Message

from muster.flower.testing.in_process import InProcess, Site, travel

Tamper = Callable[[Message, Message], Message | None]


class Node(Site):
    def __init__(self, config, tamper: Tamper | None = None, key: bytes | None = None) -> None:
        super().__init__(config, key)
        self.tamper = tamper


class LocalGrid(InProcess):
    def __init__(self, nodes: list[Node]) -> None:
        super().__init__(nodes)
        self.log: list[tuple[Message, Message | None]] = []

    def deliver(self, message: Message, site: Node) -> Message | None:
        reply = super().deliver(message, site)
        if site.tamper is not None and not reply.has_error():
            try:
                reply = site.tamper(message, reply)
            except Exception as error:
                reply = Message(Error(2, str(error)), reply_to=message)
        if reply is not None and not reply.has_error():
            reply = travel(reply)
        self.log.append((message, reply))
        return reply
