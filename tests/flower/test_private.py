"""Private federations: the sums, the account and the nodes' own counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict

import muster
from flower_grid import LocalGrid
from muster.flower.client import node as client_node
from muster.flower.client.client_state import NOTES
from muster.flower.terms import shared_terms
from muster.flower.transport.wire import MODEL, pack
from muster.privacy.noise import seeded_words
from muster.results.privacy_statement import state_privacy
from muster.run import private_round

NETWORK = {"enrolment_timeout": 0.2, "timeout": 0.3, "quorum": 0.0, "classes": 10}


def private(setup, tmp_path, method="fedalign", privacy=None, **settings):
    table = {"clip": 0.4, "noise": 0.2, **(privacy or {})}
    case = setup(method, privacy=table, network=NETWORK, evaluate_every=0, **settings)
    for k, node in enumerate(case.nodes):
        node.config["memory-path"] = str(tmp_path / f"memory{k}")
    return case


def repeat_noise(monkeypatch):
    """Let every run draw the same noise from now on."""
    words = seeded_words(7, 0)
    monkeypatch.setattr(private_round, "system_words", lambda n: words(n))


@pytest.mark.parametrize(
    ("method", "privacy", "settings"),
    [
        ({"name": "fedalign", "epsilon": 0.6, "warmup": 1}, {}, {"rounds": 4}),
        ({"name": "fedalign", "epsilon": 0.6, "warmup": 1}, {"protect": "others"}, {}),
        ({"name": "fedavg"}, {"joins": 2, "cap": 300}, {"rounds": 4}),
        ({"name": "ditto"}, {}, {}),
        (
            {"name": "maxfl"},
            {},
            {
                "requirement": {"steps": 3},
                "participation": {"kind": "flexible", "from_round": 1},
            },
        ),
    ],
    ids=["folded", "exact", "budget", "ditto", "maxfl"],
)
def test_a_private_federation_is_its_simulation_where_noise_is_the_same(
    setup, tmp_path, monkeypatch, method, privacy, settings
):
    case = private(setup, tmp_path, method, privacy, **settings)
    repeat_noise(monkeypatch)
    real = case.run()
    repeat_noise(monkeypatch)
    simulated = case.simulate(case.experiment().federation(0))
    for name, w in simulated.weights.items():
        np.testing.assert_array_equal(real.weights[name], w)  # sums of whole numbers: to the bit
    columns = ["round", "client", "priority", "joined"]
    assert real.clients.select(columns).equals(simulated.clients.select(columns))
    released = ["round", "eps", "reference_loss", "releases", "epsilon_others"]
    assert real.rounds.select(released).equals(simulated.rounds.select(released))
    assert real.rounds["joined"].sum() > 0
    assert state_privacy(real.facts).startswith("private: epsilon ")
    assert any("privacy of whole clients among 5" in text for text in real.warnings)


def test_a_node_sends_whole_numbers_and_no_loss(setup, tmp_path):
    seen = []

    class Reading(LocalGrid):
        def deliver(self, message, site):
            reply = super().deliver(message, site)
            seen.append(reply)
            return reply

    case = private(setup, tmp_path, {"name": "fedalign", "epsilon": 9.0, "warmup": 0})
    case.run(case.grid(grid=Reading))
    trained = [m for m in seen if m.has_content() and MODEL in m.content]
    assert trained
    for message in trained:
        (array,) = message.content.array_records[MODEL].values()
        assert array.dtype == "uint32"
        report = message.content.config_records["word"]
        assert set(report) == {"round", "client", "rows", "joined", "reason", "nonce"}
        assert report["reason"] == ""


def test_a_node_counts_its_own_contributions_and_stops_at_its_budget(setup, tmp_path):
    case = private(setup, tmp_path, "fedavg", {"joins": 2}, rounds=4)
    case.run()
    for node in case.nodes:
        assert node.state.config_records[NOTES]["given"] == 2
    # A server that starts from the beginning, as if nothing had been released, gets nothing more.
    for node in case.nodes:
        node.state.clear()  # the node was restarted, and remembers from its disk
    again = case.run(name="again")
    assert again.rounds["joined"].to_list() == [0] * 4


def test_the_count_is_of_the_agreed_terms_whatever_else_a_server_says(setup, tmp_path):
    """Another run in between, another number for the client, another seed: nothing is forgotten."""
    case = private(setup, tmp_path, "fedavg", {"joins": 2}, rounds=3)
    case.run()
    other = replace(case.chosen, settings=replace(case.chosen.settings, rounds=4))
    first, case.chosen = case.chosen, other
    assert case.run(name="other").rounds["joined"].sum() > 0
    case.chosen = first
    assert case.run(name="again").rounds["joined"].to_list() == [0] * 3

    class Says(LocalGrid):
        def deliver(self, message, site):
            offer = message.content.config_records["offer"]
            for name, value in self.values.items():
                offer[name] = value
            return super().deliver(message, site)

    for values, reason in (({"client": 77}, "another client"), ({"seed": 9}, "raised an error")):
        Says.values = values
        run = case.run(case.grid(grid=Says), name=f"with {reason}")
        assert run.rounds["joined"].to_list() == [0] * 3
        assert reason in run.clients["reason"][0]


def test_a_node_without_a_place_to_count_in_contributes_nothing(setup, tmp_path):
    case = private(setup, tmp_path, "fedavg")
    del case.nodes[4].config["memory-path"]
    run = case.run()
    assert run.clients.filter(pl.col("client") == 4)["joined"].any() is False
    assert run.rounds["joined"].to_list() == [4, 4, 4]


def test_a_contribution_longer_than_the_clip_adds_nothing(setup, tmp_path, monkeypatch):
    case = private(setup, tmp_path, "fedavg")
    real = client_node.Node.contribute

    def lie(self, offer, role, state):
        report, given = real(self, offer, role, state)
        if role.client == 1 and given is not None:
            given = {name: torch.full_like(t, 2**28) for name, t in given.items()}
        return report, given

    monkeypatch.setattr(client_node.Node, "contribute", lie)
    run = case.run()
    liar = run.clients.filter(pl.col("client") == 1)
    assert set(liar["reason"]) == {"malformed: longer than the clip"}
    assert run.rounds["joined"].to_list() == [4, 4, 4]
    assert pack({"x": torch.zeros(1, dtype=torch.uint32)})["x"].dtype == "uint32"


class Crash(Exception):
    """The end of the server."""


def test_a_server_that_dies_after_the_charge_counts_both_releases(setup, tmp_path, monkeypatch):
    case = private(setup, tmp_path, "fedavg", {"noise": 1.0}, rounds=3)
    real = private_round.release

    def die(job, offer, total, folded):
        if offer.round == 1:
            raise Crash
        return real(job, offer, total, folded)

    with monkeypatch.context() as patch:
        patch.setattr(private_round, "release", die)
        with pytest.raises(Crash):
            case.run()
    run = case.run()
    assert run.rounds["releases"].to_list() == [1, 3]
    assert run.facts["privacy"]["releases"] == 3
    given = [node.state.config_records[NOTES]["given"] for node in case.nodes]
    assert given == [3] * 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"network": {"quorum": 0.5, "classes": 10}},
            r"network.quorum = 0.5 cannot be private.*quorum = 0",
        ),
        ({"privacy": {"clip": 1.0, "noise": 1.0, "seeded": True}}, r"privacy.seeded: it is for"),
    ],
)
def test_what_would_show_more_than_sums_is_refused_before_the_run(setup, change, message):
    usual = {"privacy": {"clip": 1.0, "noise": 1.0}, "network": NETWORK}
    case = setup("fedavg", **{**usual, **change})
    case.network = case.chosen.network
    with pytest.raises(muster.MusterError, match=message):
        case.run()


def test_a_survey_of_columns_is_refused(setup):
    case = setup("fedavg", privacy={"clip": 1.0, "noise": 1.0}, network=NETWORK)
    case.network = replace(case.chosen.network, scale="pooled")
    with pytest.raises(muster.MusterError, match=r"a survey of columns.*cannot be private"):
        case.run()


def test_classes_that_nobody_stated_are_refused(setup):
    case = setup("fedavg", privacy={"clip": 1.0, "noise": 1.0}, network=NETWORK)
    case.network = replace(case.chosen.network, classes=0)
    with pytest.raises(muster.MusterError, match=r"number of classes.*give network\.classes"):
        case.run()


@pytest.mark.parametrize(
    ("kind", "terms"),
    [
        ("query.survey", {"scale": "pooled"}),
        ("query.advice", {"advice": 2}),
        ("query.hello", {"classes": 0}),
    ],
)
def test_a_node_refuses_terms_that_would_release_more(setup, kind, terms):
    """Whatever its owner agreed to, and whoever wrote them."""
    case = setup("fedavg", privacy={"clip": 1.0, "noise": 1.0}, network=NETWORK)
    chosen = case.experiment()
    text = shared_terms(replace(chosen, network=replace(chosen.network, **terms)))
    offer = ConfigRecord({"experiment": text, "seed": 0, "nonce": b"n", "labels": ["alone"]})
    grid = case.grid()
    reply = grid.deliver(Message(RecordDict({"offer": offer}), 100, kind), grid.nodes[100])
    assert reply.has_error()
    assert "cannot be private" in reply.error.reason


def test_weights_by_rows_need_declared_rows(setup):
    case = setup("fedavg", privacy={"clip": 1.0, "noise": 1.0, "cap": 10}, network=NETWORK)
    case.declared = False
    with pytest.raises(muster.MusterError, match=r"privacy.cap: 10.*declare clients.rows"):
        case.run()
