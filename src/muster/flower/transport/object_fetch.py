"""Fetching of replies from the SuperLink, one object at a time.

Flower's own `pull_messages` fetches a whole reply and assembles it, however large it is and however
long its sender takes. Here a server first learns of which objects a reply consists, and fetches
each of them without waiting; `requests` decides how much of it to take.
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


class MissingObject(Exception):
    """An object that was announced and will never arrive."""


@dataclass(frozen=True)
class Announcement:
    """A reply that has been announced.

    Attributes:
        source: the node that it names as its sender
        tree: the objects of which it consists, by their hashes
    """

    source: int
    tree: ObjectTree


@runtime_checkable
class ReplySource(Protocol):
    """The place where replies arrive."""

    def find_reply(self, message: str) -> Announcement | None:
        """Return the reply to a message, if there is one; it is returned once."""
        ...

    def fetch_object(self, name: str) -> bytes | None:
        """Return an object, if it has arrived.

        Raises:
            MissingObject: it never will
        """
        ...

    def confirm(self, message: str) -> None:
        """Confirm a reply, which is then dropped."""
        ...


@dataclass(frozen=True)
class SuperLinkReplies:
    """Replies of a real federation, fetched from its SuperLink."""

    client: Any
    node: Any
    run: int

    def find_reply(self, message: str) -> Announcement | None:
        """Return the reply to a message, if there is one. It is asked for alone: an error of the
        SuperLink must not cost another client's reply."""
        found = self.client.PullMessages(PullAppMessagesRequest(message_ids=[message]))
        for reply, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            if reply.metadata.reply_to_message_id == message:
                return Announcement(reply.metadata.src_node_id, tree)
        return None

    def fetch_object(self, name: str) -> bytes | None:
        """Return an object, if it has arrived."""
        request = PullObjectRequest(node=self.node, run_id=self.run, object_id=name)
        found = self.client.PullObject(request)
        if not found.object_found:
            raise MissingObject(name)
        return cast(bytes, found.object_content) if found.object_available else None

    def confirm(self, message: str) -> None:
        """Confirm a reply, which is then dropped."""
        self.client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(
                node=self.node, run_id=self.run, message_object_id=message
            )
        )


def reply_source(grid: Grid) -> ReplySource:
    """Return the place where replies to a grid's messages arrive."""
    if isinstance(grid, ReplySource):
        return grid
    return SuperLinkReplies(*runtime_connection(grid))
