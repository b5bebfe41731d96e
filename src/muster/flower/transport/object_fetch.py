"""The post: how a server looks for answers and fetches them, one object at a time.

Flower's own `pull_messages` fetches a whole answer and puts it together, however large it is and
however long its sender takes. Here a server learns first of which objects an answer consists, and
asks for each of them without waiting; `inbox` decides how much of it to take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from flwr.serverapp import Grid

from ..compat import (
    ConfirmMessageReceivedRequest,
    ObjectTree,
    PullAppMessagesRequest,
    PullObjectRequest,
    runtime_connection,
)


class Lost(Exception):
    """An object that was announced and will not come."""


@dataclass(frozen=True)
class Announced:
    """An answer that has been announced.

    Attributes:
        source: the node that it is said to come from
        tree: the objects of which it consists, by their hashes
    """

    source: int
    tree: ObjectTree


@runtime_checkable
class Post(Protocol):
    """Where answers arrive."""

    def announced(self, asked: str) -> Announced | None:
        """The answer to a message, if there is one; it is given out once."""
        ...

    def fetch(self, name: str) -> bytes | None:
        """An object, if it has come. Raises `Lost` when it never will."""
        ...

    def received(self, message: str) -> None:
        """An answer is no longer needed."""
        ...


@dataclass(frozen=True)
class Superlink:
    """The post of a real federation: what a run's server app may ask the superlink for."""

    client: Any
    node: Any
    run: int

    def announced(self, asked: str) -> Announced | None:
        """The answer to a message, if there is one. It is asked for alone: what the superlink
        cannot give out must cost nobody else's answer."""
        found = self.client.PullMessages(PullAppMessagesRequest(message_ids=[asked]))
        for message, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            if message.metadata.reply_to_message_id == asked:
                return Announced(message.metadata.src_node_id, tree)
        return None

    def fetch(self, name: str) -> bytes | None:
        """An object, if it has come."""
        request = PullObjectRequest(node=self.node, run_id=self.run, object_id=name)
        found = self.client.PullObject(request)
        if not found.object_found:
            raise Lost(name)
        return cast(bytes, found.object_content) if found.object_available else None

    def received(self, message: str) -> None:
        """An answer is no longer needed."""
        self.client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(
                node=self.node, run_id=self.run, message_object_id=message
            )
        )


def post_of(grid: Grid) -> Post:
    """Where the answers to a grid's messages arrive."""
    if isinstance(grid, Post):
        return grid
    return Superlink(*runtime_connection(grid))
