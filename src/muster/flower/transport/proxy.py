"""`muster gate`: the only door from outside to a superlink, and it leads to the fleet alone.

A superlink takes everything at one port: what nodes need, and also what starts runs (with any
code), stops them, registers and unregisters nodes and hands out their tasks, for all of which it
asks no credentials. So it listens on its own machine only, and the gate stands in front of it:
TLS, a list of the calls that a node makes, and 403 to everything else. The list is what is let
through, never what is kept out; an address that is passed on is the list's own, not the caller's.

A request is read whole before a connection to the superlink is opened for it, and not read at all
unless a registered key has signed it (`signatures`); who may be connected meanwhile is in
`visitors`. The gate also looks into one thing that Flower does not: that a reply comes from the
node that it says it comes from.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import socket
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any

import h11
import httpx
import uvicorn
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...base.checks import check_whole
from ...base.errors import MusterError
from ..compat import PushMessagesRequest
from .certificates import CA, CERTIFICATE, KEY
from .connections import STRANGERS, Listener, Visitors, listen
from .private_files import check_key
from .proxy_log import Log, LogHandler, Refused, Say
from .signatures import Registered, sender
from .wire import line

try:
    import resource
except ImportError:  # not a POSIX system: nothing to raise
    resource = None  # type: ignore[assignment]

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
TAKEN_ALONG = ("content-type", "accept")  # headers, and all of Flower's own
FLOWERS = "flwr-"
HOP_BY_HOP = {
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
    b"transfer-encoding", b"upgrade", b"server", b"date",
}  # fmt: skip
IDLE = 30.0  # seconds without a whole request, or between two parts of one
WHOLE = 300.0  # seconds for a request to come whole, and for its answer
AT_ONCE, AT_ONCE_OF_KEY = 256, 8  # requests that are read or answered
IN_MEMORY = 2**18  # bytes of a request; what is more lies in a file meanwhile
PART = 2**16  # bytes passed on at a time
FILES = 8192  # open at a time: connections on both sides, and requests

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]


@dataclass
class Gate:
    """The gate in front of a superlink, as an ASGI application.

    Attributes:
        superlink: its address, on this machine or a network of the server's own
        client: how it is reached
    """

    superlink: str
    client: httpx.AsyncClient
    log: Log
    visitors: Visitors = field(default_factory=Visitors)
    unreached: bool = field(default=False)

    def __post_init__(self) -> None:
        self.registered = Registered(self.client)
        self.room = asyncio.Semaphore(AT_ONCE)
        self.room_of: dict[bytes, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(AT_ONCE_OF_KEY)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # neither a lifespan nor a websocket
        started = False

        async def sending(event: Event) -> None:
            nonlocal started
            started = True
            await send(event)

        place = tuple(scope.get("client") or ("?", 0))
        asked = line(f"{scope['method']} {scope['path']}", 100)
        try:
            path, most, headers = allowed(scope)
            key = await sender(headers, self.registered)
            self.visitors.known((str(place[0]), int(place[1])), key)
            async with self.room_of[key], self.room:
                with SpooledTemporaryFile(IN_MEMORY) as body:
                    await read(receive, body, most)
                    if path == PUSH:
                        check_source(body.read())
                        body.seek(0)
                    async with asyncio.timeout(WHOLE):
                        await self._pass_on(path, headers, body, sending)
        except Refused as refusal:
            self.log(f"refused {asked} from {place[0]}: {refusal}")
            if not started:
                await _say(send, refusal.status, str(refusal))
        except (httpx.HTTPError, TimeoutError) as error:
            if not self.unreached:
                self.log(f"the superlink at {self.superlink} cannot be reached ({error!r})")
            self.unreached = True
            if not started:
                await _say(send, 503, "the superlink cannot be reached")
        except Exception as error:  # whatever it is, it is one line of the log and no more
            self.log(f"failed {asked} from {place[0]}: {error!r}")
            if not started:
                await _say(send, 500, "the gate failed")

    async def _pass_on(
        self, path: str, headers: dict[str, str], body: IO[bytes], send: Send
    ) -> None:
        length = body.seek(0, 2)
        body.seek(0)
        taken = {n: v for n, v in headers.items() if n in TAKEN_ALONG or n.startswith(FLOWERS)}
        request = self.client.build_request(
            "POST", path, headers={**taken, "content-length": str(length)}, content=parts(body)
        )
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


def allowed(scope: Scope) -> tuple[str, int, dict[str, str]]:
    """The address of a request that is let through, the most bytes it may have, and its headers,
    each of which stands there once."""
    path = scope["path"]
    # Nothing but the plain name: no escapes, no query, no second reading.
    plain = scope.get("raw_path", path.encode()) == path.encode() and not scope["query_string"]
    if scope["method"] != "POST" or path not in ALLOWED or not plain:
        raise Refused(403, "not a call of a node")
    try:
        headers = {name.decode("ascii"): v.decode("ascii") for name, v in scope["headers"]}
    except UnicodeDecodeError:
        raise Refused(400, "a header that is not plain text") from None
    if len(headers) < len(scope["headers"]):
        raise Refused(400, "a header twice")
    if "transfer-encoding" in headers and "content-length" in headers:
        raise Refused(400, "both Content-Length and Transfer-Encoding")
    most = ALLOWED[path]
    stated = headers.get("content-length", "0")
    if not stated.isdecimal() or len(stated) > len(str(most)) or int(stated) > most:
        raise Refused(413, f"over {most} bytes")
    return path, most, headers


async def read(receive: Receive, body: IO[bytes], most: int) -> None:
    """Read a request whole, up to so many bytes and no slower than it may come."""
    try:
        async with asyncio.timeout(WHOLE):
            while True:
                async with asyncio.timeout(IDLE):
                    event = await receive()
                if event["type"] == "http.disconnect":
                    raise Refused(400, "the caller hung up")
                body.write(event.get("body", b""))
                if body.tell() > most:
                    raise Refused(413, f"over {most} bytes")
                if not event.get("more_body", False):
                    break
    except TimeoutError:
        raise Refused(408, "the request did not come") from None
    body.seek(0)


async def parts(body: IO[bytes]) -> AsyncIterator[bytes]:
    """A request that was read, in parts."""
    while part := body.read(PART):
        yield part


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
    # In Flower's form, in which its supernode shows it to the node's owner.
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    body = json.dumps({"code": status, "detail": text}).encode()
    with suppress(OSError):
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Watched(H11Protocol):
    """Closes connections on which nothing is asked, and those that make it fail."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Watch the connection."""
        super().connection_made(transport)
        self.since = self.loop.time()
        self.loop.call_later(IDLE / 3, self.watch)

    def data_received(self, data: bytes) -> None:
        """Take bytes; whatever they make of the protocol ends this connection alone."""
        try:
            super().data_received(data)
        except Exception as error:
            self.logger.warning("closed a connection: %r", error)
            self.transport.abort()
        if self.conn.their_state is h11.ERROR and self.cycle is not None:
            self.cycle.disconnected = True  # what is asked and not whole gets no second answer
            self.cycle.message_event.set()

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


