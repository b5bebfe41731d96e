"""The gate: what nodes need is passed on, and nothing else, whatever is asked and however."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from contextlib import contextmanager

import httpx
import pytest
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.supercore.error import FlowerError
from flwr.superlink.routers.fleet.router import router as fleet

import muster
from flower_hostile import every_route
from flower_signed import Signer, Superlink
from muster.flower.local.child_processes import free_ports
from muster.flower.transport import proxy, proxy_access
from muster.flower.transport.keys import make_keys
from muster.flower.transport.proxy import ALLOWED, PUSH, Log, Proxy

HOST = "127.0.0.1"


NODE = Signer()


class Door:
    """A gate in front of a superlink that knows one node, asked as a server would ask it."""

    def __init__(self, transport=None, **how):
        self.superlink, self.said = Superlink([NODE.key], **how), []
        way = httpx.ASGITransport(app=self.superlink)
        if transport is not None:
            way = transport(way)
        client = httpx.AsyncClient(transport=way, base_url="https://inside")
        self.gate = Proxy("inside", client, Log(self.said.append))

    def ask(
        self, path, body=b"", method="POST", raw=None, query=b"", headers=(), events=None,
        signed=None,
    ):  # fmt: skip
        return asyncio.run(self.asking(path, body, method, raw, query, headers, events, signed))

    async def asking(
        self, path, body=b"", method="POST", raw=None, query=b"", headers=(), events=None,
        signed=None,
    ):  # fmt: skip
        if events is None:
            events = [{"type": "http.request", "body": body}]
        answers = []

        async def receive():
            if not events:
                await asyncio.sleep(3600)
            return events.pop(0)

        async def send(event):
            answers.append(event)

        scope = {
            "type": "http", "method": method, "path": path, "client": ("203.0.113.9", 1),
            "raw_path": path.encode() if raw is None else raw, "query_string": query,
            "headers": [*(NODE.headers() if signed is None else signed), *headers],
        }  # fmt: skip
        await self.gate(scope, receive, send)
        return answers[0]["status"], b"".join(a.get("body", b"") for a in answers[1:])


@pytest.fixture
def door():
    return Door()


def push(sender, *sources):
    request = PushMessagesRequest(
        node=Node(node_id=sender),
        messages_list=[Message(metadata=Metadata(src_node_id=s)) for s in sources],
        message_object_trees=[ObjectTree(object_id="a") for _ in sources],
    )
    return request.SerializeToString()


def test_what_nodes_call_is_passed_on_and_answered(door):
    for path in ALLOWED:
        body = push(7, 7) if path == PUSH else b"question"
        assert door.ask(path, body) == (200, b"fine"), path
        assert door.superlink.asked[-1][:2] == ("POST", path)
        assert door.superlink.asked[-1][3] == body
    assert door.said == []


def test_the_list_is_flowers_own_without_registration():
    """By Flower's routes, so that a new one is noticed: it is kept out until it is looked at."""
    theirs = {route.path for route in fleet.routes}
    assert set(ALLOWED) <= theirs
    assert theirs - set(ALLOWED) == {"/v1/fleet/register-node", "/v1/fleet/unregister-node"}


def test_everything_else_that_a_superlink_answers_is_refused(door):
    routes = every_route()
    paths = {path for _, path in routes}
    for name in ("start-run", "stop-run", "register-node", "unregister-node", "pull-artifacts"):
        assert f"/v1/control/{name}" in paths
    for name in ("acquire-task", "pull-task-input", "push-logs", "pull-messages"):
        assert f"/v1/runtime/{name}" in paths
    assert len(paths) > 60
    for method, path in routes:
        if not (method == "POST" and path in ALLOWED):
            assert door.ask(path, method=method)[0] == 403, (method, path)
    assert door.superlink.asked == []


WAYS_ROUND = {
    "up a folder": ("/v1/fleet/../control/start-run", None, b""),
    "up a folder, escaped": ("/v1/fleet/../control/x", b"/v1/fleet/%2e%2e/control/x", b""),
    "an allowed name, escaped": ("/v1/fleet/get-run", b"/v1/fleet/get%2Drun", b""),
    "two slashes": ("//v1/fleet/get-run", None, b""),
    "a slash more": ("/v1/fleet/get-run/", None, b""),
    "capitals": ("/v1/Fleet/get-run", None, b""),
    "a query": ("/v1/fleet/get-run", None, b"path=/v1/control/start-run"),
    "a parameter": ("/v1/fleet/get-run;/../../control/start-run", None, b""),
    "a whole address": ("http://inside/v1/fleet/get-run", None, b""),
    "a zero byte": ("/v1/fleet/get-run\0", None, b""),
    "a line break": ("/v1/fleet/get-run\r\nGET /v1/control/start-run", None, b""),
    "gRPC": ("/flwr.proto.Control/StartRun", None, b""),
    "documentation": ("/openapi.json", None, b""),
    "nothing": ("", None, b""),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS_ROUND)
