"""Every name that muster takes from private modules of Flower (`flwr`).

Public Flower API (`flwr.app`, `flwr.clientapp`, `flwr.serverapp`) is imported where it is used. The
names below are not documented by Flower and may change with any release: they were tried with
flwr 1.41 and 1.42 (`flwr>=1.41,<1.43`), and `tests/flower/test_compat.py` checks their shape.
"""

# ruff: noqa: F401
# mypy: implicit-reexport

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flwr.cli.build import build_fab_from_disk
from flwr.common.constant import (
    SYSTEM_TIME_TOLERANCE,
    TIMESTAMP_HEADER,
    TIMESTAMP_TOLERANCE,
    ErrorCode,
    SType,
    SubStatus,
)
from flwr.proto.control_pb2 import ListNodesRequest, ListNodesResponse
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullAppMessagesRequest
from flwr.serverapp import Grid
from flwr.supercore.constant import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
    NodeStatus,
    TaskType,
)
from flwr.supercore.date import now
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.inflatable import inflatable_utils
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_head_values_from_object_content,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    inflate_object_from_contents,
    pull_objects,
)
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supercore.retry import RetryInvoker, make_simple_http_retry_invoker
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from ..base.errors import MusterError

VERSIONS = "flwr>=1.41,<1.43"


def version_error(what: str) -> MusterError:
    """Return the error for a Flower whose private API has changed."""
    return MusterError(f"flower: {what}; install {VERSIONS}")


def runtime_connection(grid: Grid) -> tuple[Any, Any, int]:
    """Return the client, the node and the run id by which a server app's grid calls its SuperLink.

    Raises:
        MusterError: the grid of this Flower version has no such attributes
    """
    try:
        client, node = grid._runtime_client, grid.node  # type: ignore[attr-defined]
        return client, node, grid.run.run_id
    except AttributeError as error:
        raise version_error(f"this version's grid is another ({error})") from None


def run_supernode(pull: Callable[..., dict[str, bytes]]) -> None:
    """Run Flower's SuperNode with the command line of this process.

    Args:
        pull: replaces the function by which it fetches the objects of a message
    """
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode

    start_client_internal.pull_objects = pull  # type: ignore[attr-defined]
    flower_supernode()
