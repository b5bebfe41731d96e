"""Access to the proxy: unauthenticated connections are few and short, nodes are counted by key, and
the SuperLink is asked a bounded number of times which keys are registered."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE
from flwr.proto.control_pb2 import ListNodesResponse
from flwr.proto.node_pb2 import NodeInfo

from flower_hostile import every_route
from flower_signed import Signer, Superlink
from muster.flower.transport import proxy_access
from muster.flower.transport.proxy_access import (
    LIST_NODES,
    Connections,
    Refusal,
    RegisteredKeys,
    address_block,
)


def test_an_ipv6_address_counts_for_its_network_and_any_other_for_itself():
    assert address_block("2001:db8:1:2:3::4") == address_block("2001:db8:1:2:ffff::1")
    assert address_block("2001:db8:1:2::1") != address_block("2001:db8:1:3::1")
    assert address_block("192.0.2.1") == "192.0.2.1" == address_block("::ffff:192.0.2.1")
    assert address_block("fe80::1%eth0") == address_block("fe80::2%eth1")
    assert address_block("nonsense") == "nonsense"


def visiting(act):
    """Do something with visitors, in a loop; returns the ports of those who were shown out."""
    out = []

    async def run():
        there = Connections(limit=5)

        def come(host, port):
            there.add((host, port), lambda: out.append(port))

        await act(there, come)
        return there

    return asyncio.run(run()), out


def test_the_oldest_unauthenticated_connection_is_closed_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(proxy_access, "MAX_UNAUTHENTICATED_PER_ADDRESS", 2)

    async def act(there, come):
        for port in (1, 2, 3):
            come("192.0.2.1", port)
        for port in (4, 5, 6, 7):
            come(f"192.0.2.{port}", port)

    there, out = visiting(act)
    assert out == [1, 2]  # of its own address, then of all
    assert [port for _, port in there.unauthenticated] == [3, 4, 5, 6, 7]


def test_an_unauthenticated_connection_times_out_and_that_of_a_node_does_not(monkeypatch):
    monkeypatch.setattr(proxy_access, "AUTHENTICATION_TIMEOUT", 0.05)

    async def act(there, come):
        come("192.0.2.1", 1)
        come("192.0.2.1", 2)
        there.authenticate(("192.0.2.1", 2), b"key")
        await asyncio.sleep(0.2)

    there, out = visiting(act)
    assert out == [1]
    assert there.nodes == {("192.0.2.1", 2): b"key"}
    there.remove(("192.0.2.1", 2))
    assert not there.nodes
    assert not there.unauthenticated


def test_any_number_of_nodes_may_share_an_address_and_none_has_too_many_connections(monkeypatch):
    monkeypatch.setattr(proxy_access, "MAX_UNAUTHENTICATED_PER_ADDRESS", 2)
    monkeypatch.setattr(proxy_access, "MAX_PER_KEY", 3)

    async def act(there, come):
        for port in range(100):
            come("192.0.2.1", port)
            there.authenticate(("192.0.2.1", port), str(port).encode())
        for port in range(1000, 1003):
            come("192.0.2.1", port)
            there.authenticate(("192.0.2.1", port), b"one")
            there.authenticate(("192.0.2.1", port), b"one")  # its next request
        come("192.0.2.1", 1003)
        with pytest.raises(Refusal, match="over 3 connections of one node"):
            there.authenticate(("192.0.2.1", 1003), b"one")
        there.remove(("192.0.2.1", 1003))
        there.authenticate(("192.0.2.1", 1002), b"one")

    _, out = visiting(act)
    assert out == []


def registered(superlink):
    way = httpx.ASGITransport(app=superlink)
    return RegisteredKeys(httpx.AsyncClient(transport=way, base_url="https://inside"))


def test_unknown_keys_do_not_make_the_proxy_ask_the_superlink_each_time():
    superlink = Superlink([b"key"])
    keys = registered(superlink)

    async def knock():
        assert await keys.has(b"key")
        return [await keys.has(str(i).encode()) for i in range(100)]

    assert not any(asyncio.run(knock()))
    assert superlink.listed == 1


def test_a_key_registered_later_is_accepted_and_one_removed_is_refused(monkeypatch):
    monkeypatch.setattr(proxy_access, "RETRY_PAUSE", 0.0)
    superlink = Superlink()
    keys = registered(superlink)

    async def knock():
        assert not await keys.has(b"key")
        superlink.keys.append(b"key")
        assert await keys.has(b"key")
        superlink.keys.clear()
        assert await keys.has(b"key")  # for a minute: the superlink itself refuses it at once
        monkeypatch.setattr(proxy_access, "CACHE_TIMEOUT", 0.0)
        assert not await keys.has(b"key")

    asyncio.run(knock())


def test_a_superlink_that_does_not_answer_delays_no_known_key():
    async def never(request):
        await asyncio.sleep(3600)

    way = httpx.MockTransport(never)
    keys = RegisteredKeys(httpx.AsyncClient(transport=way, base_url="https://inside"))

    async def knock():
        keys.keys = frozenset([b"key"])
        keys.asked = asyncio.get_running_loop().time() - proxy_access.RETRY_PAUSE - 1
        stranger = asyncio.create_task(keys.has(b"other"))
        await asyncio.sleep(0.05)
        async with asyncio.timeout(5):
            assert await keys.has(b"key")
        stranger.cancel()

    asyncio.run(knock())


def test_a_key_that_was_unregistered_is_not_registered():
    gone = NodeInfo(public_key=b"gone", status="unregistered")
    answer = ListNodesResponse(nodes_info=[gone]).SerializeToString()
    way = httpx.MockTransport(lambda request: httpx.Response(200, content=answer))
    keys = RegisteredKeys(httpx.AsyncClient(transport=way, base_url="https://inside"))
    assert not asyncio.run(keys.has(b"gone"))


def test_flowers_own_functions_and_routes_are_those_tested():
    """What the gate takes from Flower's insides, so that an upgrade is noticed."""
    assert ("POST", LIST_NODES) in every_route()
    assert (SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE) == (5, 300)
    from flwr.superlink.routers.fleet.node_auth import verify_signature

    assert proxy_access.verify_signature is verify_signature
    assert Signer().key.startswith(b"-----BEGIN PUBLIC KEY-----")