def test_there_is_no_way_round(door, way):
    path, raw, query = WAYS_ROUND[way]
    assert door.ask(path, raw=raw, query=query)[0] == 403
    assert door.superlink.asked == []
    assert all(text.isprintable() and len(text) < 250 for text in door.said)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "HEAD", "CONNECT", "PATCH"])
def test_only_posts_are_passed_on(door, method):
    assert door.ask("/v1/fleet/get-run", method=method)[0] == 403
    assert door.superlink.asked == []


def test_only_flowers_headers_go_in_and_only_the_answers_come_out(door):
    headers = [
        (b"flwr-more", b"m"), (b"content-type", b"application/x"), (b"authorization", b"Bearer"),
        (b"cookie", b"c"), (b"x-forwarded-for", b"127.0.0.1"),
        (b"host", b"outside"), (b"connection", b"upgrade"),
    ]  # fmt: skip
    door.ask("/v1/fleet/get-run", headers=headers)
    seen = door.superlink.asked[0][2]
    assert {n for n in seen if n.startswith(b"flwr-")} == {
        b"flwr-public-key", b"flwr-signature", b"flwr-timestamp", b"flwr-more"
    }  # fmt: skip
    assert seen[b"host"] == b"inside"
    assert not set(seen) & {b"authorization", b"cookie", b"x-forwarded-for"}


UNREAD = [{"type": "http.disconnect"}]  # what is not read is not missed


def test_nothing_of_a_request_is_read_unless_a_registered_key_has_signed_it(door):
    stranger = Signer()
    forged = {
        **dict(stranger.headers()),
        b"flwr-public-key": dict(NODE.headers())[b"flwr-public-key"],
    }
    for signed, status in (
        ([], 401),
        (NODE.headers()[:2], 401),
        (list(forged.items()), 401),
        (NODE.headers(flwr_timestamp="yesterday"), 401),
        (NODE.headers(flwr_timestamp="2026-01-01T00:00:00"), 401),
        (NODE.headers(flwr_public_key="@"), 401),
        (stranger.headers(), 400),
    ):
        events = list(UNREAD)
        assert door.ask("/v1/fleet/push-object", signed=signed, events=events)[0] == status
        assert events == UNREAD
    assert "this node's key is not registered" in door.said[-1]
    assert door.superlink.asked == []


def test_a_wrong_clock_is_reported_with_what_is_allowed(door):
    status, text = door.ask("/v1/fleet/get-run", signed=NODE.headers(fast=7))
    why = "this node's clock is 7 s fast, and less than 5 s is allowed; set it (by NTP)"
    assert (status, FlowerError.from_json(text.decode()).message) == (400, why)
    assert door.said == [f"refused POST /v1/fleet/get-run from 203.0.113.9: {why}"]
    status, text = door.ask("/v1/fleet/get-run", signed=NODE.headers(fast=-400))
    assert status == 400
    assert b"clock is 400 s slow, and less than 305 s is allowed" in text
    for fine in (4, -300):
        assert door.ask("/v1/fleet/get-run", signed=NODE.headers(fast=fine))[0] == 200


def test_slow_requests_of_one_node_hold_no_connection_and_nobody_up(door):
    """They are read without one, a few at a time; other nodes' requests go past them."""
    other = Signer()
    door.superlink.keys.append(other.key)

    async def attack():
        slow = [
            asyncio.create_task(
                door.asking(
                    "/v1/fleet/push-object",
                    events=[{"type": "http.request", "body": b"a", "more_body": True}],
                )
            )
            for _ in range(2 * proxy.MAX_REQUESTS)
        ]
        await asyncio.sleep(0.2)
        async with asyncio.timeout(20):
            answer = await door.asking("/v1/fleet/get-run", signed=other.headers())
        assert answer == (200, b"fine")
        assert [path for _, path, _, _ in door.superlink.asked] == ["/v1/fleet/get-run"]
        assert door.gate.slots._value == proxy.MAX_REQUESTS - proxy.MAX_REQUESTS_PER_KEY
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)

    asyncio.run(attack())


