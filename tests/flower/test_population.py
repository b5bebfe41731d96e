"""A server knows its clients and holds no rows; a client is one, whatever its number."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from flwr.app import ConfigRecord

import muster
from flower_parity import assert_same
from flower_setup import Setup
from muster.base.params import get_dtype, get_params, trainable_names
from muster.config.network import Member, order_members
from muster.engines import choose
from muster.engines.compute import Compute
from muster.federation import Federation, Population
from muster.flower.client import app
from muster.flower.client.node import assign_role
from muster.flower.server import messenger
from muster.flower.transport.wire import REPORT, ClientRole
from muster.models.specs import as_module
from muster.parts import SGD, PowerOfChoice
from muster.protocol import Offer

NUMBER = 1_000_000


def own(fed, k):
    """Client k's rows as its node reads them."""
    return Federation.from_arrays(train=[fed.train.client(k)], classes=fed.classes)


def trained(fed, place, ids=None):
    """One client's model after a round of local work."""
    module = as_module(muster.models.MLP((4,)), fed, 0)
    local = muster.Local(steps=6, batch_size=5, lr=0.1)
    engine = choose(Compute("stacked", dtype="float64"), module, fed, local)
    start = get_params(module, get_dtype("float64"), engine.device)
    offer = Offer(0, 3, 10, start, lr=0.1, trainable=trainable_names(module))
    work, _ = engine.train(SGD(), offer, np.array([place]), {})
    return work.models


def test_a_client_trains_the_same_alone_and_among_others():
    """Its batches are drawn by its number, not by its place among the rows at hand."""
    fed = muster.data.digits(clients=5, priority=2)
    for k in (0, 3):
        alone = trained(assign_role(own(fed, k), ClientRole(k, k < 2, float(k < 2))), 0)
        among = trained(fed, k)
        assert all(np.array_equal(alone[n].numpy(), among[n].numpy()) for n in among)
    other = trained(assign_role(own(fed, 3), ClientRole(4, False, 0.0)), 0)
    assert not np.array_equal(other["1.weight"].numpy(), among["1.weight"].numpy())


