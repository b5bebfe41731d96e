"""A Flower grid in this process: messages go straight to the client app, one context a node.

What a real grid does to messages is done here too: they are taken apart into the objects that
travel and put together again, so nothing is shared by reference.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import Context, Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from muster.flower.client import app
from muster.network import Member

Tamper = Callable[[Message, Message], Message | None]


def keypair():
    private = ec.generate_private_key(ec.SECP384R1())
    return private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


def travel(message: Message) -> Message:
    """A message as it arrives: from the bytes of its objects."""
    objects = get_all_nested_objects(message)
    contents = {key: part.deflate() for key, part in objects.items()}
    arrived = inflate_object_from_contents(message.object_id, contents)
    arrived.metadata.__dict__["_message_id"] = message.object_id
    return arrived


class Node:
    """A node: its owner's configuration, its key, its state, and how it tampers with replies."""

    def __init__(self, config, tamper: Tamper | None = None, key: bytes | None = None) -> None:
        self.config, self.tamper = config, tamper
        self.key = key or keypair()
        self.state = RecordDict()
        self.online = True


class LocalGrid(Grid):
    """Nodes 1, 2, ... of this process. `log` keeps every message that travelled."""

    def __init__(self, nodes: list[Node]) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.nodes = {100 + i: node for i, node in enumerate(nodes)}
        self.replies: dict[str, Message] = {}
        self.log: list[tuple[Message, Message | None]] = []
        self.ids = count()

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError

    def get_node_ids(self):
        return [i for i, node in self.nodes.items() if node.online]

    def get_nodes(self):
        return [NodeInfo(node_id=i, public_key=self.nodes[i].key) for i in self.get_node_ids()]

    def push_messages(self, messages):
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
            ids.append(message.object_id)
            reply = self.deliver(travel(message), self.nodes[message.metadata.dst_node_id])
            self.log.append((message, reply))
            if reply is not None:
                self.replies[message.object_id] = reply
        return ids

    def deliver(self, message: Message, node: Node) -> Message | None:
        context = Context(1, message.metadata.dst_node_id, node.config, node.state, {})
        try:
            reply = app(message, context)
            if node.tamper is not None:
                reply = node.tamper(message, reply)
        except Exception as error:
            reply = Message(Error(2, str(error)), reply_to=message)
        return reply if reply is None or reply.has_error() else travel(reply)

    def pull_messages(self, message_ids):
        return [self.replies.pop(i) for i in message_ids if i in self.replies]


def members_of(fed, nodes):
    return tuple(
        Member(
            f"client{k}", nodes[k].key.decode(), bool(fed.priority[k]), unseen=bool(fed.unseen[k])
        )
        for k in range(fed.n)
    )
