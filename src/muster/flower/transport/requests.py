"""The inbox: questions go out, answers are taken in as far as they can be true, and no further.

An answer is a tree of objects: a message, its records, their arrays, the arrays' chunks. What a
sound answer comes to is known before it is asked for, so everything is bounded before it is put
together: how many objects there are, how deep they nest, how many bytes they are, and how many
they become (an array may repeat a chunk). Whatever goes wrong with an answer is the failure of the
client that was asked, and of nobody else.

Answers that are there are taken in, every one, before anybody is waited for. One that was announced
and has not come is looked for again in every turn, until the patience ends: then that is its
sender's failure, and nobody else has lost anything by it.

Every question carries a random nonce that its answer must repeat. Only the client that was asked
has seen it, so no other can answer in its place, nor guess the message's number, which is a hash
over it.
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
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from ..compat import (
    ObjectTree,
    RunNotRunningException,
    get_object_head_values_from_object_content,
    inflate_object_from_contents,
)
from .object_fetch import Announced, Lost, Post, post_of
from .wire import NONCE, OFFER, WORD, Expected, size

CHUNK = 2**20  # bytes of an array that may travel as an object of their own (Flower's: 5 MB)
HEAD = 1024  # bytes that an object may say of itself, besides names
POLL = 0.5  # seconds between looks for answers
LONGEST_LIFE = 90 * 24 * 3600.0  # seconds of a message, where patience has no end
TURN = 20.0  # seconds for fetching one answer before it is the next one's turn
NONCE_BYTES = 16
NO_FAULT_OF_A_CLIENT = (httpx.TransportError, RunNotRunningException)
INSIDE: dict[str, tuple[str, ...]] = {  # what an object of each kind may hold
    "Message": ("RecordDict",),
    "RecordDict": ("ConfigRecord", "ArrayRecord"),
    "ArrayRecord": ("Array",),
    "Array": ("ArrayChunk",),
    "ConfigRecord": (),
    "ArrayChunk": (),
}
MOST_DEPTH = 2  # brackets within brackets in what an object says of itself
BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True)
class Limits:
    """The most that an answer may come to.

    Attributes:
        objects: how many it may consist of
        size: bytes of all of them together, and of all arrays once they are put together
    """

    objects: int = 8
    size: int = 2**16


def limits_of(expected: Expected) -> Limits:
    """What a sound answer comes to at most: its word, and the arrays it is to carry."""
    parts = [expected.shapes or {}, *expected.extra.values()]
    width = expected.width
    arrays = [width * math.prod(shape) for shapes in parts for shape in shapes.values()]
    objects = Limits.objects + len(parts) + sum(2 + n // CHUNK for n in arrays)
    names = sum(2 * len(name) for shapes in parts for name in shapes)
    return Limits(objects, Limits.size + sum(arrays) + names + HEAD * objects)


class Refused(Exception):
    """An answer that is not taken in, and why."""


def too_much(what: str) -> Refused:
    """For an answer beyond its limits, or of a form that no answer has."""
    return Refused(f"malformed: {what}")


@dataclass
class Exchange:
    """What came of some questions, by client.

    Attributes:
        answers: the messages that came back
        refused: what is wrong with one that came back and could not be taken in
        missing: why there is none
        sent: bytes of each question
        up: bytes that were fetched of each answer, whatever became of it
    """

    answers: dict[int, Message] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)
    up: dict[int, int] = field(default_factory=dict)


@dataclass
class Question:
    """A message to one client, and what has come of the answer to it."""

    client: int
    node: int
    nonce: bytes
    limits: Limits
    announced: Announced | None = None
    objects: list[str] = field(default_factory=list)
    contents: dict[str, bytes] = field(default_factory=dict)
    up: int = 0  # bytes that have come

    def take(self, post: Post, asked: str) -> Message | None:
        """As much of the answer as is there; the message, once all of it is."""
        until = time.monotonic() + TURN
        if self.announced is None:
            self.announced = post.announced(asked)
            if self.announced is None:
                return None
            self.objects = names_in(self.announced.tree, self.limits)
        for name in self.objects[len(self.contents) :]:
            content = None if time.monotonic() >= until else post.fetch(name)
            if content is None:
                return None
            self.contents[name] = content
            self.up += len(content)
            if self.up > self.limits.size:
                raise too_much(f"over {self.limits.size} bytes")
        return self.opened(self.announced)

    def opened(self, announced: Announced) -> Message:
        """The answer put together: from the node that was asked, with the question's nonce."""
        root = announced.tree.object_id
        check(root, self.contents, self.limits)
        message = inflate_object_from_contents(root, dict(self.contents))
        assert isinstance(message, Message)  # `check` has seen that it is
        if message.has_error():
            return message
        if {announced.source, message.metadata.src_node_id} != {self.node}:
            raise Refused("forged: comes from a node that was not asked")
        word = message.content.config_records.get(WORD, ConfigRecord())
        nonce = word.pop(NONCE, b"")
        if not isinstance(nonce, bytes) or not hmac.compare_digest(nonce, self.nonce):
            raise Refused("forged: does not repeat the nonce of the question")
        return message


