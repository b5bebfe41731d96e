"""FedDA and FedFomo: rounds against numpy, and whom they count."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import muster
from muster.methods import fedda, fedfomo
from muster.protocol import Trial
from muster.run.held_out_trial import join_trials
from softmax_clients import LR, STEPS, as_vector, clients_of, descend, folds_of, loss

FULL = muster.Local(steps=STEPS, batch_size=None, lr=LR)


def simulate(fed, method, engine="stacked", rounds=1):
    return muster.simulate(
        fed, method, muster.models.Softmax(), rounds, FULL, engine=engine, dtype="float64"
    )


def rows_of(fed, k):
    return fed.train.positions(np.array([k]))


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_a_round_of_fedda_is_that_of_numpy(engine):
    fed = clients_of(sizes=(12, 9, 40, 30, 50), shift=(0, 0, 0, 0.4, 3))
    x, y = fed.train.x.double().numpy(), fed.train.y.numpy()
    b = fed.population.share[:2] / fed.population.share[:2].sum()
    q = fed.population.share[2:] / fed.population.share[2:].sum()
    pairs = [[descend(x[rows], y[rows]) for rows in folds_of(fed, k)] for k in range(2)]
    g_p = b @ [np.mean(pair, 0) for pair in pairs]
    v = b**2 @ [((one - two) ** 2).sum() / 4 for one, two in pairs]
    g = np.array([descend(x[rows], y[rows]) for rows in (rows_of(fed, k) for k in (2, 3, 4))])
    beta = np.minimum(1, v / ((g - g_p) ** 2).sum(1))
    assert (beta < 1).any()
    expected = sum(q[i] * ((1 - beta[i]) * g_p + beta[i] * g[i]) for i in range(3))
    run = simulate(fed, fedda(), engine)
    assert as_vector(run.weights) == pytest.approx(expected, abs=1e-9)
    weight = run.clients.sort("client")["weight"].to_numpy()
    assert weight[2:] == pytest.approx(q * beta, abs=1e-9)
    assert weight.sum() == pytest.approx(1)


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_two_rounds_of_fedfomo_are_those_of_numpy(engine):
    fed = clients_of(sizes=(16, 11, 40, 30), shift=(0, 0, 0.5, 3))
    x, y = fed.train.x.double().numpy(), fed.train.y.numpy()
    b = fed.population.share[:2] / fed.population.share[:2].sum()
    held, own = [], [rows_of(fed, k) for k in range(4)]
    for k in range(2):
        first, *rest = folds_of(fed, k, "cross-fit", 4)
        held.append(first)
        own[k] = np.concatenate(rest)

    def judge(model):
        return b @ [loss(model, x[rows], y[rows]) for rows in held]

    w, weights = np.zeros(15), []
    for _ in range(2):
        replies = np.array([descend(x[rows], y[rows], start=w) for rows in own])
        gains = np.array([judge(w) - judge(model) for model in replies])
        u = np.maximum(0, gains / (np.sqrt(((replies - w) ** 2).sum(1)) + 1e-5))
        weights.append(u / u.sum())
        w = w + weights[-1] @ (replies - w)
    run = simulate(fed, fedfomo(), engine, rounds=2)
    assert as_vector(run.weights) == pytest.approx(w, abs=1e-9)
    got = run.clients.sort("round", "client")["weight"].to_numpy()
    assert got == pytest.approx(np.concatenate(weights), abs=1e-9)


def test_fedfomo_refuses_who_does_not_lower_the_held_out_loss():
    fed = clients_of(1, (40, 60, 60), (0,))
    pairs = [fed.train.client(k) for k in range(3)]
    pairs[2] = (pairs[2][0], (np.asarray(pairs[2][1]) + 1) % 3)  # every label another
    wrong = muster.Federation.from_arrays(train=pairs, priority=[0])
    table = simulate(wrong, fedfomo(), rounds=3).clients
    liar, helper = (table.filter(pl.col("client") == k) for k in (2, 1))
    assert liar["weight"].to_list() == [0.0] * 3
    assert set(liar["reason"]) == {"no better on held-out rows"}
    assert (helper["weight"] > 0.2).all()


def test_the_ledger_has_the_exchange_of_fedfomo():
    """Each priority client gets every reply and answers a number for each, and for the model."""
    fed = clients_of()
    table = simulate(fed, fedfomo()).clients.sort("client")
    model = 15 * 8
    assert table["bytes_down"].to_list() == [5 * model] * 2 + [model] * 2
    assert table["bytes_up"].to_list() == [model + 5 * 8] * 2 + [model] * 2


def test_many_replies_are_judged_in_several_messages(monkeypatch):
    fed = clients_of(sizes=(16, 11, 40, 30, 20), shift=(0, 0, 0.5, 3, 0))
    whole = simulate(fed, fedfomo(), rounds=2)
    monkeypatch.setattr("muster.run.held_out_trial.AT_ONCE", 2)
    parts = simulate(fed, fedfomo(), rounds=2)
    assert (as_vector(parts.weights) == as_vector(whole.weights)).all()
    assert parts.clients.equals(whole.clients)


def test_counted_bytes_of_several_messages_add_up():
    one, two = (
        Trial(
            np.array([[1.0], [2.0]]), np.array([3]), (np.array([n]), np.array([10 * n])), ((3, n),)
        )
        for n in (5, 7)
    )
    both = join_trials([one, two])
    assert both.values.tolist() == [[1.0], [2.0], [2.0]]
    assert [numbers.tolist() for numbers in both.traffic] == [[12], [120]]
    assert both.events == ((3, 5), (3, 7))


def test_without_rows_to_hold_out_nobody_is_judged_and_the_model_stays():
    fed = clients_of(sizes=(4, 40, 40), priority=(0,))
    run = simulate(fed, fedfomo())
    assert not run.facts["moved"]
    assert "the model never moved" in " ".join(run.warnings)
    with pytest.raises(muster.MusterError, match="hold_out: 1; allowed"):
        fedfomo(hold_out=1)


def test_it_does_not_go_with_other_folds_or_an_audit():
    for more in ({"claim": muster.parts.Spread()}, {"trust": muster.parts.Audit()}):
        with pytest.raises(muster.MusterError, match="judges replies by rows that it holds out"):
            muster.Method("x", weigh=muster.parts.FedFomo(), **more)


@pytest.mark.parametrize("method", [fedda(), fedfomo()])
def test_a_round_without_the_objective_moves_nothing(method):
    fed = clients_of(4, (30, 30, 30, 30, 30, 30), (0,))
    sampled = muster.Method(
        "x", invite=muster.parts.Sample(2), weigh=method.weigh, claim=method.claim
    )
    run = simulate(fed, sampled, rounds=8)
    heard = run.clients.group_by("round").agg(pl.col("priority").any())
    without = sorted(heard.filter(~pl.col("priority"))["round"].to_list())
    assert without == run.rounds.filter(pl.col("skipped"))["round"].to_list()
    assert without
