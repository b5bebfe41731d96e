"""Strangers are few and short; nodes are counted by their keys, wherever they are."""

from __future__ import annotations

import asyncio

import pytest

from muster.flower.transport import connections
from muster.flower.transport.connections import Connections, address_block
from muster.flower.transport.proxy_log import Refusal


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


def test_of_too_many_strangers_the_oldest_is_shown_out(monkeypatch):
    monkeypatch.setattr(connections, "MAX_UNAUTHENTICATED_PER_ADDRESS", 2)

    async def act(there, come):
        for port in (1, 2, 3):
            come("192.0.2.1", port)
        for port in (4, 5, 6, 7):
            come(f"192.0.2.{port}", port)

    there, out = visiting(act)
    assert out == [1, 2]  # of its own address, then of all
    assert [port for _, port in there.unauthenticated] == [3, 4, 5, 6, 7]


def test_a_stranger_that_takes_too_long_is_shown_out_and_a_node_is_not(monkeypatch):
    monkeypatch.setattr(connections, "AUTHENTICATION_TIMEOUT", 0.05)

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
    monkeypatch.setattr(connections, "MAX_UNAUTHENTICATED_PER_ADDRESS", 2)
    monkeypatch.setattr(connections, "MAX_PER_KEY", 3)

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
