"""The table of measures: one entry is all a measure needs."""

from __future__ import annotations

import numpy as np
import pytest

import muster
import reference
from helpers import federation, layers_of, module_of, random_layers
from muster.local import Local
from muster.protocol import Appraisal, Evaluation
from muster.report.intervals import choose_measures
from muster.results import measures
from muster.results.measures import (
    MEASURES,
    Measure,
    compute_measures,
    find_measures,
    over_clients,
    register,
)


@pytest.fixture
def table():
    """The table as it is, put back after the test."""
    known = dict(MEASURES)
    yield
    measures._known.clear()
    measures._known.update(known)


@pytest.fixture(scope="module")
def fed():
    data, priority = reference.problem(0, clients=6)
    return federation(data, priority, unseen=[5], requirement=np.full(6, 1.0))


def view_of(n=6):
    draw = np.random.default_rng(0)
    one = Appraisal(draw.random(n), draw.random(n))
    return Evaluation(one, one, np.ones(n), meets=(one.loss < 0.5).astype(float))


def test_measures_against_numpy():
    data, priority = reference.problem(7)
    test, _ = reference.problem(8)
    rho = np.linspace(0.2, 1.4, 7)
    fed = federation(data, priority, test=test, requirement=rho)
    layers = random_layers((5, 4))
    local = Local(steps=2, batch_size=None, lr=0.1)
    run = muster.simulate(
        fed, muster.methods.fedalign(0.5), module_of(layers), 5, local, dtype="float64"
    )
    w = layers_of(run)
    p = np.array([len(y) for _, y in data], float)
    p[[k for k in range(7) if k not in priority]] = 0
    p /= p.sum()
    row = run.rounds.row(-1, named=True)
    losses = np.array([reference.loss(w, *pair) for pair in data])
    assert row["loss"] == pytest.approx(p @ losses, abs=1e-12)
    for column, pairs, f in (
        ("train_accuracy", data, reference.accuracy),
        ("test_accuracy", test, reference.accuracy),
        ("test_loss", test, reference.loss),
    ):
        assert row[column] == pytest.approx(p @ [f(w, *pair) for pair in pairs], abs=1e-12)
    assert row["gm_appeal"] == np.mean(losses < rho)
    assert row["fairness"] == row["gm_appeal"]
    assert np.allclose(run.final["train_loss"], losses, atol=1e-12)
    accuracies = [reference.accuracy(w, *pair) for pair in test]
    assert np.allclose(run.final["test_accuracy"], accuracies)


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_the_others_are_measured_by_their_share_of_the_data(engine):
    """In every round, on the common model and on each one's own; the unseen are in neither."""
    data, priority = reference.problem(7)
    held, _ = reference.problem(8)
    fed = federation(data, priority, test=held, unseen=[6])
    layers = random_layers((5, 4))
    local = Local(steps=2, batch_size=None, lr=0.3)

    def after(rounds, method):
        return muster.simulate(
            fed, method, module_of(layers), rounds, local, dtype="float64", engine=engine
        )

    others = [3, 4, 5]
    share = np.array([len(data[k][1]) for k in others], float)
    share /= share.sum()
    run = after(3, muster.methods.perfedavg(0.5))
    for t in (1, 2, 3):
        w = layers_of(after(t, muster.methods.perfedavg(0.5)))
        own = [reference.local_sgd(w, [pair], 0.5) for pair in data]
        row = run.rounds.row(t - 1, named=True)
        accuracy = np.array([reference.accuracy(w, *pair) for pair in held])
        tuned = np.array([reference.accuracy(m, *p) for m, p in zip(own, held, strict=True)])
        losses = [reference.loss(w, *data[k]) for k in others]
        assert row["others_loss"] == pytest.approx(share @ losses, abs=1e-12)
        assert row["others_test_accuracy"] == pytest.approx(share @ accuracy[others])
        assert row["own_others_test_accuracy"] == pytest.approx(share @ tuned[others])
        assert row["own_test_accuracy"] == pytest.approx(fed.objective @ tuned)
        assert row["own_mean_test_accuracy"] == pytest.approx(tuned[:6].mean())
    assert not np.allclose(tuned, accuracy)
    # Without the federation each one's model is its own: the same measures, on any group.
    alone = after(2, muster.methods.local()).rounds.row(-1, named=True)
    own = [reference.local_sgd(layers, [pair] * 4, 0.3) for pair in data]
    accuracy = np.array([reference.accuracy(m, *p) for m, p in zip(own, held, strict=True)])
    assert alone["others_test_accuracy"] == pytest.approx(share @ accuracy[others])
    assert alone["test_accuracy"] == pytest.approx(fed.objective @ accuracy)
    assert alone["mean_test_accuracy"] == pytest.approx(accuracy[:6].mean())
    assert "own_others_test_accuracy" not in alone
    assert MEASURES["own_others_test_accuracy"].otherwise == "others_test_accuracy"


