"""`muster gate`: the only door from outside to a superlink, and it leads to the fleet alone.

A superlink takes everything at one port: what nodes need, and also what starts runs (with any
code), stops them, registers and unregisters nodes and hands out their tasks, for all of which it
asks no credentials. So it listens on its own machine only, and the gate stands in front of it:
TLS, a list of the calls that a node makes, and 403 to everything else. The list is what is let
through, never what is kept out; an address that is passed on is the list's own, not the caller's.

It also looks into one thing that Flower does not: that a reply comes from the node that it says it
comes from.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import httpx
import uvicorn
from flwr.proto.fleet_pb2 import PushMessagesRequest
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..checks import whole
from ..errors import MusterError
from .files import check_key
from .keys import CA, CERTIFICATE, KEY
from .wire import line

SMALL, LISTS, OBJECT = 2**16, 2**22, 2**23  # bytes of a request
PUSH = "/v1/fleet/push-messages"
ALLOWED = {  # what a registered node calls, and the most bytes of each
    "/v1/fleet/activate-node": SMALL,
    "/v1/fleet/deactivate-node": SMALL,
    "/v1/fleet/send-node-heartbeat": SMALL,
    "/v1/fleet/pull-messages": SMALL,
    PUSH: LISTS,
    "/v1/fleet/get-run": SMALL,
    "/v1/fleet/get-fab": SMALL,
    "/v1/fleet/push-object": OBJECT,
    "/v1/fleet/pull-object": SMALL,
    "/v1/fleet/confirm-message-received": SMALL,
}
TAKEN_ALONG = (b"content-type", b"content-length", b"accept")  # headers, and all of Flower's own
FLOWERS = b"flwr-"
HOP_BY_HOP = {
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
    b"transfer-encoding", b"upgrade", b"server", b"date",
}  # fmt: skip
IDLE = 30.0  # seconds without a whole request, or between two parts of one
WHOLE = 300.0  # seconds for a request and its answer
MOST_CONNECTIONS, MOST_OF_ONE_ADDRESS = 2048, 256
LINES_A_MINUTE = 30  # in the log, of refusals

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Say = Callable[[str], None]


class Refused(Exception):
    """A request that is not passed on: with what status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass
class Log:
    """Says refusals, but not so many that they fill a disk."""

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
            self.say(text)


