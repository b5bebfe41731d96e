"""A reverse proxy that forwards only node API calls to a SuperLink (`muster gate`).

A SuperLink serves everything at one port: what nodes need, and also what starts runs (with any
code), stops them, registers and unregisters nodes and assigns their tasks, all of it without
credentials. So it listens on its own machine only, and this proxy stands in front of it: TLS, an
allowlist of the calls that a node makes, and 403 to everything else. A path that is forwarded is
the list's own, not the caller's.

A request is read whole before a connection to the SuperLink is opened for it, and not read at all
unless a registered key has signed it; `proxy_access` checks that, and limits who may be connected
meanwhile. The proxy also checks one thing that Flower does not: that a reply comes from the node
that it names as its source.
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
from ...base.errors import MusterError, command_line
from ..compat import PushMessagesRequest
from .keys import CA, CERTIFICATE, KEY
from .private_files import check_key
from .proxy_access import (
    MAX_UNAUTHENTICATED,
    Connections,
    Listener,
    Log,
    LogHandler,
    Refusal,
    RegisteredKeys,
    Say,
    authenticate,
    listen,
)
from .wire import clean_line

try:
    import resource
except ImportError:  # not a POSIX system: nothing to raise
    resource = None  # type: ignore[assignment]

SMALL, LISTS, OBJECT = 2**16, 2**22, 2**23  # bytes of a request
PUSH = "/v1/fleet/push-messages"
ALLOWED = {  # the calls of a registered node, and the most bytes of each
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
FORWARDED_HEADERS = ("content-type", "accept")  # headers, and all of Flower's own
FLOWER_PREFIX = "flwr-"
HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding "
    b"upgrade server date".split()
)
IDLE_TIMEOUT = 30.0  # seconds without a whole request, or between two parts of one
REQUEST_TIMEOUT = 300.0  # seconds for a request to come whole, and for its answer
MAX_REQUESTS, MAX_REQUESTS_PER_KEY = 256, 8  # requests that are read or answered
IN_MEMORY = 2**18  # bytes of a request; a larger one waits in a temporary file
PART = 2**16  # bytes forwarded at a time
FILES = 8192  # open at a time: connections on both sides, and requests

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]


@dataclass
class Proxy:
    """The proxy in front of a SuperLink, as an ASGI application.

    Attributes:
        superlink: its address, on this machine
        client: the HTTP client that reaches it
    """

    superlink: str
    client: httpx.AsyncClient
    log: Log
    connections: Connections = field(default_factory=Connections)
    unreachable: bool = field(default=False)

    def __post_init__(self) -> None:
        self.registered = RegisteredKeys(self.client)
        self.slots = asyncio.Semaphore(MAX_REQUESTS)
        self.key_slots: dict[bytes, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(MAX_REQUESTS_PER_KEY)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # neither a lifespan nor a websocket
        started = False

        async def sending(event: Event) -> None:
            nonlocal started
            started = True
            await send(event)

        peer = tuple(scope.get("client") or ("?", 0))
        request = clean_line(f"{scope['method']} {scope['path']}", 100)
        try:
            path, limit, headers = check_request(scope)
            key = await authenticate(headers, self.registered)
            self.connections.authenticate((str(peer[0]), int(peer[1])), key)
            async with self.key_slots[key], self.slots:
                with SpooledTemporaryFile(IN_MEMORY) as body:
                    await read_body(receive, body, limit)
                    if path == PUSH:
                        check_source(body.read())
                        body.seek(0)
                    async with asyncio.timeout(REQUEST_TIMEOUT):
                        await self._forward(path, headers, body, sending)
        except Refusal as refusal:
            self.log(f"refused {request} from {peer[0]}: {refusal}")
            if not started:
                await _respond(send, refusal.status, str(refusal))
        except (httpx.HTTPError, TimeoutError) as error:
            if not self.unreachable:
                self.log(f"the superlink at {self.superlink} cannot be reached ({error!r})")
            self.unreachable = True
            if not started:
                await _respond(send, 503, "the superlink cannot be reached")
        except Exception as error:  # any error is one line of the log and no more
            self.log(f"failed {request} from {peer[0]}: {error!r}")
            if not started:
                await _respond(send, 500, "the gate failed")

    async def _forward(
        self, path: str, headers: dict[str, str], body: IO[bytes], send: Send
    ) -> None:
        length = body.seek(0, 2)
        body.seek(0)
        forwarded = {
            name: value
            for name, value in headers.items()
            if name in FORWARDED_HEADERS or name.startswith(FLOWER_PREFIX)
        }
        request = self.client.build_request(
            "POST",
            path,
            headers={**forwarded, "content-length": str(length)},
            content=iterate_body(body),
        )
        response = await self.client.send(request, stream=True)
        try:
            self.unreachable = False
            passed = [(n, v) for n, v in response.headers.raw if n.lower() not in HOP_BY_HOP]
            status = response.status_code
            await send({"type": "http.response.start", "status": status, "headers": passed})
            async for part in response.aiter_raw():
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await response.aclose()


def check_request(scope: Scope) -> tuple[str, int, dict[str, str]]:
    """Refuse a request that is not an allowed call; return its path, the most bytes it may have
    and its headers, each of which occurs once."""
    path = scope["path"]
    # The plain path only: no escapes, no query, nothing that could be read in two ways.
    plain = scope.get("raw_path", path.encode()) == path.encode() and not scope["query_string"]
    if scope["method"] != "POST" or path not in ALLOWED or not plain:
        raise Refusal(403, "not a call of a node")
    try:
        headers = {name.decode("ascii"): v.decode("ascii") for name, v in scope["headers"]}
    except UnicodeDecodeError:
        raise Refusal(400, "a header that is not plain text") from None
    if len(headers) < len(scope["headers"]):
        raise Refusal(400, "a header twice")
    if "transfer-encoding" in headers and "content-length" in headers:
        raise Refusal(400, "both Content-Length and Transfer-Encoding")
    limit = ALLOWED[path]
    stated = headers.get("content-length", "0")
    if not stated.isdecimal() or len(stated) > len(str(limit)) or int(stated) > limit:
        raise Refusal(413, f"over {limit} bytes")
    return path, limit, headers


async def read_body(receive: Receive, body: IO[bytes], limit: int) -> None:
    """Read a request whole, up to so many bytes and within the timeouts."""
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT):
            while True:
                async with asyncio.timeout(IDLE_TIMEOUT):
                    event = await receive()
                if event["type"] == "http.disconnect":
                    raise Refusal(400, "the caller hung up")
                body.write(event.get("body", b""))
                if body.tell() > limit:
                    raise Refusal(413, f"over {limit} bytes")
                if not event.get("more_body", False):
                    break
    except TimeoutError:
        raise Refusal(408, "the request timed out") from None
    body.seek(0)


async def iterate_body(body: IO[bytes]) -> AsyncIterator[bytes]:
    """Yield a request that was read, in parts."""
    while part := body.read(PART):
        yield part


def check_source(body: bytes) -> None:
    """Refuse a reply in another node's name. The SuperLink checks the sender by its key; that the
    reply names the same node as its source is checked here."""
    try:
        pushed = PushMessagesRequest.FromString(body)
    except DecodeError:
        raise Refusal(400, "unreadable") from None
    sender = pushed.node.node_id
    if len(pushed.messages_list) != 1 or len(pushed.message_object_trees) != 1:
        raise Refusal(400, "not one reply")
    source = pushed.messages_list[0].metadata.src_node_id
    if source != sender:
        raise Refusal(403, f"forged: node {sender} sends a reply in the name of node {source}")


async def _respond(send: Send, status: int, text: str) -> None:
    # In Flower's form, which its SuperNode shows to the node's owner.
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    body = json.dumps({"code": status, "detail": text}).encode()
    with suppress(OSError):
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class IdleTimeoutProtocol(H11Protocol):
    """HTTP/1.1 that closes idle connections, and those whose bytes make it fail."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the idle timeout of a connection."""
        super().connection_made(transport)
        self.since = self.loop.time()
        self.loop.call_later(IDLE_TIMEOUT / 3, self.watch)

    def data_received(self, data: bytes) -> None:
        """Parse bytes; an error ends this connection alone."""
        try:
            super().data_received(data)
        except Exception as error:
            self.logger.warning("closed a connection: %r", error)
            self.transport.abort()
        if self.conn.their_state is h11.ERROR and self.cycle is not None:
            self.cycle.disconnected = True  # an incomplete request gets no second response
            self.cycle.message_event.set()

    def watch(self) -> None:
        """Close the connection when no whole request has come for too long."""
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.since = self.loop.time()
        elif self.loop.time() - self.since > IDLE_TIMEOUT:
            self.transport.close()
            return
        self.loop.call_later(IDLE_TIMEOUT / 3, self.watch)


