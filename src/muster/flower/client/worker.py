"""The worker process of a client: it answers requests, and is the only one that opens the data.

A Flower node by itself runs any app that a run brings along. Here the node passes its tasks to this
process instead, which loads no code from any app: it compares the app's hash with those its owner
agreed to, reads the terms of the experiment in it, and runs the client app that is installed with
muster. Anything else is refused before data is opened: a line in the log, an error to the server.
Errors are logged in full at the node; the server receives their kind alone, since errors about data
may quote it.

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
from ..local.child_processes import end_with
from ..terms import read_app_terms
from ..transport.private_files import check_data
from ..transport.wire import clean_line
from .app import AGREED
from .app import app as client_app
from .supernode import PULL_TIMEOUT, set_pull_timeout

POLL_INTERVAL = 0.3  # seconds between polls for a task
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


@dataclass(frozen=True)
class WorkerOptions:
    """The options of a worker.

    Attributes:
        address: of the node's own interface, on this machine
        secret: by which this process authenticates to the node
        owner: values of `node_data.OWNER_KEYS`
        agreed: hashes of the apps the owner agreed to
    """

    address: str
    secret: bytes = field(repr=False)
    owner: dict[str, Any]
    agreed: frozenset[str]


def say(text: str) -> None:
    """Print a line to the node's log."""
    print(f"muster node: {text}", flush=True)


def connect(
    options: WorkerOptions, auth: ProtobufClientInterceptor, retry: RetryInvoker | None = None
) -> RuntimeHttpClient:
    """Connect to the node, on this machine."""
    return RuntimeHttpClient.from_server_address(
        server_address=options.address,
        insecure=True,
        root_certificates=None,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), auth],
        retry_invoker=retry,
    )


def serve(options: WorkerOptions) -> None:
    """Take one task after another, for ever. Tasks of every kind are taken: one that nobody takes
    would block the node."""
    auth = SuperExecAuthHttpInterceptor(
        master_secret=options.secret, protected_methods=frozenset({ACQUIRE})
    )
    node = connect(options, auth)
    request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP, TaskType.AGENT_APP])
    while True:
        try:
            found = node.AcquireTask(request)
            if found.HasField("task") and found.token:
                run_task(options, found.token)
                continue
        except httpx.TransportError:
            pass  # the node is being started (again)
        except (Exception, RunNotRunningException) as error:  # the latter is no Exception
            say(f"a task was lost: {clean_line(repr(error), 200)}")
        time.sleep(POLL_INTERVAL)


def run_task(options: WorkerOptions, token: str) -> None:
    """Do one task: pull its message, reply to it, push the reply; send heartbeats meanwhile."""
    node = connect(options, RuntimeTokenHttpInterceptor(token), make_simple_http_retry_invoker())
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(node))
    heartbeat.start()
    try:
        message, context, _, app = pull_task_input(node)
        reply = reply_to(options, message, context, app)
        push_message(node, reply, context)
        done = not reply.has_error()
        # A task that failed does not change the client's state.
        push_task_output(
            node,
            context if done else None,
            SubStatus.COMPLETED if done else SubStatus.FAILED,
            "" if done else str(reply.error.reason),
        )
    finally:
        if heartbeat.is_running:
            heartbeat.stop()
        node.close()


def reply_to(options: WorkerOptions, message: Message, context: Context, app: Fab) -> Message:
    """Reply to a message of an app that was agreed to; return an error to any other."""
    name = hashlib.sha256(app.content).hexdigest()
    if name not in options.agreed:
        say(f"refused: app {name} of run {context.run_id}, which its owner has not agreed to")
        return Message(
            Error(ErrorCode.INVALID_FAB, "this node's owner has not agreed to this app"),
            reply_to=message,
        )
    try:
        context.node_config = dict(options.owner)
        context.run_config = {AGREED: read_app_terms(app.content)}
        data = options.owner.get("data-path")
        if isinstance(data, str):
            check_data(Path(data))
        return client_app(message, context)
    except Exception as error:
        if isinstance(error, MusterError):
            say(f"failed: {error}")
        else:
            say(f"failed: {clean_line(repr(error), 500)}")
            traceback.print_exc()
        return Message(
            Error(
                ErrorCode.CLIENT_APP_RAISED_EXCEPTION,
                f"{type(error).__name__}; the node's log says more",
            ),
            reply_to=message,
        )


def main() -> None:
    """Read the options from standard input, and serve."""
    end_with(int(sys.argv[1]))
    os.umask(0o077)
    config = json.load(sys.stdin)
    secret = bytes.fromhex(config["secret"])
    options = WorkerOptions(config["address"], secret, config["owner"], frozenset(config["agreed"]))
    set_pull_timeout(PULL_TIMEOUT)
    with suppress(KeyboardInterrupt):
        serve(options)


if __name__ == "__main__":
    main()
