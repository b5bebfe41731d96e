"""Requests to clients, with a timeout, and their replies, checked against limits before assembly.

A reply is a tree of objects: a message, its records, their arrays, the arrays' chunks. The size of
a sound reply is known before the request is sent, so everything is bounded before it is assembled:
how many objects there are, how deep they nest, how many bytes they are, and how many they become
(an array may repeat a chunk). Any error in a reply is the failure of its sender alone.

Replies that have arrived are all read before anybody is waited for. One that was announced and has
not arrived is polled in every turn, until the timeout: then it is its sender's failure.

Every request carries a random nonce that its reply must repeat. Only the client that was asked has
seen it, so no other can reply in its place, nor guess the message's id, which is a hash over it.

Failures in a row and bytes sent and received are counted by client (`Failures`, `TrafficCounter`).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import httpx
import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from ...base.arrays import Int64
from ...protocol import Traffic
from ..compat import (
    ObjectTree,
    RunNotRunningException,
    get_object_head_values_from_object_content,
    inflate_object_from_contents,
)
from .object_fetch import Announcement, MissingObject, ReplySource, reply_source
from .wire import NONCE, OFFER, REPORT, ExpectedReply, clean_line, message_size

CHUNK = 2**20  # bytes of an array that may travel as a separate object (Flower's: 5 MB)
HEAD = 1024  # bytes of an object's description of itself, besides names
POLL_INTERVAL = 0.5  # seconds between polls for replies
MAX_TTL = 90 * 24 * 3600.0  # seconds of a message, where the timeout is infinite
FETCH_TURN = 20.0  # seconds for fetching one reply before it is the next one's turn
NONCE_BYTES = 16
SERVER_ERRORS = (httpx.TransportError, RunNotRunningException)
CHILDREN: dict[str, tuple[str, ...]] = {  # what an object of each kind may hold
    "Message": ("RecordDict",),
    "RecordDict": ("ConfigRecord", "ArrayRecord"),
    "ArrayRecord": ("Array",),
    "Array": ("ArrayChunk",),
    "ConfigRecord": (),
    "ArrayChunk": (),
}
MAX_DEPTH = 2  # brackets within brackets in an object's description of itself
BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True)
class Limits:
    """The size limits of a reply.

    Attributes:
        objects: how many it may consist of
        size: bytes of all of them together, and of all arrays once they are assembled
    """

    objects: int = 8
    size: int = 2**16


def reply_limits(expected: ExpectedReply) -> Limits:
    """Return the limits of a sound reply: its report, and the arrays it is to carry."""
    parts = [expected.shapes or {}, *expected.extra.values()]
    width = expected.width
    arrays = [width * math.prod(shape) for shapes in parts for shape in shapes.values()]
    objects = Limits.objects + len(parts) + sum(2 + n // CHUNK for n in arrays)
    names = sum(2 * len(name) for shapes in parts for name in shapes)
    return Limits(objects, Limits.size + sum(arrays) + names + HEAD * objects)


class BadReply(Exception):
    """A reply that is refused, and why."""


def malformed_reply(what: str) -> BadReply:
    """Return the error for a reply beyond its limits, or of a form that no reply has."""
    return BadReply(f"malformed: {what}")


@dataclass
class Exchange:
    """The results of some requests, by client.

    Attributes:
        replies: the messages that arrived
        refused: the fault of a reply that arrived and was refused
        missing: the reason why there is no reply
        sent: bytes of each request
        up: bytes that were fetched of each reply, refused or not
    """

    replies: dict[int, Message] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)
    up: dict[int, int] = field(default_factory=dict)


@dataclass
class Request:
    """A request to one client, and as much of its reply as has arrived."""

    client: int
    node: int
    nonce: bytes
    limits: Limits
    announced: Announcement | None = None
    objects: list[str] = field(default_factory=list)
    contents: dict[str, bytes] = field(default_factory=dict)
    up: int = 0  # bytes that have arrived

    def fetch_reply(self, source: ReplySource, message: str) -> Message | None:
        """Fetch as much of the reply as has arrived; return it once it is whole."""
        until = time.monotonic() + FETCH_TURN
        if self.announced is None:
            self.announced = source.find_reply(message)
            if self.announced is None:
                return None
            self.objects = list_objects(self.announced.tree, self.limits)
        for name in self.objects[len(self.contents) :]:
            content = None if time.monotonic() >= until else source.fetch_object(name)
            if content is None:
                return None
            self.contents[name] = content
            self.up += len(content)
            if self.up > self.limits.size:
                raise malformed_reply(f"over {self.limits.size} bytes")
        return self.assemble(self.announced)

    def assemble(self, announced: Announcement) -> Message:
        """Assemble the reply, which must come from the node that was asked, with its nonce."""
        root = announced.tree.object_id
        check_objects(root, self.contents, self.limits)
        message = inflate_object_from_contents(root, dict(self.contents))
        assert isinstance(message, Message)  # `check_objects` has verified it
        if message.has_error():
            return message
        if {announced.source, message.metadata.src_node_id} != {self.node}:
            raise BadReply("forged: comes from a node that was not asked")
        report = message.content.config_records.get(REPORT, ConfigRecord())
        nonce = report.pop(NONCE, b"")
        if not isinstance(nonce, bytes) or not hmac.compare_digest(nonce, self.nonce):
            raise BadReply("forged: does not repeat the nonce of the request")
        return message


def exchange(
    grid: Grid,
    contents: Mapping[int, tuple[int, RecordDict]],
    kind: str,
    timeout: float,
    limits: Mapping[int, Limits],
    no_wait: frozenset[int] = frozenset(),
) -> Exchange:
    """Send each client k its content (to a node) and collect the replies.

    Args:
        timeout: seconds to wait at most
        no_wait: clients that nobody waits for; their replies count if they arrive in time
    """
    done = Exchange()
    if not contents:
        return done
    source = reply_source(grid)
    sent, requests = {}, []
    for k, (node, content) in contents.items():
        nonce = secrets.token_bytes(NONCE_BYTES)
        # A reply within the timeout must not be too late for Flower.
        ttl = min(2 * timeout + 60, MAX_TTL)
        sent[k] = Message(add_nonce(content, nonce), dst_node_id=node, message_type=kind, ttl=ttl)
        requests.append(Request(k, node, nonce, limits.get(k, Limits())))
    ids = list(grid.push_messages(list(sent.values())))
    pending = {i: request for i, request in zip(ids, requests, strict=False) if i}
    delivered = {request.client for request in pending.values()}
    until = time.monotonic() + timeout
    while pending:
        started = time.monotonic()
        for message, request in list(pending.items()):
            if poll(source, message, request, done):
                del pending[message]
        waiting = any(request.client not in no_wait for request in pending.values())
        if not waiting or time.monotonic() >= until:
            break
        pause = max(POLL_INTERVAL, time.monotonic() - started)
        time.sleep(max(0.0, min(pause, until - time.monotonic())))
    for request in pending.values():
        done.missing[request.client] = missing_reason(request, timeout, no_wait)
    for request in requests:
        done.up[request.client] = request.up
        if request.client not in delivered:
            done.missing[request.client] = "failed: the request could not be delivered"
    known: dict[str, int] = {}
    done.sent = {k: message_size(content, known) for k, content in sent.items()}
    return done


def add_nonce(content: RecordDict, nonce: bytes) -> RecordDict:
    """Return a request's content with its nonce."""
    offer = ConfigRecord({**content.config_records[OFFER], NONCE: nonce})
    return RecordDict({**content, OFFER: offer})


