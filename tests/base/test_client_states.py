"""What clients remember: touched rows only, the state before intact, small or mapped alike."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch

import muster
from helpers import nine_clients, same_bits
from muster.base import client_states
from muster.base.client_states import ClientStates, StateTable
from muster.run.local_clients import LocalClients

START = {"own": {"w": torch.tensor([1.0, 2.0]), "b": torch.tensor(3.0)}}
EVERYONE = np.arange(6)


def row(value, n):
    return {"own": {"w": torch.full((n, 2), float(value)), "b": torch.full((n,), float(value))}}


def values(memory, clients=EVERYONE):
    return memory.get(clients)["own"]["b"].tolist()


@pytest.mark.parametrize("copied", [1, 2**22], ids=["row by row", "at once"])
@pytest.mark.parametrize("mapped", [False, True])
def test_against_a_plain_table(mapped, copied, monkeypatch):
    """Random rounds, compared with a dictionary."""
    monkeypatch.setattr(client_states, "COPIED", copied)
    draw = np.random.default_rng(0)
    table = StateTable(START, 6, mapped_from=0 if mapped else 2**30)
    assert table.mapped is mapped
    memory, plain = ClientStates(table), dict.fromkeys(range(6), 3.0)
    for t in range(30):
        who = draw.choice(6, draw.integers(0, 4), replace=False)
        before = dict(plain)
        following = memory.after(who, row(t, len(who)))
        plain |= dict.fromkeys(who.tolist(), float(t))
        assert values(memory) == [before[k] for k in range(6)]  # the state before stays intact
        assert not len(who) or not memory.rows  # from the table, without a copy of its own
        assert values(following) == [plain[k] for k in range(6)]
        some = draw.permutation(6)[:3]
        assert values(following, some) == [plain[int(k)] for k in some]
        memory = following


def test_what_is_handed_out_may_be_changed():
    memory = ClientStates.create(START, 6).after(np.array([2]), row(7, 1))
    memory.get(EVERYONE)["own"]["w"].fill_(99.0)
    assert memory.get(np.array([0, 2]))["own"]["w"].tolist() == [[1.0, 2.0], [7.0, 7.0]]


def test_saved_and_restored():
    memory = ClientStates.create(START, 6)
    for who, value in (([1, 4], 5), ([4], 6), ([0], 7)):
        memory = memory.after(np.array(who), row(value, len(who)))
    saved = memory.to_tensors()
    assert saved["who"].tolist() == [0, 1, 4]
    again = ClientStates.create(START, 6).restore(saved)
    assert values(again) == values(memory) == [7.0, 5.0, 3.0, 3.0, 6.0, 3.0]


def test_a_large_table_takes_only_what_is_touched():
    """A hundred thousand clients, of which a hundred are touched: 40 GB in name only."""
    start = {"own": {"w": torch.zeros(100_000)}}
    memory = ClientStates.create(start, 100_000)
    assert memory.table.mapped
    who = np.arange(0, 100_000, 1000)
    memory = memory.after(who, {"own": {"w": torch.ones(len(who), 100_000)}})
    memory = memory.after(who[:1], {"own": {"w": torch.full((1, 100_000), 2.0)}})
    assert memory.get(np.array([0, 1, 1000]))["own"]["w"][:, 5].tolist() == [2.0, 0.0, 1.0]


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_what_is_handed_out_is_freed_before_more_is(engine, monkeypatch):
    """Two clients' models are measured at once: these are gone when the next two come."""
    get, lent, seen = ClientStates.get, [], []

    def lend(self, clients):
        assert not any(ref() is not None for ref in lent)
        state = get(self, clients)
        lent[:] = [weakref.ref(t) for t in state["own"].values()]
        seen.append(len(clients))
        return state

    monkeypatch.setattr(ClientStates, "get", lend)
    monkeypatch.setattr(LocalClients, "max_replies", lambda self, model: 2)
    local = muster.Local(steps=2, batch_size=4)
    given = nine_clients(), muster.methods.ditto(m=3), muster.models.MLP((4,)), 3, local
    muster.simulate(*given, engine=engine, processes=1)
    assert seen.count(3) == 3
    assert seen.count(2) >= 4


@pytest.mark.parametrize("method", ["scaffold", "ditto", "pfedme", "local"])
def test_runs_are_the_same_with_mapped_memories(method, monkeypatch):
    def go():
        return muster.simulate(
            nine_clients(), muster.methods.METHODS[method](), muster.models.MLP((4,)), 4,
            muster.Local(steps=2, batch_size=4),
        )  # fmt: skip

    plain = go()
    monkeypatch.setattr(StateTable.__init__, "__defaults__", (0,))
    assert same_bits(plain, go())
    assert client_states.MAPPED_FROM == 2**30