def test_where_all_are_priority_clients_there_are_no_others():
    everyone = federation(reference.problem(0, clients=6)[0])
    assert not [
        name for name in compute_measures(everyone.population, view_of()) if "others" in name
    ]


def test_every_number_of_a_round_is_in_the_table(fed):
    run = muster.simulate(fed, muster.methods.ditto(), muster.models.Softmax(), rounds=1)
    assert set(run.rounds.columns) - {"round"} <= set(MEASURES)


def test_a_measure_over_clients_has_a_twin_for_those_that_only_judge(fed):
    view = view_of()
    row = compute_measures(fed.population, view)
    assert row["gm_appeal"] == view.meets[:5].mean()
    assert row["gm_appeal_unseen"] == view.meets[5]
    assert row["mean_test_accuracy"] == pytest.approx(view.test.accuracy[:5].mean())
    assert row["mean_test_accuracy_unseen"] == view.test.accuracy[5]
    assert "preferred_accuracy" not in row, "nobody has a model of its own to prefer"
    seen = federation(reference.problem(0, clients=6)[0])
    assert "gm_appeal_unseen" not in compute_measures(seen.population, view)
    both = over_clients(Measure("x", "an x", share=True), lambda v: v.train.loss)
    assert [(m.name, m.head, m.share) for m in both] == [
        ("x", "x", True),
        ("x_unseen", "x unseen", True),
    ]


def test_who_said_nothing_is_left_out(fed):
    view = view_of()
    view.train.loss[[0, 2]] = np.nan
    w = np.where(np.isnan(view.train.loss), 0.0, fed.population.objective)
    expected = np.nansum(w * view.train.loss) / w.sum()
    assert compute_measures(fed.population, view)["loss"] == pytest.approx(expected)
    view.train.loss[:] = np.nan
    assert np.isnan(compute_measures(fed.population, view)["loss"])


def test_one_entry_is_all_a_measure_needs(table, fed):
    def spread(population, view):
        return float(np.ptp(view.train.loss))

    register(Measure("spread", "largest gap", short="gap", of=spread, compared=True, panel=True))
    run = muster.simulate(fed, muster.methods.fedavg(), muster.models.Softmax(), rounds=2)
    gap = run.final["train_loss"].max() - run.final["train_loss"].min()
    assert run.rounds["spread"][-1] == pytest.approx(gap)
    assert [m.head for m in find_measures(["spread"])] == ["gap"]
    assert "spread" in [m.name for m in choose_measures({"a": [run]})]
    register(Measure("spread", "largest gap", of=spread))  # a module may be imported again
    for name in ("loss", "round", "silent"):
        with pytest.raises(muster.MusterError, match=f"measure '{name}': there is one already"):
            register(Measure(name, "mine", of=spread))


def test_measures_are_named_in_a_list_or_in_words():
    assert [m.name for m in find_measures(("loss", "fairness"))] == ["loss", "fairness"]
    assert [m.name for m in find_measures("fairness,loss , fairness")] == ["fairness", "loss"]
    with pytest.raises(muster.MusterError, match="unknown measure 'fairnes'; did you mean 'fair"):
        find_measures("loss,fairnes")