def exchange(
    grid: Grid,
    contents: Mapping[int, tuple[int, RecordDict]],
    kind: str,
    patience: float,
    limits: Mapping[int, Limits],
    unawaited: frozenset[int] = frozenset(),
) -> Exchange:
    """Send each client k its content (to a node) and take in the answers, for `patience` seconds
    at most. Nobody waits for the `unawaited`: theirs count when they are there in time.
    """
    done = Exchange()
    if not contents:
        return done
    post = post_of(grid)
    sent, questions = {}, []
    for k, (node, content) in contents.items():
        nonce = secrets.token_bytes(NONCE_BYTES)
        # An answer that comes in time must not be too late for Flower.
        life = min(2 * patience + 60, LONGEST_LIFE)
        sent[k] = Message(asking(content, nonce), dst_node_id=node, message_type=kind, ttl=life)
        questions.append(Question(k, node, nonce, limits.get(k, Limits())))
    ids = list(grid.push_messages(list(sent.values())))
    pending = {i: question for i, question in zip(ids, questions, strict=False) if i}
    delivered = {question.client for question in pending.values()}
    until = time.monotonic() + patience
    while pending:
        looked = time.monotonic()
        for asked, question in list(pending.items()):
            if look(post, asked, question, done):
                del pending[asked]
        awaited = any(question.client not in unawaited for question in pending.values())
        if not awaited or time.monotonic() >= until:
            break
        pause = max(POLL, time.monotonic() - looked)
        time.sleep(max(0.0, min(pause, until - time.monotonic())))
    for question in pending.values():
        done.missing[question.client] = why_missing(question, patience, unawaited)
    for question in questions:
        done.up[question.client] = question.up
        if question.client not in delivered:
            done.missing[question.client] = "failed: the question could not be delivered"
    known: dict[str, int] = {}
    done.sent = {k: size(message, known) for k, message in sent.items()}
    return done


def asking(content: RecordDict, nonce: bytes) -> RecordDict:
    """A question with its nonce."""
    said = ConfigRecord({**content.config_records[OFFER], NONCE: nonce})
    return RecordDict({**content, OFFER: said})


def look(post: Post, asked: str, question: Question, done: Exchange) -> bool:
    """Take in what is there of an answer; whether there is nothing more to wait for. Whatever it
    raises is its sender's failure."""
    k = question.client
    try:
        message = question.take(post, asked)
        if message is None:
            return False
        done.answers[k] = message
    except NO_FAULT_OF_A_CLIENT:
        raise
    except Refused as error:
        done.refused[k] = str(error)
    except Lost:
        done.missing[k] = "failed: announced an answer that never came"
    except Exception as error:
        done.refused[k] = f"malformed: unreadable ({type(error).__name__})"
    question.contents.clear()
    if question.announced is not None:
        with suppress(httpx.HTTPStatusError):  # it goes with the run, then
            post.received(question.announced.tree.object_id)
    return True


def why_missing(question: Question, patience: float, unawaited: frozenset[int]) -> str:
    """Why there is no answer."""
    there, all_of_it = len(question.contents), len(question.objects)
    if question.announced is not None:
        return (
            f"failed: announced an answer and withheld {all_of_it - there} of its {all_of_it} "
            f"objects for {patience:g} s"
        )
    if question.client in unawaited:
        return "failed: set aside, and no answer yet"
    return f"failed: no answer within {patience:g} s"


def names_in(tree: ObjectTree, limits: Limits) -> list[str]:
    """The objects of an announced answer, each once; refused when they are too many, or nest
    deeper than answers do."""
    names: dict[str, None] = {}
    level = [tree]
    for _ in range(len(INSIDE)):
        names.update((node.object_id, None) for node in level)
        level = [child for node in level for child in node.children]
        if len(names) + len(level) > limits.objects:
            raise too_much(f"over {limits.objects} objects")
    if level:
        raise too_much("objects nested too deep")
    return list(names)


def check(root: str, contents: Mapping[str, bytes], limits: Limits) -> None:
    """Refuse an answer whose objects are not what they are called, hold what they should not, or
    become more than they may."""
    for name, content in contents.items():
        if hashlib.sha256(content).hexdigest() != name:
            raise too_much("an object that is not what it was announced as")
    seen: set[str] = set()
    arrays = 0

    def visit(name: str, allowed: tuple[str, ...]) -> None:
        nonlocal arrays
        content = contents.get(name)
        if content is None:
            raise too_much("an object that was not announced")
        kind, children, _ = get_object_head_values_from_object_content(content)
        if kind not in allowed:
            raise too_much("objects in the wrong place")
        if name in seen:
            return
        seen.add(name)
        if len(children) > limits.objects:
            raise too_much(f"over {limits.objects} objects")
        if kind in ("RecordDict", "ArrayRecord", "Array"):
            said = body(content)
            flat(said)
            if kind == "Array":
                arrays += becomes(said, [contents.get(child, b"") for child in children])
                if arrays > limits.size:
                    raise too_much(f"arrays of over {limits.size} bytes")
        for child in children:
            visit(child, INSIDE[kind])

    visit(root, ("Message",))


def body(content: bytes) -> bytes:
    """What stands in an object, after its head."""
    return content.partition(b"\0")[2]


def flat(said: bytes) -> None:
    """Refuse brackets nested deeper than in anything a sound answer says."""
    depth = 0
    for mark in BRACKETS.findall(said):
        depth += (mark in b"[{") - (mark in b"]}")
        if depth > MOST_DEPTH:
            raise too_much("nested too deep")


def becomes(said: bytes, chunks: list[bytes]) -> int:
    """Bytes of an array that is put together from its chunks, as often as it names each."""
    named = json.loads(said)["arraychunk_ids"]
    sizes = [len(body(chunk)) for chunk in chunks]
    return sum(sizes[i] for i in named)
