"""A server knows its clients and holds no rows; a client is one, whatever its number."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import muster
from flower_setup import Setup
from muster.engines import choose
from muster.federation import Federation, Population
from muster.flower import client, remote
from muster.flower.node import seated
from muster.flower.wire import Seat
from muster.models import as_module
from muster.params import DTYPES, of_module, trainable
from muster.parts import SGD
from muster.protocol import Offer

NUMBER = 1_000_000


def own(fed, k):
    """Client k's rows as its node reads them."""
    return Federation.from_arrays(train=[fed.train.client(k)], classes=fed.classes)


def trained(fed, place, ids=None):
    """One client's model after a round of local work."""
    module = as_module(muster.models.MLP((4,)), fed, 0)
    local = muster.Local(steps=6, batch_size=5, lr=0.1)
    engine = choose("stacked", module, fed, local, DTYPES["float64"])
    start = of_module(module, DTYPES["float64"], engine.device)
    offer = Offer(0, 3, 10, start, lr=0.1, trainable=trainable(module))
    work, _ = engine.train(SGD(), offer, np.array([place]), {})
    return work.models


def test_a_client_trains_alike_alone_and_among_others():
    """Its batches are drawn by its number, not by its place among the rows at hand."""
    fed = muster.data.digits(clients=5, priority=2)
    for k in (0, 3):
        alone = trained(seated(own(fed, k), Seat(k, k < 2, float(k < 2))), 0)
        among = trained(fed, k)
        assert all(np.array_equal(alone[n].numpy(), among[n].numpy()) for n in among)
    other = trained(seated(own(fed, 3), Seat(4, False, 0.0)), 0)
    assert not np.array_equal(other["1.weight"].numpy(), among["1.weight"].numpy())


def test_client_number_a_million_costs_what_client_number_one_does():
    fed = own(muster.data.digits(clients=5, priority=2), 0)
    tracemalloc.start()
    here = seated(fed, Seat(NUMBER, False, 0.0))
    assert here.n == 1
    assert here.population.ids.tolist() == [NUMBER]
    trained(here, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6


def test_the_server_holds_no_rows(tmp_path, monkeypatch):
    case = Setup(tmp_path)
    seen = []
    real = remote.Remote.__post_init__

    def look(self):
        seen.append(self)
        real(self)

    monkeypatch.setattr(remote.Remote, "__post_init__", look)
    case.run()
    (server,) = seen
    assert isinstance(server.population, Population)
    assert server.population.sizes.tolist() == case.fed.train.sizes.tolist()
    held = [v for v in vars(server).values() if isinstance(v, Federation)]
    assert held == []


@pytest.mark.parametrize("other", ["0.0.1", "9.9"])
def test_another_version_at_a_client_is_noticed(tmp_path, monkeypatch, other):
    case = Setup(tmp_path, rounds=1)
    same = case.run(name="same")
    assert not any("version" in line for line in case.said)
    assert not any("runs muster" in move for move in same.moves["move"])
    monkeypatch.setattr(client, "__version__", other)
    run = case.run(name="other")
    assert any(
        f"client0 runs muster {other}, the server {muster.__version__}" in s for s in case.said
    )
    assert any(f"runs muster {other}" in move for move in run.moves["move"])