def poll(source: ReplySource, message: str, request: Request, done: Exchange) -> bool:
    """Fetch what has arrived of a reply; return True if there is nothing more to wait for. Any
    error it raises is its sender's failure."""
    k = request.client
    try:
        reply = request.fetch_reply(source, message)
        if reply is None:
            return False
        done.replies[k] = reply
    except SERVER_ERRORS:
        raise
    except BadReply as error:
        done.refused[k] = str(error)
    except MissingObject:
        done.missing[k] = "failed: announced an answer that never came"
    except Exception as error:
        done.refused[k] = f"malformed: unreadable ({type(error).__name__})"
    request.contents.clear()
    if request.announced is not None:
        with suppress(httpx.HTTPStatusError):  # it is then dropped with the run
            source.confirm(request.announced.tree.object_id)
    return True


def missing_reason(request: Request, timeout: float, no_wait: frozenset[int]) -> str:
    """Return the reason why there is no reply."""
    arrived, total = len(request.contents), len(request.objects)
    if request.announced is not None:
        return (
            f"failed: announced an answer and withheld {total - arrived} of its {total} "
            f"objects for {timeout:g} s"
        )
    if request.client in no_wait:
        return "failed: set aside, and no answer yet"
    return f"failed: no answer within {timeout:g} s"


def describe_error(message: Message) -> str:
    """Return what is wrong with a reply that is an error; "" if it is none."""
    if not message.has_error():
        return ""
    reason = clean_line(message.error.reason or "", 200)
    return f"its client app failed (code {message.error.code}{reason and ': '}{reason})"