def serve(keys: Path, host: str, port: int, superlink: str, say: Say = print) -> None:
    """Run the proxy in front of a SuperLink until the process is stopped."""
    ready = build_server(keys, host, port, superlink, say)
    say(f"the gate to {superlink} is open at {host}:{port}: only nodes' calls are forwarded")
    ready.run()


@dataclass
class ProxyServer:
    """A proxy with its HTTP server and the socket that it listens at."""

    uvicorn: uvicorn.Server
    listener: Listener

    def run(self) -> None:
        """Serve until the process is stopped."""
        with self.listener:
            self.uvicorn.run(sockets=[self.listener])


def build_server(keys: Path, host: str, port: int, superlink: str, say: Say = print) -> ProxyServer:
    """Return the proxy as a server that listens and is ready to run.

    Args:
        keys: the folder with ca.crt, server.crt and server.key, which the SuperLink has too
    """
    check_whole("--port", port, 0, 65535)
    for name in (CA, CERTIFICATE, KEY):
        if not (keys / name).is_file():
            again = command_line("muster", "keys", keys, "--server", "HOST")
            raise MusterError(f"{keys / name}: no such file; make it with `{again}`")
    check_key(keys / KEY)
    check_local(superlink)
    client = httpx.AsyncClient(
        base_url=f"https://{superlink}",
        verify=ssl.create_default_context(cafile=str(keys / CA)),  # the federation's own authority
        timeout=httpx.Timeout(60.0, connect=5.0),
        limits=httpx.Limits(max_connections=MAX_REQUESTS + 1),
        trust_env=False,
    )
    connections = Connections(min(MAX_UNAUTHENTICATED, raise_file_limit() // 4))
    proxy = Proxy(superlink, client, Log(say), connections)
    tls = {"ssl_certfile": str(keys / CERTIFICATE), "ssl_keyfile": str(keys / KEY)}
    config = build_config(proxy, **tls)
    try:
        return ProxyServer(uvicorn.Server(config), listen(host, port, connections))
    except OSError as error:
        raise MusterError(
            f"{host}:{port}: cannot listen there ({error.strerror}); give another --port or --host"
        ) from None


def build_config(proxy: Proxy, **tls: Any) -> uvicorn.Config:
    """Return the settings of the HTTP server, whose log lines go into the proxy's log."""
    for name in ("uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [LogHandler(proxy.log)], False
    return uvicorn.Config(
        proxy,
        http=IdleTimeoutProtocol,
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


def raise_file_limit() -> int:
    """Raise this process's limit on open files and connections as far as needed; return it."""
    if resource is None:
        return FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def check_local(superlink: str) -> None:
    """Refuse a SuperLink that other machines can reach past the proxy, as far as this one sees."""
    name, _, port = superlink.rpartition(":")
    try:
        if not ipaddress.ip_address(name.strip("[]")).is_loopback or not port.isdecimal():
            raise ValueError
    except ValueError:
        raise MusterError(
            f"--superlink: '{superlink}'; give an address on this machine, such as 127.0.0.1:9093"
        ) from None
    for address in public_addresses():
        with suppress(OSError), socket.create_connection((address, int(port)), timeout=1):
            raise MusterError(
                f"--superlink: it also answers at {address}:{port}, past the gate; start it with "
                "--host 127.0.0.1"
            )


def public_addresses() -> set[str]:
    """Return this machine's addresses that are not loopback."""
    found: set[Any] = set()
    with suppress(OSError):
        found |= {item[4][0] for item in socket.getaddrinfo(socket.gethostname(), None)}
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; picks the interface that leads out
        found.add(probe.getsockname()[0])
    return {str(a) for a in found if not ipaddress.ip_address(str(a).split("%")[0]).is_loopback}