@dataclass
class Server:
    """A gate and the socket that it listens at."""

    uvicorn: uvicorn.Server
    listener: Listener

    def run(self) -> None:
        """Run until told to end."""
        with self.listener:
            self.uvicorn.run(sockets=[self.listener])


def server(keys: Path, host: str, port: int, superlink: str, say: Say = print) -> Server:
    """The gate as a server that is ready to run.

    Args:
        keys: the folder with ca.crt, server.crt and server.key, which the superlink has too
    """
    check_whole("--port", port, 0, 65535)
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
        limits=httpx.Limits(max_connections=AT_ONCE + 1),
        trust_env=False,
    )
    gate = Gate(superlink, client, Log(say), Visitors(min(STRANGERS, files() // 4)))
    tls = {"ssl_certfile": str(keys / CERTIFICATE), "ssl_keyfile": str(keys / KEY)}
    config = configured(gate, **tls)
    try:
        return Server(uvicorn.Server(config), listen(host, port, gate.visitors))
    except OSError as error:
        raise MusterError(
            f"{host}:{port}: cannot listen there ({error.strerror}); give another --port or --host"
        ) from None


def configured(gate: Gate, **tls: Any) -> uvicorn.Config:
    """The settings of the gate's HTTP server, whose log lines go into the gate's log."""
    for name in ("uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [LogHandler(gate.log)], False
    return uvicorn.Config(
        gate,
        http=Watched,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        h11_max_incomplete_event_size=2**15,
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=5,
        **tls,
    )


def files() -> int:
    """The most files and connections this process may have open, after asking for enough."""
    if resource is None:
        return FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


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
