"""Requests as a node signs them, and a superlink that knows its key."""

from __future__ import annotations

import datetime
from base64 import b64encode

from flwr.common.constant import TIMESTAMP_HEADER
from flwr.proto.control_pb2 import ListNodesResponse
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import (
    generate_key_pairs,
    public_key_to_bytes,
    sign_message,
)

from muster.flower.transport.proxy_access import LIST_NODES


class Signer:
    """A key pair, and what it signs."""

    def __init__(self):
        self.private, public = generate_key_pairs()
        self.key = public_key_to_bytes(public)

    def headers(self, fast=0.0, **changed):
        """The headers of a request that is signed now, by a clock that is so many seconds fast."""
        stated = (now() + datetime.timedelta(seconds=fast)).isoformat()
        signed = {
            FLEET_HTTP_PUBLIC_KEY_HEADER: b64encode(self.key).decode(),
            TIMESTAMP_HEADER: stated,
            FLEET_HTTP_SIGNATURE_HEADER: b64encode(
                sign_message(self.private, stated.encode())
            ).decode(),
            **{name.replace("_", "-"): value for name, value in changed.items()},
        }
        return [(name.encode(), value.encode("latin-1")) for name, value in signed.items()]


class Superlink:
    """Knows some keys, answers everything, and remembers what it was asked."""

    def __init__(self, keys=(), status=200, content=b"fine"):
        self.keys, self.status, self.content = list(keys), status, content
        self.asked, self.listed = [], 0

    async def __call__(self, scope, receive, send):
        body = b""
        while True:
            event = await receive()
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        status, content = self.status, self.content
        if scope["path"] == LIST_NODES:
            self.listed += 1
            known = [NodeInfo(public_key=key, status="online") for key in self.keys]
            status, content = 200, ListNodesResponse(nodes_info=known).SerializeToString()
        else:
            self.asked.append((scope["method"], scope["path"], dict(scope["headers"]), body))
        headers = [(b"content-type", b"application/x"), (b"flwr-word", b"said")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})
