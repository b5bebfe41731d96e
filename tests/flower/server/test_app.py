"""What a federated run leaves: names, classes by name, a model that can be asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import muster
from flower_parity import assert_same
from muster.flower.local.loopback import write_client
from muster.results import store

CALLED = np.array(["north", "south", "east", "west", "[hill]"])
LABELS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@pytest.fixture
def named(setup):
    """A federation whose clients and classes have names, in the data and on the network."""
    case = setup({"name": "fedalign", "epsilon": 0.4})
    case.fed = replace(case.fed, names=CALLED, labels=LABELS)
    case.network = replace(case.network, classes=LABELS)
    for k in range(case.fed.n):
        write_client(case.fed, k, case.folder / f"{k}.npz", LABELS)
    return case


def test_names_are_those_of_the_simulation(named):
    real, simulated = named.run(), named.simulate()
    assert_same(real, simulated)
    back = store.load(named.folder / "run")
    for run in (real, simulated, back):
        assert run.labels == LABELS
        for table in (run.final, run.clients):
            assert table["name"].to_list() == CALLED[table["client"].to_numpy()].tolist()
    assert real.clients["name"].to_list() == simulated.clients["name"].to_list()


def test_strangers_have_no_name(named):
    members = named.experiment().members
    whole = named.experiment
    named.experiment = lambda: replace(whole(), members=members[:4])
    moves = named.run().moves
    assert moves.filter(moves["client"] == -1)["name"].to_list() == [None]


def test_the_model_predicts_once_its_scale_is_given(named, tmp_path):
    run = named.run()
    x, _ = named.fed.train.client(0)
    for ask in (run, store.load(named.folder / "run")):
        with pytest.raises(muster.MusterError, match="clients scale their own rows"):
            ask.predict(x.numpy())
        plain = ask.predict(x.numpy(), scale="none")
        assert plain.equals(named.simulate().predict(x.numpy())) or np.allclose(
            plain["p_three"], named.simulate().predict(x.numpy())["p_three"], atol=1e-9
        )
        columns = [f"x{i}" for i in range(64)]
        told = ["[mean]", *(f"{c} = 0.5" for c in columns), "[std]", *(f"{c} = 2" for c in columns)]
        (tmp_path / "agreed.toml").write_text("\n".join(told))
        scaled = ask.predict(x.numpy() * 2 + 0.5, scale=tmp_path / "agreed.toml")
        np.testing.assert_allclose(scaled["p_three"], plain["p_three"], atol=1e-6)
        with pytest.raises(muster.MusterError, match="they stay with the clients"):
            ask.model(client="north")
        (tmp_path / "empty.toml").write_text("")
        with pytest.raises(muster.MusterError, match=r"has no \[mean\] and \[std\]"):
            ask.predict(x.numpy(), scale=tmp_path / "empty.toml")


@pytest.mark.slow
def test_a_cnn_on_flat_images_is_the_same_over_a_network(setup):
    case = setup("fedavg", model={"name": "cnn"}, rounds=1, local={"steps": 1, "lr": 0.05})
    case.network = replace(case.network, image=case.fed.image, timeout=60.0)
    assert_same(case.run(), case.simulate())


def test_roles_of_the_data_name_the_members(setup):
    case = setup()
    assert [m.name for m in case.experiment().members] == [f"client{k}" for k in range(5)]
    case.fed = replace(case.fed, names=CALLED)
    assert [m.name for m in case.experiment().members] == CALLED.tolist()
    case.fed = replace(case.fed, names=np.array(["a/b", "b", "c", "d", "e"]))
    assert case.experiment().members[0].name == "client0", "no folder can be called that"


def test_a_simulation_of_listed_clients_calls_them_as_they_are_listed(setup):
    chosen = setup().experiment()
    assert chosen.federation(0).names.tolist() == [f"client{k}" for k in range(5)]


@pytest.mark.parametrize("method", ["fedalign", "fedavg"])
def test_a_federation_of_priority_clients_alone_warns_as_its_simulation_does(setup, method):
    case = setup(method, rounds=2)
    case.fed = replace(case.fed, priority=np.ones(5, np.bool_), importance=np.ones(5))
    real, simulated = ([w for w in run.warnings if "every client is priority" in w]
                       for run in (case.run(), case.simulate()))  # fmt: skip
    assert len(real) == len(simulated) == (method == "fedalign")
    for one, other in zip(real, simulated, strict=True):
        assert one.partition("model it is: ")[0] == other.partition("model it is: ")[0]
        assert one.endswith("priority of [[clients]], or data.priority with --local")


def test_a_federation_with_others_that_only_warms_up_says_so(setup):
    case = setup({"name": "fedalign", "warmup": 1.0}, rounds=2)
    (warning,) = [w for w in case.run().warnings if "warm-up" in w]
    assert warning in case.simulate().warnings