def list_objects(tree: ObjectTree, limits: Limits) -> list[str]:
    """Return the objects of an announced reply, each once; refuse too many, and such as nest
    deeper than a reply does."""
    names: dict[str, None] = {}
    level = [tree]
    for _ in range(len(CHILDREN)):
        names.update((node.object_id, None) for node in level)
        level = [child for node in level for child in node.children]
        if len(names) + len(level) > limits.objects:
            raise malformed_reply(f"over {limits.objects} objects")
    if level:
        raise malformed_reply("objects nested too deep")
    return list(names)


def check_objects(root: str, contents: Mapping[str, bytes], limits: Limits) -> None:
    """Refuse a reply whose objects do not match their hashes, are in the wrong place, or become
    more than they may."""
    for name, content in contents.items():
        if hashlib.sha256(content).hexdigest() != name:
            raise malformed_reply("an object that is not what it was announced as")
    seen: set[str] = set()
    arrays = 0

    def visit(name: str, allowed: tuple[str, ...]) -> None:
        nonlocal arrays
        content = contents.get(name)
        if content is None:
            raise malformed_reply("an object that was not announced")
        kind, children, _ = get_object_head_values_from_object_content(content)
        if kind not in allowed:
            raise malformed_reply("objects in the wrong place")
        if name in seen:
            return
        seen.add(name)
        if len(children) > limits.objects:
            raise malformed_reply(f"over {limits.objects} objects")
        if kind in ("RecordDict", "ArrayRecord", "Array"):
            inner = body(content)
            check_nesting(inner)
            if kind == "Array":
                arrays += array_size(inner, [contents.get(child, b"") for child in children])
                if arrays > limits.size:
                    raise malformed_reply(f"arrays of over {limits.size} bytes")
        for child in children:
            visit(child, CHILDREN[kind])

    visit(root, ("Message",))


def body(content: bytes) -> bytes:
    """Return the content of an object, without its head."""
    return content.partition(b"\0")[2]


def check_nesting(text: bytes) -> None:
    """Refuse brackets nested deeper than in any sound reply."""
    depth = 0
    for mark in BRACKETS.findall(text):
        depth += (mark in b"[{") - (mark in b"]}")
        if depth > MAX_DEPTH:
            raise malformed_reply("nested too deep")


def array_size(text: bytes, chunks: list[bytes]) -> int:
    """Return the bytes of an array assembled from its chunks, as often as it names each."""
    indices = json.loads(text)["arraychunk_ids"]
    sizes = [len(body(chunk)) for chunk in chunks]
    return sum(sizes[i] for i in indices)


@dataclass
class Failures:
    """Failures in a row of each client, by kind of request.

    A client that fails too often is set aside: it is still asked, but nobody waits for it. So it
    costs a round nothing, and comes back by itself with its first sound reply.

    Attributes:
        limit: failures in a row after which a client is set aside
    """

    limit: int
    count: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def aside(self) -> frozenset[int]:
        """The clients that are set aside."""
        return frozenset(k for (_, k), n in self.count.items() if n >= self.limit)

    def record(self, kind: str, k: int, reason: str) -> str:
        """Count one reply, with the `reason` why it failed ("": it did not); return the event to
        log, or ""."""
        before = k in self.aside
        self.count[kind, k] = self.count.get((kind, k), 0) + 1 if reason else 0
        after = k in self.aside
        if after and not before:
            return f"set aside after {self.limit} failures: asked, and not waited for ({reason})"
        return "taken back: it answered" if before and not after else ""


@dataclass
class TrafficCounter:
    """Bytes to and from each client since they were last taken."""

    up: Int64
    down: Int64

    def add(self, done: Exchange) -> None:
        """Count requests and replies."""
        for k, n in done.sent.items():
            self.down[k] += n
        for k, n in done.up.items():
            self.up[k] += n

    def take(self, asked: Int64) -> Traffic:
        """Return the bytes counted, by client that was asked, and start again from 0."""
        others = np.ones(len(self.up), np.bool_)
        others[asked] = False
        traffic = Traffic(
            self.up[asked],
            self.down[asked],
            int(self.up[others].sum()),
            int(self.down[others].sum()),
        )
        self.up[:], self.down[:] = 0, 0
        return traffic

    def take_some(self, clients: Int64) -> tuple[Int64, Int64]:
        """Return the bytes from and to some clients, who start again from 0."""
        up, down = self.up[clients], self.down[clients]
        self.up[clients], self.down[clients] = 0, 0
        return up, down