@dataclass
class Gate:
    """The gate in front of a superlink, as an ASGI application.

    superlink  its address, on this machine or a network of the server's own
    client     how it is reached
    """

    superlink: str
    client: httpx.AsyncClient
    log: Log
    unreached: bool = field(default=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # neither a lifespan nor a websocket
        started = False

        async def sending(event: Event) -> None:
            nonlocal started
            started = True
            await send(event)

        try:
            async with asyncio.timeout(WHOLE):
                await self._pass_on(scope, receive, sending)
        except Refused as refusal:
            who = (scope.get("client") or ("?",))[0]
            asked = line(f"{scope['method']} {scope['path']}", 100)
            self.log(f"refused {asked} from {who}: {refusal}")
            if not started:
                await _say(send, refusal.status, str(refusal))
        except (httpx.HTTPError, TimeoutError) as error:
            if not self.unreached:
                self.log(f"the superlink at {self.superlink} cannot be reached ({error!r})")
            self.unreached = True
            if not started:
                await _say(send, 503, "the superlink cannot be reached")

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, most = allowed(scope)
        body: AsyncIterator[bytes] | bytes = parts(receive, most)
        if path == PUSH:
            body = b"".join([part async for part in parts(receive, most)])
            check_source(body)
        headers = [
            (name, value)
            for name, value in scope["headers"]
            if name in TAKEN_ALONG or name.startswith(FLOWERS)
        ]
        request = self.client.build_request("POST", path, headers=headers, content=body)
        answer = await self.client.send(request, stream=True)
        try:
            self.unreached = False
            kept = [(n, v) for n, v in answer.headers.raw if n.lower() not in HOP_BY_HOP]
            start = {"type": "http.response.start", "status": answer.status_code, "headers": kept}
            await send(start)
            async for part in answer.aiter_raw():
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await answer.aclose()


def allowed(scope: Scope) -> tuple[str, int]:
    """The address of a request that is let through, and the most bytes it may have."""
    path = scope["path"]
    # Nothing but the plain name: no escapes, no query, no second reading.
    plain = scope.get("raw_path", path.encode()) == path.encode() and not scope["query_string"]
    if scope["method"] != "POST" or path not in ALLOWED or not plain:
        raise Refused(403, "not a call of a node")
    most = ALLOWED[path]
    stated = dict(scope["headers"]).get(b"content-length", b"0")
    if not stated.isdigit() or int(stated) > most:
        raise Refused(413, f"over {most} bytes")
    return path, most


async def parts(receive: Receive, most: int) -> AsyncIterator[bytes]:
    """The body of a request as it comes, up to so many bytes and no slower than it may."""
    seen = 0
    while True:
        try:
            async with asyncio.timeout(IDLE):
                event = await receive()
        except TimeoutError:
            raise Refused(408, "the request did not come") from None
        if event["type"] == "http.disconnect":
            raise Refused(400, "the caller hung up")
        part = event.get("body", b"")
        seen += len(part)
        if seen > most:
            raise Refused(413, f"over {most} bytes")
        if part:
            yield part
        if not event.get("more_body", False):
            return


def check_source(body: bytes) -> None:
    """Refuse a reply in another node's name. The superlink checks who sends it, by the key; that
    it is also who the reply says it is from is checked here."""
    try:
        pushed = PushMessagesRequest.FromString(body)
    except DecodeError:
        raise Refused(400, "unreadable") from None
    sender = pushed.node.node_id
    if len(pushed.messages_list) != 1 or len(pushed.message_object_trees) != 1:
        raise Refused(400, "not one reply")
    source = pushed.messages_list[0].metadata.src_node_id
    if source != sender:
        raise Refused(403, f"forged: node {sender} sends a reply in the name of node {source}")


async def _say(send: Send, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
    with suppress(OSError):
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": f"{text}\n".encode()})


class Watched(H11Protocol):
    """Closes connections on which nothing is asked, and those beyond an address's share."""

    of_address: ClassVar[Counter[str]] = Counter()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection and watch it."""
        super().connection_made(transport)
        self.address = (self.client or ("?",))[0]
        self.of_address[self.address] += 1
        self.since = self.loop.time()
        if self.of_address[self.address] > MOST_OF_ONE_ADDRESS:
            transport.close()
        else:
            self.loop.call_later(IDLE / 3, self.watch)

    def connection_lost(self, exc: Exception | None) -> None:
        """It no longer counts."""
        self.of_address[self.address] -= 1
        if not self.of_address[self.address]:
            del self.of_address[self.address]
        super().connection_lost(exc)

    def watch(self) -> None:
        """Close it when no whole request has come for too long."""
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.since = self.loop.time()
        elif self.loop.time() - self.since > IDLE:
            self.transport.close()
            return
        self.loop.call_later(IDLE / 3, self.watch)


def trusting(ca: Path) -> ssl.SSLContext:
    """How the gate knows the superlink: by the federation's own certificates."""
    return ssl.create_default_context(cafile=str(ca))


def serve(keys: Path, host: str, port: int, superlink: str, say: Say = print) -> None:
    """Stand in front of a superlink until told to end."""
    ready = server(keys, host, port, superlink, say)
    say(f"the gate to {superlink} is open at {host}:{port}: nodes' calls alone are passed on")
    ready.run()


def server(keys: Path, host: str, port: int, superlink: str, say: Say = print) -> uvicorn.Server:
    """The gate as a server that is ready to run.

    keys  the folder with ca.crt, server.crt and server.key, which the superlink has too
    """
    whole("--port", port, 0, 65535)
    for name in (CA, CERTIFICATE, KEY):
        if not (keys / name).is_file():
            raise MusterError(
                f"{keys / name}: no such file; make it with `muster keys {keys} --server HOST`"
            )
    check_key(keys / KEY)
    check_local(superlink)
    client = httpx.AsyncClient(
        base_url=f"https://{superlink}",
        verify=trusting(keys / CA),
        timeout=httpx.Timeout(60.0, connect=5.0),
        limits=httpx.Limits(max_connections=256),
        trust_env=False,
    )
    config = uvicorn.Config(
        Gate(superlink, client, Log(say)),
        host=host,
        port=port,
        ssl_certfile=str(keys / CERTIFICATE),
        ssl_keyfile=str(keys / KEY),
        http=Watched,
        ws="none",
        lifespan="off",
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=2**15,
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=5,
    )
    return uvicorn.Server(config)


def check_local(superlink: str) -> None:
    """Refuse a superlink that others can reach as well, as far as that can be seen from here."""
    name, _, port = superlink.rpartition(":")
    try:
        if not ipaddress.ip_address(name.strip("[]")).is_loopback or not port.isdecimal():
            raise ValueError
    except ValueError:
        raise MusterError(
            f"--superlink: '{superlink}'; give an address on this machine, such as 127.0.0.1:9093"
        ) from None
    for address in outward():
        with suppress(OSError), socket.create_connection((address, int(port)), timeout=1):
            raise MusterError(
                f"--superlink: it also answers at {address}:{port}, past the gate; start it with "
                "--host 127.0.0.1"
            )


def outward() -> set[str]:
    """This machine's addresses that are not its own alone."""
    found = {item[4][0] for item in _addresses()}
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; picks the interface that leads out
        found.add(probe.getsockname()[0])
    return {str(a) for a in found if not ipaddress.ip_address(str(a).split("%")[0]).is_loopback}


def _addresses() -> list[Any]:
    try:
        return socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        return []