def test_client_number_a_million_costs_what_client_number_one_does():
    fed = own(muster.data.digits(clients=5, priority=2), 0)
    tracemalloc.start()
    here = assign_role(fed, ClientRole(NUMBER, False, 0.0))
    assert here.n == 1
    assert here.population.ids.tolist() == [NUMBER]
    trained(here, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6


def test_the_server_holds_no_rows(tmp_path, monkeypatch):
    case = Setup(tmp_path)
    seen = []
    real = messenger.Messenger.__post_init__

    def look(self):
        seen.append(self)
        real(self)

    monkeypatch.setattr(messenger.Messenger, "__post_init__", look)
    case.run()
    (server,) = seen
    assert isinstance(server.population, Population)
    assert server.population.sizes.tolist() == case.fed.train.sizes.tolist()
    held = [v for v in vars(server).values() if isinstance(v, Federation)]
    assert held == []


def states(rows):
    """A client that states another number of rows, in all it says."""

    def tamper(message, reply):
        said = {**reply.content.config_records[REPORT], "rows": rows}
        reply.content[REPORT] = ConfigRecord(said)
        return reply

    return tamper


LIAR = 3  # outside the objective


def weights_of(run, k):
    return run.clients.filter(pl.col("client") == k)["weight"].to_list()


@pytest.mark.parametrize("method", ["fedavg", "fedalign"])
def test_rows_that_a_client_states_count_up_to_a_share_of_the_priority_clients(tmp_path, method):
    """rows = 100,000,000 at hello once gave its sender a weight of .99999."""
    chosen = {"name": method} if method == "fedavg" else {"name": method, "epsilon": 9.0}
    case = Setup(tmp_path, chosen, rounds=2, evaluate_every=0)
    case.declared = False
    case.nodes[LIAR].tamper = states(100_000_000)
    run = case.run()
    priority = int(case.fed.sizes[case.fed.priority].sum())
    (said,) = run.moves["move"].to_list()
    assert said == (
        f"counts for {priority} rows, not the 100000000 it states (network.max_share 1)"
    )
    assert f"client{LIAR} {said}" in case.said
    counted = np.where(np.arange(5) == LIAR, priority, case.fed.sizes)
    np.testing.assert_allclose(weights_of(run, LIAR), priority / counted.sum())
    assert max(weights_of(run, LIAR)) < 0.5
    case.network = replace(case.network, max_share=0.25)
    run = case.run(name="less")
    assert max(weights_of(run, LIAR)) < 0.2


def test_declared_rows_count_whatever_is_stated(tmp_path):
    case = Setup(tmp_path, "fedavg", rounds=1, evaluate_every=0)
    honest = case.run(name="honest")
    case.nodes[LIAR].tamper = states(100_000_000)
    case.nodes[0].tamper = states(1)  # a priority client's are declared too
    run = case.run()
    np.testing.assert_allclose(run.clients["weight"], honest.clients["weight"])
    assert run.clients["admitted"].all()
    assert sorted(run.moves["client"]) == [0, LIAR]
    rows = case.fed.sizes.tolist()
    assert set(run.moves["move"]) == {
        f"counts for {rows[0]} rows, not the 1 it states (declared)",
        f"counts for {rows[LIAR]} rows, not the 100000000 it states (declared)",
    }


def test_invitations_by_size_use_the_rows_that_count():
    fed = muster.data.digits(clients=5, priority=2)
    counted = replace(fed, counted=np.array([1, 10**12, 1, 1, 1])).population
    drawn = [
        PowerOfChoice(1, 1)(counted, np.arange(5), 0, t, lambda who: np.zeros(len(who))).clients[0]
        for t in range(20)
    ]
    assert set(drawn) == {1}


@pytest.mark.parametrize("method", ["fedavg", "fedalign"])
def test_the_simulator_counts_the_same_rows_from_the_same_configuration(tmp_path, method):
    chosen = {"name": method, "epsilon": 9.0} if method == "fedalign" else {"name": method}
    case = Setup(tmp_path, chosen, rounds=2, evaluate_every=0)
    case.declared = False
    case.network = replace(case.network, max_share=0.2)
    here = case.experiment()
    fed = here.federation(0)
    assert (fed.population.rows < fed.sizes).tolist() == [False, False, True, True, True]
    assert fed.note == "3 clients count for other numbers of rows than they hold"
    assert_same(case.run(), case.simulate(fed))
    plain = case.simulate()
    assert not np.allclose(plain.weights["1.weight"], case.simulate(fed).weights["1.weight"])
    assert fed.fingerprint() != case.fed.fingerprint()


def test_a_liars_rows_are_not_what_others_work_is_measured_by(tmp_path):
    """MW-Fed shares out the work of all: with the epochs of 100,000,000 rows nobody would end."""
    epochs = {"epochs": 1, "batch_size": 16, "lr": 0.2}
    case = Setup(tmp_path, "mwfed", rounds=1, local=epochs, requirement=2.0, evaluate_every=0)
    case.declared = False
    case.nodes[LIAR].tamper = states(100_000_000)
    run = case.run()
    assert run.clients["steps"].max() < 100


def test_clients_are_found_in_the_data_by_name():
    fed = muster.data.digits(clients=3, priority=1)
    members = [Member(name, "ecdsa-", name == "b", rows=n) for n, name in enumerate("cab", 1)]
    assert [m.rows for m in order_members(members, fed)] == [1, 2, 3]
    named = replace(fed, names=np.array(["a", "b", "c"]))
    assert [m.rows for m in order_members(members, named)] == [2, 3, 1]
    for other in (replace(fed, names=np.array(["a", "b", "x"])), muster.data.digits(clients=4)):
        with pytest.raises(muster.MusterError, match="clients: 3 are listed and the data has"):
            order_members(members, other)


@pytest.mark.parametrize("other", ["0.0.1", "9.9"])
def test_another_version_at_a_client_is_noticed(tmp_path, monkeypatch, other):
    case = Setup(tmp_path, rounds=1)
    same = case.run(name="same")
    assert not any("version" in line for line in case.said)
    assert not any("runs muster" in move for move in same.moves["move"])
    monkeypatch.setattr(app, "__version__", other)
    run = case.run(name="other")
    assert any(
        f"client0 runs muster {other}, the server {muster.__version__}" in s for s in case.said
    )
    assert any(f"runs muster {other}" in move for move in run.moves["move"])
