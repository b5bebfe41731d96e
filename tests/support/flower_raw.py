"""Answers that no client app would write: objects of any form, put together by hand."""

from __future__ import annotations

import hashlib
import json

from flwr.app import ConfigRecord
from flwr.app.metadata import Metadata
from flwr.common.serde import metadata_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import ObjectTree

from muster.flower.transport.object_fetch import Announcement


class Raw:
    """Objects by hash, and the tree that announces them."""

    def __init__(self):
        self.contents: dict[str, bytes] = {}

    def add(self, kind: str, children=(), body: bytes = b"") -> ObjectTree:
        """An object of this kind; `children` are trees of objects that were added before."""
        head = f"{kind} {','.join(c.object_id for c in children)} {len(body)}".encode()
        content = head + b"\0" + body
        name = hashlib.sha256(content).hexdigest()
        self.contents[name] = content
        return ObjectTree(object_id=name, children=list(children))

    def word(self, said) -> ObjectTree:
        record = ConfigRecord(said)
        return self.add("ConfigRecord", (), record.deflate().partition(b"\0")[2])

    def records(self, named: dict[str, ObjectTree]) -> ObjectTree:
        body = json.dumps({name: tree.object_id for name, tree in named.items()}).encode()
        return self.add("RecordDict", tuple(named.values()), body)

    def array(self, chunk: bytes, times: int, shape=(10, 64), dtype="float64") -> ObjectTree:
        """An array that repeats one chunk."""
        body = json.dumps(
            {
                "dtype": dtype,
                "shape": shape,
                "stype": "numpy.ndarray",
                "arraychunk_ids": [0] * times,
            }
        ).encode()
        return self.add("Array", (self.add("ArrayChunk", (), chunk),), body)

    def arrays(self, named: dict[str, ObjectTree]) -> ObjectTree:
        body = json.dumps({name: tree.object_id for name, tree in named.items()}).encode()
        return self.add("ArrayRecord", tuple(named.values()), body)

    def message(self, asked: Metadata, records: ObjectTree, source: int | None = None):
        """The answer to a message, from its addressee or (as it says) from another node."""
        said = Metadata(
            run_id=asked.run_id, message_id="", src_node_id=source or asked.dst_node_id,
            dst_node_id=asked.src_node_id, reply_to_message_id=asked.message_id, group_id="",
            created_at=asked.created_at, ttl=asked.ttl, message_type=asked.message_type,
        )  # fmt: skip
        body = ProtoMessage(metadata=metadata_to_proto(said)).SerializeToString()
        return Announcement(said.src_node_id, self.add("Message", (records,), body))
