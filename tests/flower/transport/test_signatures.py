"""Which keys are registered is the superlink's to say, and it is not asked without end."""

from __future__ import annotations

import asyncio

import httpx
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE
from flwr.proto.control_pb2 import ListNodesResponse
from flwr.proto.node_pb2 import NodeInfo

from flower_hostile import every_route
from flower_signed import Signer, Superlink
from muster.flower.transport import signatures
from muster.flower.transport.signatures import LIST_NODES, RegisteredKeys


def registered(superlink):
    way = httpx.ASGITransport(app=superlink)
    return RegisteredKeys(httpx.AsyncClient(transport=way, base_url="https://inside"))


def test_strangers_do_not_make_the_gate_ask_without_end():
    superlink = Superlink([b"key"])
    keys = registered(superlink)

    async def knock():
        assert await keys.has(b"key")
        return [await keys.has(str(i).encode()) for i in range(100)]

    assert not any(asyncio.run(knock()))
    assert superlink.listed == 1


def test_a_key_that_is_registered_later_is_let_in_and_one_that_goes_is_not(monkeypatch):
    monkeypatch.setattr(signatures, "RETRY_PAUSE", 0.0)
    superlink = Superlink()
    keys = registered(superlink)

    async def knock():
        assert not await keys.has(b"key")
        superlink.keys.append(b"key")
        assert await keys.has(b"key")
        superlink.keys.clear()
        assert await keys.has(b"key")  # for a minute: the superlink itself refuses it at once
        monkeypatch.setattr(signatures, "CACHE_TIMEOUT", 0.0)
        assert not await keys.has(b"key")

    asyncio.run(knock())


def test_a_superlink_that_does_not_answer_keeps_no_known_key_waiting():
    async def never(request):
        await asyncio.sleep(3600)

    way = httpx.MockTransport(never)
    keys = RegisteredKeys(httpx.AsyncClient(transport=way, base_url="https://inside"))

    async def knock():
        keys.keys = frozenset([b"key"])
        keys.asked = asyncio.get_running_loop().time() - signatures.RETRY_PAUSE - 1
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


def test_flower_is_as_it_was_when_this_was_written():
    """What the gate takes from Flower's insides, so that an upgrade is noticed."""
    assert ("POST", LIST_NODES) in every_route()
    assert (SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE) == (5, 300)
    from flwr.superlink.routers.fleet.node_auth import verify_signature

    assert signatures.verify_signature is verify_signature
    assert Signer().key.startswith(b"-----BEGIN PUBLIC KEY-----")
