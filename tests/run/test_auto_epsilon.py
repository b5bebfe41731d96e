"""epsilon = "auto": the folds, the candidates and the choice, in every way a run is started."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest

import muster
from muster.cli.main import main
from muster.config.experiment import load, load_table
from muster.flower.terms import check_federated
from muster.methods import fedalign, fedavg
from muster.report.tables import epsilon_notes
from muster.run.auto_epsilon import build_fold, find_candidates, find_gaps, pool_losses
from softmax_clients import clients_of

LOCAL = muster.Local(steps=5, batch_size=8, lr=0.2)
TABLE = {"data": {"name": "digits", "clients": 5, "priority": 2}, "rounds": 3}


def simulate(fed, method, rounds=4, **more):
    return muster.simulate(fed, method, muster.models.Softmax(), rounds, LOCAL, **more)


@pytest.fixture(scope="module")
def alike():
    return clients_of(1, (12, 60, 60, 60), (0,))


@pytest.fixture(scope="module")
def permuted(alike):
    draw = np.random.default_rng(3)
    pairs = [alike.train.client(k) for k in range(4)]
    pairs[1:] = [(x, draw.permutation(np.asarray(y))) for x, y in pairs[1:]]
    return muster.Federation.from_arrays(train=pairs, priority=[0])


def test_helpers_with_the_same_data_are_admitted(alike):
    run = simulate(alike, fedalign("auto", warmup=0))
    assert run.facts["epsilon"] > 0
    assert run.rounds["admitted_nonpriority"].mean() > 1
    assert run.rounds["eps"].to_list() == [run.facts["epsilon"]] * 4
    tried = run.facts["epsilon_tried"]
    assert tried["epsilon"][0] == 0
    assert tried["epsilon"][-1] == np.inf
    assert min(tried["loss"]) == tried["loss"][tried["epsilon"].index(run.facts["epsilon"])]


def test_helpers_with_permuted_labels_are_not(permuted):
    run = simulate(permuted, fedalign("auto", warmup=2))
    everyone = simulate(permuted, fedavg())
    assert run.rounds["admitted_nonpriority"].sum() == 0
    assert run.facts["epsilon"] < np.inf
    assert run.rounds["loss"][-1] < everyone.rounds["loss"][-1]


def test_the_run_is_that_of_the_chosen_number(alike):
    run = simulate(alike, fedalign("auto", criterion="accuracy"), rounds=4)
    given = simulate(alike, fedalign(run.facts["epsilon"], criterion="accuracy"), rounds=4)
    for name, t in run.weights.items():
        assert (given.weights[name] == t).all()
    assert 0 in run.facts["epsilon_tried"]["epsilon"]


def test_folds_hold_each_row_of_the_objective_once():
    fed = clients_of(sizes=(13, 4, 40), priority=(0, 1))
    held = []
    for f in range(1, 5):
        part = build_fold(fed, f, seed=0)
        mine = part.test.lists(np.array([0])).rows
        rest = part.train.lists(np.array([0])).rows
        assert sorted([*mine, *rest]) == list(range(13))
        assert part.test.sizes.tolist()[1:] == [0, 0]  # too few rows for folds, and a helper
        assert part.train.sizes.tolist()[1:] == [4, 40]
        assert part.population.share.tolist() == fed.population.share.tolist()
        held += mine.tolist()
    assert sorted(held) == list(range(13))


def test_gaps_are_those_of_the_ledger(alike):
    run = simulate(alike, fedalign(np.inf, warmup=2), rounds=5)
    expected = []
    for row in run.clients.iter_rows(named=True):
        if not row["priority"]:
            expected.append(abs(row["loss"] - run.rounds["reference_loss"][row["round"] - 1]))
    assert len(expected) == 9
    assert find_gaps(run, alike.objective, "loss") == pytest.approx(expected)


def test_candidates_are_quantiles():
    gaps = np.arange(101) / 100
    assert find_candidates(gaps) == pytest.approx([0.25, 0.5, 0.75])
    assert find_candidates(np.zeros(3)) == []
    assert find_candidates(np.empty(0)) == []


def test_losses_are_pooled_by_rows_then_by_weight():
    """Two folds, three clients: one without rows, and a candidate that diverged."""
    losses = np.full((3, 2, 3), np.nan)
    losses[0, :, :2] = [[1.0, 4.0], [2.0, 6.0]]
    losses[1, :, :2] = [[1.0, 1.0], [1.0, np.inf]]
    losses[2, :, :2] = [[0.5, 0.5], [0.5, 0.5]]
    sizes = np.array([[3, 1, 0], [1, 1, 0]])
    weight = np.array([0.25, 0.75, 0.0])
    first = 0.25 * (3 * 1 + 1 * 2) / 4 + 0.75 * (4 + 6) / 2
    assert pool_losses(losses, sizes, weight) == pytest.approx([first, np.inf, 0.5])


def test_a_comparison_chooses_for_each_seed(alike):
    both = muster.compare(
        alike, [fedalign("auto"), fedavg()], muster.models.Softmax(), 2, LOCAL, seeds=2
    )
    assert all("epsilon" in run.facts for run in both["fedalign"])
    assert not any("epsilon" in run.facts for run in both["fedavg"])
    (note,) = epsilon_notes(both.runs)
    assert note.startswith("fedalign: epsilon ")


def test_from_a_file_and_a_flag(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.toml").write_text(
        'rounds = 2\n[data]\nname = "digits"\nclients = 4\npriority = 2\n'
        '[method]\nname = "fedalign"\nepsilon = "auto"\n'
    )
    assert load(load_table("my.toml")).job.method.epsilon == "auto"
    flags = ["--data", "digits", "--data.clients", "4", "--data.priority", "2", "--name", "my"]
    assert main(["run", *flags, "--rounds", "2", "--method.epsilon", "auto"]) == 0
    found = muster.load(tmp_path / "runs" / "my")
    assert found.config["methods"][0]["epsilon"] == found.facts["epsilon"]
    kept = tomllib.loads((tmp_path / "runs" / "my" / "config.toml").read_text())
    assert kept["methods"][0]["epsilon"] == "auto"
    assert "chosen by 4-fold cross-validation" in capsys.readouterr().out


REFUSED = {
    "'auto' divides priority clients' rows into 4 folds": {
        "fed": clients_of(sizes=(4, 40), priority=(0,))
    },
    "nothing in 'x' uses an epsilon": {"method": muster.Method("x", epsilon="auto")},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_chosen_is_refused(alike, message):
    settings = {"fed": alike, "method": fedalign("auto"), **REFUSED[message]}
    with pytest.raises(muster.MusterError, match=message):
        simulate(**settings)


def test_held_out_decisions_and_other_words_are_refused(alike):
    fed = muster.data.digits(clients=4, priority=2)
    with pytest.raises(muster.MusterError, match="decide_on is 'held_out'"):
        simulate(fed, fedalign("auto"), decide_on="held_out")
    for make in (fedalign, lambda word: muster.Method("x", epsilon=word)):
        with pytest.raises(muster.MusterError, match="epsilon: 'best'; give a number"):
            make("best")


def test_a_real_federation_refuses_it():
    chosen = load({**TABLE, "method": {"name": "fedalign", "epsilon": "auto"}})
    with pytest.raises(muster.MusterError, match=r"use --method assist.*muster tune"):
        check_federated(chosen)


def test_interrupted_while_choosing_there_is_no_run(alike, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("muster.run.training_loop.play_round", stop)
    with pytest.raises(KeyboardInterrupt) as error:
        simulate(alike, fedalign("auto"))
    assert type(error.value) is KeyboardInterrupt
