"""The private names of Flower that muster uses: all in one module, each of the shape relied on."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import flwr
import pytest
from packaging.requirements import Requirement

import muster
from muster.flower import compat

SOURCE = Path(muster.__file__).parent
PUBLIC = {"flwr.app", "flwr.clientapp", "flwr.serverapp"}

PARAMETERS = {  # that muster passes to each function, by name or in this order
    "build_fab_from_disk": ["app"],
    "bytes_to_public_key": ["public_key_bytes"],
    "get_all_nested_objects": ["obj"],
    "get_object_head_values_from_object_content": ["object_content"],
    "get_object_tree": ["obj"],
    "inflate_object_from_contents": ["object_id", "object_contents"],
    "make_simple_http_retry_invoker": [],
    "make_task_heartbeat_fn_http": ["client"],
    "no_object_id_recompute": [],
    "now": [],
    "pull_objects": ["object_ids", "max_time"],
    "pull_task_input": ["client"],
    "push_message": ["client", "message", "context"],
    "push_task_output": ["client", "context", "sub_status", "details"],
    "verify_signature": ["public_key", "message", "signature"],
}
FIELDS = {  # of each protocol buffer
    "AcquireTaskRequest": {"supported_task_types"},
    "ConfirmMessageReceivedRequest": {"node", "run_id", "message_object_id"},
    "ListNodesRequest": set(),
    "ListNodesResponse": {"nodes_info"},
    "NodeInfo": {"node_id", "public_key", "status"},
    "ObjectTree": {"object_id", "children"},
    "PullAppMessagesRequest": {"message_ids"},
    "PullObjectRequest": {"node", "run_id", "object_id"},
    "PushMessagesRequest": {"node", "messages_list", "message_object_trees"},
}
MEMBERS = {
    "ErrorCode": {"CLIENT_APP_RAISED_EXCEPTION", "INVALID_FAB"},
    "NodeStatus": {"UNREGISTERED"},
    "SubStatus": {"COMPLETED", "FAILED"},
    "SType": {"NUMPY"},
    "TaskType": {"CLIENT_APP", "AGENT_APP"},
    "HeartbeatSender": {"start", "stop", "is_running"},
    "RuntimeHttpClient": {"from_server_address", "AcquireTask", "close"},
}
ARGUMENTS = {  # of constructors
    "Fab": {"content"},
    "RuntimeTokenHttpInterceptor": {"token"},
    "RuntimeVersionHttpInterceptor": {"component_name"},
    "SuperExecAuthHttpInterceptor": {"master_secret", "protected_methods"},
}


def imports(path):
    """The modules of flwr that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def private(path):
    return {m for m in imports(path) if m.partition(".")[0] == "flwr" and m not in PUBLIC}


def test_no_other_module_imports_a_private_module_of_flower():
    found = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if private(path)}
    assert found == {"flower/compat.py"}


def test_every_name_is_used_and_no_other_is_taken():
    taken = {
        alias.name
        for node in ast.walk(ast.parse((SOURCE / "flower/compat.py").read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flwr")
        for alias in node.names
    }
    used = set()
    for path in (SOURCE / "flower").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level and node.module == "compat":
                used |= {alias.name for alias in node.names}
    inside = {"Grid", "start_client_internal", "flower_supernode"}
    assert taken - inside <= used
    assert used - taken <= {"runtime_connection", "run_supernode", "version_error"}


@pytest.mark.parametrize("name", PARAMETERS)
def test_functions_take_what_they_are_passed(name):
    has = list(inspect.signature(getattr(compat, name)).parameters)
    assert [p for p in has if p in PARAMETERS[name]] == PARAMETERS[name]


@pytest.mark.parametrize("name", FIELDS)
def test_messages_have_the_fields(name):
    kind = getattr(compat, name)
    assert {field.name for field in kind.DESCRIPTOR.fields} >= FIELDS[name]
    kind.FromString(kind().SerializeToString())


@pytest.mark.parametrize("name", MEMBERS)
def test_classes_have_the_members(name):
    kind = getattr(compat, name)
    assert {m for m in MEMBERS[name] if hasattr(kind, m)} == MEMBERS[name]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_constructors_take_what_they_are_passed(name):
    assert inspect.signature(getattr(compat, name)).parameters.keys() >= ARGUMENTS[name]


def test_the_identity_of_a_task_can_be_set():
    for name in ("run_id", "node_id", "task_id"):
        assert isinstance(getattr(type(compat.TaskIdentity), name), property)


def test_constants_are_of_their_types():
    headers = (
        compat.FLEET_HTTP_PUBLIC_KEY_HEADER,
        compat.FLEET_HTTP_SIGNATURE_HEADER,
        compat.TIMESTAMP_HEADER,
    )
    assert all(header.startswith("flwr-") for header in headers)  # which the proxy forwards
    assert compat.PROTOBUF_MEDIA_TYPE.startswith("application/")
    assert min(compat.SYSTEM_TIME_TOLERANCE, compat.TIMESTAMP_TOLERANCE) > 0
    assert compat.now().tzinfo is not None


def test_exceptions_are_of_their_kinds():
    assert issubclass(compat.ObjectPullError, Exception)
    assert issubclass(compat.RunNotRunningException, BaseException)


def test_the_installed_flower_is_one_that_was_tried():
    tried = Requirement(compat.VERSIONS)
    assert tried.specifier.contains(flwr.__version__)
    stated = [Requirement(r) for r in muster_requirements()]
    assert any(r.name == "flwr" and r.specifier == tried.specifier for r in stated)


def muster_requirements():
    from importlib.metadata import requires

    return requires("muster-fl") or []


def test_a_grid_of_another_version_is_refused():
    class Grid:
        node = None

    with pytest.raises(muster.MusterError, match=r"grid is another .*; install flwr>=1.41,<1.43"):
        compat.runtime_connection(Grid())
