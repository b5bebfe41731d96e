"""Federations that protect rows: nodes send released numbers alone, and count them themselves."""

from __future__ import annotations

import numpy as np
import pytest

from flower_grid import LocalGrid
from muster.engines.row_release import RowRelease
from muster.flower.client.client_state import NOTES
from muster.flower.server.messenger import Messenger

NETWORK = {"enrolment_timeout": 0.2, "timeout": 0.3, "quorum": 0.0}
ALIGN = {"name": "fedalign", "epsilon": 9.0, "warmup": 0}


def protected(setup, tmp_path, method, batches="poisson", noise=1.0, **settings):
    privacy = {"clip": 0.5, "noise": noise, "unit": "rows"}
    local = {"steps": 3, "batch_size": 8, "lr": 0.2, "batches": batches}
    case = setup(method, privacy=privacy, network=NETWORK, local=local, **settings)
    for k, node in enumerate(case.nodes):
        node.config["memory-path"] = str(tmp_path / f"memory{k}")
    return case


class Reading(LocalGrid):
    """A grid that keeps every reply."""

    seen: list

    def deliver(self, message, site):
        reply = super().deliver(message, site)
        self.seen.append((message.metadata.message_type, reply))
        return reply


@pytest.mark.parametrize("method", [ALIGN, "scaffold"])
def test_with_negligible_noise_it_is_the_simulation(setup, tmp_path, method):
    case = protected(setup, tmp_path, method, "shuffled", noise=1e-9)
    real, simulated = case.run(), case.simulate()
    for name, w in simulated.weights.items():
        np.testing.assert_allclose(real.weights[name], w, atol=1e-6)
    account = ["row_noise", "row_epsilon"]
    assert real.final.select(account).equals(simulated.final.select(account))


def test_the_server_sees_models_and_released_losses_and_nothing_else(setup, tmp_path):
    Reading.seen = []
    case = protected(setup, tmp_path, ALIGN)
    run = case.run(case.grid(grid=Reading))
    kinds = set()
    for kind, message in Reading.seen:
        if not message.has_content() or "word" not in message.content.config_records:
            continue
        said = set(message.content.config_records["word"])
        if kind.startswith("evaluate"):
            kinds.add(kind)
            assert said == {"round", "client", "rows", "stays", "loss", "nonce"}
        elif kind.startswith("train"):
            kinds.add(kind)
            known = {"round", "client", "rows", "joined", "reason", "nonce", "steps", "loss"}
            assert said <= known
    assert len(kinds) == 2
    assert run.rounds["joined"].sum() > 0
    assert run.final["test_accuracy"].null_count() == len(run.final)


def test_a_method_without_losses_releases_none(setup, tmp_path):
    case = protected(setup, tmp_path, "fedavg")
    run = case.run()
    for node in case.nodes:
        notes = node.state.config_records[NOTES]
        assert (notes["given"], notes.get("losses", 0)) == (3, 0)
    assert run.final["train_loss"].null_count() == len(run.final)


def test_a_node_releases_one_loss_of_a_model_and_no_more_than_its_account_has(setup, tmp_path):
    case = protected(setup, tmp_path, ALIGN)
    case.run()
    for node in case.nodes:
        notes = node.state.config_records[NOTES]
        assert (notes["given"], notes["losses"]) == (3, 4)
        node.state.clear()  # the node was restarted, and remembers from its disk
    again = case.run(name="again")  # a server that starts from the beginning
    assert again.rounds["joined"].to_list() == [0] * 3
    for node in case.nodes:
        notes = node.state.config_records[NOTES]
        assert (notes["given"], notes["losses"]) == (3, 4)


def test_a_server_that_asks_for_more_steps_gets_none_of_them(setup, tmp_path, monkeypatch):
    ask, average, released = Messenger.build_role, RowRelease.average, []

    def greedy(self, k, steps=-1, *counted, **rest):
        return ask(self, k, 50, *counted, **rest)

    def count(self, *given):
        released.append(1)
        return average(self, *given)

    case = protected(setup, tmp_path, "fedavg")
    monkeypatch.setattr(Messenger, "build_role", greedy)
    monkeypatch.setattr(RowRelease, "average", count)
    case.run()
    assert len(released) == 5 * 3 * 3, "clients, rounds, steps"


def test_a_node_without_a_place_to_count_in_releases_nothing(setup, tmp_path):
    case = protected(setup, tmp_path, "fedavg")
    del case.nodes[4].config["memory-path"]
    run = case.run()
    assert run.rounds["joined"].to_list() == [4, 4, 4]