def test_a_large_request_passes_whole_by_way_of_a_file(door, monkeypatch):
    monkeypatch.setattr(proxy, "IN_MEMORY", 1000)
    part = bytes(range(256)) * 4
    events = [{"type": "http.request", "body": part, "more_body": i < 99} for i in range(100)]
    assert door.ask("/v1/fleet/push-object", events=events)[0] == 200
    _, _, headers, body = door.superlink.asked[0]
    assert body == part * 100
    assert headers[b"content-length"] == str(len(body)).encode()


def test_a_reply_in_another_nodes_name_is_refused_and_named(door):
    """Flower checks the sending node, not the reply's source."""
    assert door.ask(PUSH, push(7, 8))[0] == 403
    assert door.said == [
        f"refused POST {PUSH} from 203.0.113.9: forged: node 7 sends a reply in the name of node 8"
    ]
    assert door.ask(PUSH, push(7, 7, 8))[0] == 400
    assert door.ask(PUSH, push(7))[0] == 400
    assert door.ask(PUSH, b"\xff\xff\xff")[0] == 400
    assert door.superlink.asked == []


@pytest.mark.parametrize("path", ALLOWED)
def test_no_request_is_larger_than_it_need_be(door, path):
    most = ALLOWED[path]
    assert door.ask(path, headers=[(b"content-length", str(most + 1).encode())])[0] == 413
    assert door.ask(path, headers=[(b"content-length", b"-1")])[0] == 413
    part = b"x" * (most // 2)
    events = [{"type": "http.request", "body": part, "more_body": True} for _ in range(4)]
    assert door.ask(path, events=events)[0] == 413
    assert door.superlink.asked == []


def test_a_request_that_does_not_come_is_not_waited_for(door, monkeypatch):
    monkeypatch.setattr(proxy, "IDLE_TIMEOUT", 0.1)
    events = [{"type": "http.request", "body": b"a", "more_body": True}]
    assert door.ask("/v1/fleet/push-object", events=events)[0] == 408
    assert door.ask("/v1/fleet/push-object", events=[{"type": "http.disconnect"}])[0] == 400
    assert door.superlink.asked == []


def test_an_answer_that_does_not_come_is_not_waited_for(monkeypatch):
    async def never(request):
        await asyncio.sleep(3600)

    monkeypatch.setattr(proxy, "REQUEST_TIMEOUT", 0.1)
    door = Door(lambda way: httpx.MockTransport(never))
    door.gate.registered.keys = frozenset([NODE.key])
    door.gate.registered.asked = float("inf")
    assert door.ask("/v1/fleet/get-run")[0] == 503


def test_a_superlink_that_is_down_is_reported_once_and_nodes_try_again():
    class Flaky(httpx.AsyncBaseTransport):
        def __init__(self, way):
            self.up, self.way = False, way

        async def handle_async_request(self, request):
            if not self.up:
                raise httpx.ConnectError("refused")
            return await self.way.handle_async_request(request)

    door = Door(Flaky)
    way = door.gate.client._transport
    for _ in range(3):
        assert door.ask("/v1/fleet/get-run")[0] == 503  # which Flower's nodes retry
    assert len(door.said) == 1
    assert "the superlink at inside cannot be reached" in door.said[0]
    way.up = True
    assert door.ask("/v1/fleet/get-run") == (200, b"fine")


def test_an_answer_goes_through_as_it_is_whatever_its_status():
    door = Door(status=401, content=b"no")
    assert door.ask("/v1/fleet/get-run") == (401, b"no")


def test_a_flood_does_not_fill_the_log(door, monkeypatch):
    for _ in range(200):
        door.ask("/v1/control/start-run")
    assert len(door.said) == proxy_access.LINES_A_MINUTE
    now = time.monotonic()
    monkeypatch.setattr(proxy_access.time, "monotonic", lambda: now + 60)
    door.ask("/v1/control/start-run")
    assert (
        door.said[proxy_access.LINES_A_MINUTE]
        == f"and {200 - proxy_access.LINES_A_MINUTE} more refusals"
    )


# As a server, with TLS.


@contextmanager
def opened(keys, superlink, say=lambda text: None):
    (port,) = free_ports(1)
    server = proxy.build_server(keys, HOST, port, superlink, say)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.uvicorn.started:
        assert thread.is_alive()
        time.sleep(0.02)
    try:
        yield port
    finally:
        server.uvicorn.should_exit = True
        thread.join(20)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gate") / "keys"
    make_keys(folder, ["gate.example"], [])
    return folder


def trust(keys):
    context = ssl.create_default_context(cafile=str(keys / "ca.crt"))
    context.check_hostname = False
    return context


def test_it_speaks_tls_and_refuses_like_that_too(keys):
    (nobody,) = free_ports(1)
    with opened(keys, f"{HOST}:{nobody}") as port:
        with httpx.Client(verify=trust(keys), trust_env=False) as client:
            address = f"https://{HOST}:{port}"
            assert client.post(f"{address}/v1/control/start-run").status_code == 403
            assert client.get(f"{address}/health").status_code == 403
            assert client.post(f"{address}/v1/fleet/get-run").status_code == 401
            signed = {n.decode(): v.decode() for n, v in NODE.headers()}
            answer = client.post(f"{address}/v1/fleet/get-run", headers=signed)
            assert answer.status_code == 503
            answer = client.post(f"{address}/v1/control/start-run")
            assert "server" not in answer.headers
        with (
            httpx.Client(verify=True, trust_env=False) as stranger,
            pytest.raises(httpx.ConnectError),
        ):
            stranger.get(f"https://{HOST}:{port}/health")
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://{HOST}:{port}/health", trust_env=False)


def test_a_connection_that_asks_for_nothing_is_closed(keys, monkeypatch):
    monkeypatch.setattr(proxy, "IDLE_TIMEOUT", 0.6)
    with opened(keys, f"{HOST}:1") as port:
        for said in (b"", b"POST /v1/fleet/get-run HTTP/1.1\r\nhost: a\r\n"):
            with (
                socket.create_connection((HOST, port), timeout=10) as plain,
                trust(keys).wrap_socket(plain, server_hostname="gate.example") as slow,
            ):
                slow.sendall(said)
                began = time.monotonic()
                assert slow.recv(10) == b""  # closed from the other side
                assert time.monotonic() - began < 8


def calling(keys, port):
    plain = socket.create_connection((HOST, port), timeout=10)
    return trust(keys).wrap_socket(plain, server_hostname="gate.example")


def test_no_address_keeps_others_of_it_out(keys, monkeypatch):
    """The stranger that has been there longest goes; nodes stay."""
    monkeypatch.setattr(proxy_access, "MAX_UNAUTHENTICATED_PER_ADDRESS", 3)
    (nobody,) = free_ports(1)
    with opened(keys, f"{HOST}:{nobody}") as port:
        held = [calling(keys, port) for _ in range(3)]
        with calling(keys, port) as one_more:
            assert held[0].recv(10) == b""  # it was shown out
            one_more.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            assert one_more.recv(100).startswith(b"HTTP/1.1 403")
        for connection in held:
            connection.close()


def test_a_connection_that_never_begins_tls_is_closed(keys, monkeypatch):
    monkeypatch.setattr(proxy_access, "AUTHENTICATION_TIMEOUT", 0.5)
    with (
        opened(keys, f"{HOST}:1") as port,
        socket.create_connection((HOST, port), timeout=10) as silent,
    ):
        assert silent.recv(10) == b""


def test_a_port_that_is_taken_is_one_line(keys):
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(muster.MusterError, match=rf"{port}: cannot listen there \(Address"):
            proxy.build_server(keys, HOST, port, f"{HOST}:1")


def test_a_superlink_that_can_be_reached_past_the_gate_is_refused(monkeypatch, keys):
    with socket.create_server(("0.0.0.0", 0)) as listening:
        port = listening.getsockname()[1]
        with monkeypatch.context() as patch:  # an address of this machine that others can reach
            patch.setattr(proxy, "public_addresses", lambda: {"127.0.0.1"})
            with pytest.raises(muster.MusterError, match=rf"also answers at 127\.0\.0\.1:{port}"):
                proxy.check_local(f"127.0.0.1:{port}")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy.check_local(f"127.0.0.1:{listening.getsockname()[1]}")
    for elsewhere in ("0.0.0.0:9093", "10.0.0.1:9093", "example.org:9093", "127.0.0.1", "x"):
        with pytest.raises(muster.MusterError, match="give an address on this machine"):
            proxy.check_local(elsewhere)
    assert not any(a.startswith("127.") for a in proxy.public_addresses())


def test_without_its_keys_it_does_not_open(tmp_path, keys):
    with pytest.raises(muster.MusterError, match=r"ca\.crt: no such file; make it with"):
        proxy.build_server(tmp_path, HOST, 1, f"{HOST}:1")
