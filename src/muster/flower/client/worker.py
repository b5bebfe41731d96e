"""The process that answers for a client, and the only one that opens its data.

A Flower node, left to itself, starts whatever app a run brings along. Here the node hands its tasks
to this process instead, which loads no code from any app: it compares the app's hash with those its
owner agreed to, reads the terms of the experiment in it, and runs the client app that is installed
with muster. Anything else is refused before data is opened: a line in the log, an error to the
server. What goes wrong here is told in full in the node's own log, and to the server by its kind
alone, since errors about data may quote it.

    python -P -m muster.flower.client.worker PARENT < task.json     (started by `muster node`)
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Context, Error, Message

from ...base.errors import MusterError
from ..app_folder import terms_in
from ..compat import (
    AcquireTaskRequest,
    ErrorCode,
    Fab,
    HeartbeatSender,
    ProtobufClientInterceptor,
    RetryInvoker,
    RunNotRunningException,
    RuntimeHttpClient,
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SubStatus,
    SuperExecAuthHttpInterceptor,
    TaskType,
    make_simple_http_retry_invoker,
    make_task_heartbeat_fn_http,
    pull_task_input,
    push_message,
    push_task_output,
)
from ..local.processes import end_with
from ..transport.private_files import check_data
from ..transport.wire import line
from .app import AGREED
from .app import app as client_app
from .supernode import PULL_TIMEOUT, set_pull_timeout

LOOK_EVERY = 0.3  # seconds between looks for a task
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


@dataclass(frozen=True)
class Desk:
    """What a node's owner has settled.

    Attributes:
        address: of the node's own interface, on this machine
        secret: by which this process proves to the node that it is the one
        owner: what the owner may set: data-path, memory-path, requirement, test-fraction, tokenizer
        agreed: hashes of the apps the owner agreed to
    """

    address: str
    secret: bytes = field(repr=False)
    owner: dict[str, Any]
    agreed: frozenset[str]


def say(text: str) -> None:
    """A line in the node's log."""
    print(f"muster node: {text}", flush=True)


def connection(
    desk: Desk, proof: ProtobufClientInterceptor, insist: RetryInvoker | None = None
) -> RuntimeHttpClient:
    """A connection to the node. It does not leave the machine."""
    return RuntimeHttpClient.from_server_address(
        server_address=desk.address,
        insecure=True,
        root_certificates=None,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), proof],
        retry_invoker=insist,
    )


def serve(desk: Desk) -> None:
    """Take one task after another, for ever. Tasks of every kind are taken: one that nobody takes
    would hold up the node."""
    proof = SuperExecAuthHttpInterceptor(
        master_secret=desk.secret, protected_methods=frozenset({ACQUIRE})
    )
    node = connection(desk, proof)
    wanted = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP, TaskType.AGENT_APP])
    while True:
        try:
            found = node.AcquireTask(wanted)
            if found.HasField("task") and found.token:
                work(desk, found.token)
                continue
        except httpx.TransportError:
            pass  # the node is being started (again)
        except (Exception, RunNotRunningException) as error:  # the latter is no Exception
            say(f"a task was lost: {line(repr(error), 200)}")
        time.sleep(LOOK_EVERY)


def work(desk: Desk, token: str) -> None:
    """One task: what it asks for, and the answer to it."""
    node = connection(desk, RuntimeTokenHttpInterceptor(token), make_simple_http_retry_invoker())
    alive = HeartbeatSender(make_task_heartbeat_fn_http(node))
    alive.start()
    try:
        message, context, _, app = pull_task_input(node)
        reply = answer(desk, message, context, app)
        push_message(node, reply, context)
        done = not reply.has_error()
        # A task that failed leaves no trace in what the client remembers.
        push_task_output(
            node,
            context if done else None,
            SubStatus.COMPLETED if done else SubStatus.FAILED,
            "" if done else str(reply.error.reason),
        )
    finally:
        if alive.is_running:
            alive.stop()
        node.close()


def answer(desk: Desk, message: Message, context: Context, app: Fab) -> Message:
    """The answer to a message of an app that was agreed to; an error to any other."""
    name = hashlib.sha256(app.content).hexdigest()
    if name not in desk.agreed:
        say(f"refused: app {name} of run {context.run_id}, which its owner has not agreed to")
        return Message(
            Error(ErrorCode.INVALID_FAB, "this node's owner has not agreed to this app"),
            reply_to=message,
        )
    try:
        context.node_config = dict(desk.owner)
        context.run_config = {AGREED: terms_in(app.content)}
        data = desk.owner.get("data-path")
        if isinstance(data, str):
            check_data(Path(data))
        return client_app(message, context)
    except Exception as error:
        if isinstance(error, MusterError):
            say(f"failed: {error}")
        else:
            say(f"failed: {line(repr(error), 500)}")
            traceback.print_exc()
        return Message(
            Error(
                ErrorCode.CLIENT_APP_RAISED_EXCEPTION,
                f"{type(error).__name__}; the node's log says more",
            ),
            reply_to=message,
        )


def main() -> None:
    """Read from standard input what the owner has settled, and serve."""
    end_with(int(sys.argv[1]))
    os.umask(0o077)
    said = json.load(sys.stdin)
    secret = bytes.fromhex(said["secret"])
    desk = Desk(said["address"], secret, said["owner"], frozenset(said["agreed"]))
    set_pull_timeout(PULL_TIMEOUT)
    with suppress(KeyboardInterrupt):
        serve(desk)


if __name__ == "__main__":
    main()
