"""A node of an attacker's own: it has a registered key, speaks Flower's protocol, and answers what
it likes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
)
from flwr.app import Context, RecordDict
from flwr.app.message import make_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from flower_raw import Raw
from muster.flower.client.app import app


class Attacker:
    """A node by hand.

    attack  what it makes of a message to train: None: an honest answer; else (contents, announced,
            names of objects that it keeps back)
    """

    def __init__(self, address: str, ca: Path, key: Path, data: Path) -> None:
        private = load_ssh_private_key(key.read_bytes(), None)
        self.public = private.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )
        self.client = FleetHttpClient.from_server_address(
            address,
            False,
            ca.read_bytes(),
            [NodeAuthHttpInterceptor(private, private.public_key())],
        )
        self.data, self.state = data, RecordDict()
        self.attack: Callable | None = None
        self.seen: list = []
        self.node: Node | None = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.live, daemon=True)

    def connect(self) -> None:
        response = self.client.ActivateNode(
            ActivateNodeRequest(public_key=self.public, heartbeat_interval=30)
        )
        self.node = Node(node_id=response.node_id)

    def close(self) -> None:
        self.ended.set()
        self.thread.join(30)
        self.client.close()

    def live(self) -> None:
        beat = 0.0
        while not self.ended.wait(0.5):
            try:
                if time.monotonic() - beat > 10:
                    self.client.SendNodeHeartbeat(
                        SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=30)
                    )
                    beat = time.monotonic()
                self.turn()
            except httpx.HTTPError:
                time.sleep(1)

    def turn(self) -> None:
        found = self.client.PullMessages(PullMessagesRequest(node=self.node))
        if not found.messages_list:
            return
        asked = message_from_proto(found.messages_list[0])
        run, tree = asked.metadata.run_id, found.message_object_trees[0]
        contents = {}
        for part in iterate_object_tree(tree):
            contents[part.object_id] = self.pull(run, part.object_id)
        message = inflate_object_from_contents(tree.object_id, contents)
        message.metadata.__dict__["_message_id"] = tree.object_id
        self.seen.append(message)
        honest = app(message, Context(run, 0, {"data-path": str(self.data)}, self.state, {}))
        if self.attack is None or message.metadata.message_type != "train":
            parts = {n: o.deflate() for n, o in get_all_nested_objects(honest).items()}
            self.push(honest.metadata, honest.object_id, get_object_tree(honest), parts)
            return
        raw = Raw()
        announced, kept = self.attack(raw, message, honest)
        name = announced.tree.object_id
        held = {n for n in raw.contents if n in kept}
        parts = {n: c for n, c in raw.contents.items() if n not in held}
        self.push(honest.metadata, name, announced.tree, parts)

    def pull(self, run: int, object_id: str) -> bytes:
        """One object of a message, once the server has put it there."""
        request = PullObjectRequest(node=self.node, run_id=run, object_id=object_id)
        while not self.ended.wait(0.1):
            found = self.client.PullObject(request)
            if found.object_available:
                return found.object_content
        raise httpx.HTTPError("the attack is over")

    def push(self, metadata, name, tree, parts, source: int | None = None) -> httpx.Response | None:
        """Send a reply, from this node or (as it says) from another."""
        metadata.__dict__["_message_id"] = name
        proto = message_to_proto(make_message(metadata=metadata, content=RecordDict()))
        if source is not None:
            proto.metadata.src_node_id = source
        answer = self.client.PushMessages(
            PushMessagesRequest(
                node=self.node,
                messages_list=[proto],
                message_object_trees=[tree],
                clientapp_runtime_list=[0.0],
            )
        )
        for object_id in answer.objects_to_push:
            if object_id in parts:
                self.client.PushObject(
                    PushObjectRequest(
                        node=self.node,
                        run_id=metadata.run_id,
                        object_id=object_id,
                        object_content=parts[object_id],
                        session_id=answer.session_id,
                    )
                )
        return answer
