"""An in-process grid: messages go straight to the client app, with a context for each site.

For tests and measurements, and to try a federation's files and settings before machines are set
up. As on a real grid, messages are divided into the objects that travel and assembled again, so
nothing is shared by reference.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn, cast

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid

from ...federation import Federation
from ..client.app import app
from ..compat import (
    NodeInfo,
    TaskIdentity,
    get_all_nested_objects,
    get_object_tree,
    inflate_object_from_contents,
    no_object_id_recompute,
)
from ..local.local_data import write_client
from ..transport.object_fetch import Announcement

FIRST = 100  # the number of the first node


def travel(message: Message) -> Message:
    """Return a message as it arrives, assembled from the bytes of its objects."""
    with no_object_id_recompute():
        contents = {key: part.deflate() for key, part in get_all_nested_objects(message).items()}
        arrived = cast(Message, inflate_object_from_contents(message.object_id, contents))
        arrived.metadata.__dict__["_message_id"] = message.object_id
    return arrived


class Site:
    """A node: its owner's configuration, its key, its state; `online` if it is connected."""

    def __init__(self, config: dict[str, Any], key: bytes | None = None) -> None:
        new = ec.generate_private_key(ec.SECP384R1()).public_key()
        self.config = config
        self.key = key or new.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        self.state = RecordDict()
        self.online = True


def write_sites(fed: Federation, folder: Path) -> list[Site]:
    """Write each client's rows to a file of a folder; return a site for each."""
    files = [folder / f"{k}.npz" for k in range(fed.n)]
    for k, file in enumerate(files):
        write_client(fed, k, file)
    return [Site({"data-path": str(file)}) for file in files]


class InProcess(Grid):
    """Sites of this process as the nodes of a grid."""

    def __init__(self, sites: Iterable[Site]) -> None:
        # Outside a Flower run these are not set.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.nodes = dict(enumerate(sites, FIRST))
        self.replies: dict[str, Message] = {}
        self.arrived: dict[str, dict[str, bytes]] = {}  # the objects of each reply

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of connected nodes."""
        return [i for i, site in self.nodes.items() if site.online]

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return connected nodes with their keys."""
        return [NodeInfo(node_id=i, public_key=self.nodes[i].key) for i in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Deliver messages at once, and store the replies."""
        ids = []
        for message in messages:
            name = message.object_id
            message.metadata.__dict__["_message_id"] = name
            ids.append(name)
            reply = self.deliver(travel(message), self.nodes[message.metadata.dst_node_id])
            if reply is not None:
                self.replies[name] = reply
        return ids

    def deliver(self, message: Message, site: Site) -> Message | None:
        """Return the reply of a site; None: there is none."""
        context = Context(1, message.metadata.dst_node_id, site.config, site.state, {})
        try:
            reply = app(message, context)
        except Exception as error:
            return Message(Error(2, str(error)), reply_to=message)
        return reply

    def find_reply(self, asked: str) -> Announcement | None:
        """Return the reply to a message, if there is one."""
        reply = self.replies.pop(asked, None)
        if reply is None:
            return None
        with no_object_id_recompute():
            parts = {name: part.deflate() for name, part in get_all_nested_objects(reply).items()}
            self.arrived[reply.object_id] = parts
            return Announcement(reply.metadata.src_node_id, get_object_tree(reply))

    def fetch_object(self, name: str) -> bytes | None:
        """Return an object of a reply."""
        return next((parts[name] for parts in self.arrived.values() if name in parts), None)

    def confirm(self, message: str) -> None:
        """Drop a reply, of which the server needs no more."""
        self.arrived.pop(message, None)

    def _refuse_call(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("a federation does not use this")

    set_run = create_message = send_and_receive = pull_messages = _refuse_call
    run = property(_refuse_call)
