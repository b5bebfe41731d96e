"""The small parts: invitations, decisions, admission, guard, schedules, batches, randomness."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import muster
import reference
from helpers import admitted, federation, gap, layers_of, module_of, random_layers
from muster import rng
from muster.engines.batches import plan
from muster.federation.ragged import Ragged
from muster.local import Local
from muster.parts.admit import Band
from muster.parts.guard import guard
from muster.parts.invite import Fraction, Full, Sample, WithReplacement
from muster.parts.join import Aligned, Available, Straggling
from muster.protocol import Appraisal, Offer, Replies, Roster
from muster.schedules import Constant, Exponential, Inverse, Linear, StepTo
from muster.theory import bounds

M = muster.methods


@pytest.fixture
def fed():
    data, priority = reference.problem(0, clients=9)
    return federation(data, priority)


def no_losses(clients):
    raise AssertionError("this invitation needs no losses")


def roster_of(priority, importance=None):
    priority = np.array(priority, bool)
    a = np.where(priority, 1.0, 0.0) if importance is None else np.array(importance)
    return Roster(np.arange(len(priority)), priority, a, np.full(len(priority), 0.1))


def offer(loss=1.0, accuracy=0.5, eps=0.2, round=0):
    return Offer(0, round, 10, {"w": torch.zeros(2)}, loss, accuracy, eps)


# --- join and admit -----------------------------------------------------------------------------


def test_strict_inequalities_on_both_sides():
    roster = roster_of([True, False, False, False, False])
    loss = np.array([9.0, 1.25, 1.2499, 0.75, 0.7501])
    appraisal = Appraisal(loss, np.zeros(5))
    joined = Aligned("loss")(offer(eps=0.25), roster, appraisal)
    assert joined.yes.tolist() == [True, False, True, True, True]
    assert joined.reason.tolist()[:3] == ["priority", "loss too high", "aligned"]
    extent = Band("loss")(offer(eps=0.25), roster, appraisal)
    assert extent.tolist() == [1.0, 0.0, 1.0, 0.0, 1.0]


def test_accuracy_turns_the_band_round():
    roster = roster_of([False] * 4)
    appraisal = Appraisal(np.zeros(4), np.array([0.25, 0.2501, 0.75, 0.7499]))
    assert Aligned("accuracy")(offer(eps=0.25), roster, appraisal).yes.tolist() == [
        False, True, True, True
    ]  # fmt: skip
    assert Band("accuracy")(offer(eps=0.25), roster, appraisal).tolist() == [0.0, 1.0, 0.0, 1.0]


def test_without_a_reference_nobody_else_joins():
    roster = roster_of([True, False])
    unknown = offer(loss=float("nan"))
    decision = Aligned()(unknown, roster, Appraisal(np.array([1.0, 1.0]), np.zeros(2)))
    assert decision.yes.tolist() == [True, False]


def test_availability_concerns_only_the_others_and_matches_its_probability():
    roster = roster_of([True] * 100 + [False] * 4000)
    n = len(roster)
    decision = Available(0.3)(offer(), roster, Appraisal.unknown(n))
    assert decision.yes[:100].all()
    assert abs(decision.yes[100:].mean() - 0.3) < 0.03
    assert set(decision.reason[~decision.yes]) == {"unavailable"}
    again = Available(0.3)(offer(round=1), roster, Appraisal.unknown(n))
    assert (again.yes != decision.yes).any()


def test_stragglers_come_once_in_every_period():
    roster = roster_of([False] * 50)
    rounds = [Straggling(4)(offer(round=t), roster, Appraisal.unknown(50)).yes for t in range(8)]
    assert (np.sum(rounds[:4], axis=0) == 1).all()
    assert np.array_equal(rounds[0], rounds[4])


@pytest.mark.parametrize("more", [{"availability": 0.5}, {"straggler_period": 2}])
def test_fedalign_with_unreliable_others_admits_a_subset(fed, more):
    args = {"model": muster.models.Softmax(), "rounds": 10, "local": Local(steps=2, lr=0.01)}
    always = muster.simulate(fed, M.fedalign(5.0, warmup=0), **args)
    some = muster.simulate(fed, M.fedalign(5.0, warmup=0, **more), **args)
    assert always.rounds["silent"].sum() == 0
    assert some.rounds["silent"].sum() > 0
    assert "unavailable" in some.clients["reason"].to_list()
    assert some.clients.filter("priority")["joined"].all()


# --- invite -------------------------------------------------------------------------------------


def test_full_sample_and_fraction(fed):
    pool = np.arange(9)
    assert Full()(fed, pool, 0, 0, no_losses).clients.tolist() == list(range(9))
    asked = Sample(4)(fed, pool, 0, 3, no_losses).clients
    assert len(set(asked.tolist())) == 4
    assert (np.diff(asked) > 0).all()
    assert len(Fraction(0.5)(fed, pool, 0, 0, no_losses)) == 5
    assert len(Sample(40)(fed, pool, 0, 0, no_losses)) == 9
    draws = {tuple(Sample(4)(fed, pool, 0, t, no_losses).clients.tolist()) for t in range(30)}
    assert len(draws) > 20


def test_sampling_is_uniform(fed):
    counts = np.zeros(9)
    for t in range(3000):
        counts[Sample(3)(fed, np.arange(9), 0, t, no_losses).clients] += 1
    assert np.abs(counts / 3000 - 1 / 3).max() < 0.04


def test_draws_with_replacement_average_as_eq_55(fed):
    data, priority = reference.problem(0, clients=9)
    layers = random_layers((5, 4))
    invite = WithReplacement(4)
    method = M.fedalign(1e9, warmup=0, invite=invite)
    local = Local(steps=2, batch_size=None, lr=0.1)
    run = muster.simulate(fed, method, module_of(layers), 1, local, dtype="float64")
    roster = invite(fed, np.arange(9), 0, 0, no_losses)
    total = sum(len(data[k][1]) for k in priority)
    share = dict(zip(roster.clients.tolist(), roster.share.tolist(), strict=True))
    drawn = {k: round(share[k] * 4) for k in priority if k in share}
    assert sum(drawn.values()) == 4
    others = [k for k in range(9) if k not in priority]
    p = {k: len(data[k][1]) / total for k in others}
    own = {k: reference.local_sgd(layers, [data[k]] * 2, 0.1) for k in range(9)}
    scale = 1 + sum(p.values())
    for j in range(2):
        expected = sum(c * own[k][0][j] for k, c in drawn.items()) / 4 / scale
        expected = expected + sum(p[k] / scale * own[k][0][j] for k in others)
        assert np.abs(layers_of(run)[0][j] - expected).max() < 1e-12


def test_draws_with_replacement_follow_the_data_shares(fed):
    total = np.zeros(9)
    for t in range(4000):
        roster = WithReplacement(2)(fed, np.arange(9), 0, t, no_losses)
        total[roster.clients] += roster.share
    assert np.abs(total[fed.priority] / 4000 - fed.share[fed.priority]).max() < 0.02


def test_a_fraction_of_all_clients_agrees_with_numpy(fed):
    """Supplement D.4: F(w) over all priority clients, the average over those asked."""
    data, priority = reference.problem(0, clients=9)
    layers = random_layers((5, 4))
    invite = Fraction(0.5)
    local = Local(steps=2, batch_size=None, lr=0.1)
    method = M.fedalign(0.4, warmup=0, invite=invite)
    run = muster.simulate(fed, method, module_of(layers), 8, local, dtype="float64")
    sizes = np.array([len(y) for _, y in data])
    p = sizes / sizes[priority].sum()
    for t in range(8):
        asked = invite(fed, np.arange(9), 0, t, no_losses).clients.tolist()
        own = [reference.loss(layers, *pair) for pair in data]
        f = sum(p[k] * own[k] for k in priority)
        let_in = [k for k in asked if k in priority or abs(own[k] - f) < 0.4]
        assert admitted(run)[t] == let_in
        if let_in:
            models = [reference.local_sgd(layers, [data[k]] * 2, 0.1) for k in let_in]
            layers = reference.average(models, [p[k] for k in let_in])
    assert gap(layers_of(run), layers) < 1e-9


def test_reference_on_the_asked_needs_only_them(fed):
    args = {"model": muster.models.Softmax(), "rounds": 12, "evaluate_every": 0}
    method = M.fedalign(0.5, warmup=0, invite=Sample(3), reference="asked")
    run = muster.simulate(fed, method, **args)
    for row in run.rounds.iter_rows(named=True):
        asked = run.clients.filter(run.clients["round"] == row["round"])
        members = asked.filter("priority")
        if len(members) == 0:
            assert row["reference_loss"] is None
            assert row["skipped"]
            continue
        weight = fed.share[members["client"].to_numpy()]
        expected = float(weight @ members["loss"].to_numpy() / weight.sum())
        assert row["reference_loss"] == pytest.approx(expected, rel=1e-6)


# --- guard --------------------------------------------------------------------------------------


def test_the_guard_refuses_what_is_broken_and_says_why():
    n = 5
    models = {"w": torch.zeros(n, 2)}
    models["w"][1, 0] = float("nan")
    models["w"][2, 1] = float("inf")
    loss = np.array([1.0, 1.0, 1.0, np.nan, -1.0])
    replies = Replies(
        roster_of([False] * n), models, Appraisal(loss, np.full(n, 0.5)), np.full(n, np.nan)
    )
    verdict = guard(offer(), replies, appraised=True)
    assert verdict.yes.tolist() == [True, False, False, False, False]
    assert verdict.reason[1] == "malformed: not finite"
    assert verdict.reason[3] == "impossible loss"
    wrong = Replies(
        roster_of([False]), {"w": torch.zeros(1, 3)}, Appraisal.unknown(1), np.full(1, np.nan)
    )
    assert guard(offer(), wrong, False).reason[0] == "malformed: names or shapes"


def test_a_diverging_client_never_moves_the_model(fed):
    """With an absurd learning rate every reply overflows: refused, recorded, model unchanged."""
    model = muster.models.MLP((4,)).build(fed, 0)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1e18)
    run = muster.simulate(fed, M.fedavg(), model, 2, Local(steps=5, lr=1e30), evaluate_every=0)
    assert run.rounds["skipped"].all()
    assert run.rounds["refused"].to_list() == [9, 9]
    assert set(run.clients["reason"]) == {"malformed: not finite"}
    assert all(np.isfinite(w).all() for w in run.weights.values())


# --- silence ------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_a_silent_client_uploads_nothing_and_trains_nothing(fed, engine, monkeypatch):
    """Count every gradient step that is really taken, client by client."""
    taken = []
    if engine == "loop":
        from muster.engines.loop import Loop, LoopCohort

        real = LoopCohort._gradient

        def gradient(self, x, y):
            taken.append(int(self.group.clients[0]))
            return real(self, x, y)

        monkeypatch.setattr(LoopCohort, "_gradient", gradient)
        assert Loop
    else:
        from muster.engines import stacked

        real_batches = stacked.StackedCohort._batches

        def batches(self):
            for n, batch in real_batches(self):
                taken.extend(self.group.clients[:n].tolist())
                yield n, batch

        monkeypatch.setattr(stacked.StackedCohort, "_batches", batches)
    run = muster.simulate(
        fed, M.fedalign(0.05, warmup=0), muster.models.MLP((4,)), 6, Local(steps=3, batch_size=4),
        engine=engine, processes=1 if engine == "loop" else None,
    )  # fmt: skip
    silent = run.clients.filter(~run.clients["joined"])
    assert len(silent) > 5
    assert silent["bytes_up"].sum() == 0
    assert silent["steps"].sum() == 0
    assert silent["weight"].sum() == 0
    joined = run.clients.filter("joined")
    assert len(taken) == 3 * len(joined) == run.rounds["steps"].sum()
    counted = np.bincount(taken, minlength=fed.n)
    expected = np.bincount(joined["client"].to_numpy(), minlength=fed.n) * 3
    assert np.array_equal(counted, expected)
    size = sum(w.nbytes for w in run.weights.values())
    assert (joined["bytes_up"] == size + 8).all()
    assert (run.clients["bytes_down"] == size + 16).all()


def test_warm_up_asks_only_priority_clients(fed):
    args = {"model": muster.models.Softmax(), "rounds": 20}
    for warmup, rounds in ((0.25, 5), (3, 3), (0, 0)):
        run = muster.simulate(fed, M.fedalign(10.0, warmup=warmup), **args)
        asked = run.rounds["asked"].to_list()
        assert asked == [3] * rounds + [9] * (20 - rounds)


# --- schedules ----------------------------------------------------------------------------------


def test_every_schedule():
    assert [Constant(0.2).at(t, 10) for t in (0, 9)] == [0.2, 0.2]
    assert [StepTo(0.2, 0.0, 5).at(t, 10) for t in (4, 5)] == [0.2, 0.0]
    assert [StepTo(0.2, 0.1, 0.5).at(t, 10) for t in (4, 5)] == [0.2, 0.1]
    assert Linear(1.0, 0.0).at(0, 11) == 1.0
    assert Linear(1.0, 0.0).at(5, 11) == pytest.approx(0.5)
    assert Linear(1.0, 0.2).at(10, 11) == pytest.approx(0.2)
    assert [Inverse(0.6).at(t, 10) for t in (0, 1, 2)] == pytest.approx([0.6, 0.3, 0.2])
    assert Exponential(0.5, 0.9).at(2, 10) == pytest.approx(0.405)


def test_epsilon_follows_its_schedule(fed):
    run = muster.simulate(
        fed, M.fedalign(StepTo(9.0, 0.0, 4), warmup=0), muster.models.Softmax(), rounds=8
    )
    assert run.rounds["eps"].to_list() == [9.0] * 4 + [0.0] * 4
    assert run.rounds["admitted_nonpriority"].to_list() == [6] * 4 + [0] * 4


def test_a_learning_rate_may_be_a_schedule(fed):
    local = Local(steps=1, batch_size=None, lr=StepTo(0.1, 0.0, 1))
    run = muster.simulate(fed, M.fedavg(), muster.models.Softmax(), 3, local)
    losses = run.rounds["loss"].to_list()
    assert losses[0] < np.log(4)
    assert losses[1:] == pytest.approx([losses[0]] * 2, abs=1e-6)


# --- batches and randomness ---------------------------------------------------------------------


def ragged(sizes):
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    n = int(offsets[-1])
    return Ragged(torch.zeros(n, 1), torch.zeros(n, dtype=torch.int64), offsets)


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.integers(1, 9),
    st.integers(1, 3),
    st.booleans(),
)
def test_every_epoch_visits_every_row_once(sizes, batch, epochs, merge):
    data = ragged(sizes)
    local = Local(epochs=epochs, batch_size=batch)
    (p,) = plan(data, np.arange(len(sizes)), local, seed=1, round=2, merge_single=merge)
    assert (np.diff(p.steps) <= 0).all()
    for i, k in enumerate(p.clients):
        seen = [p.rows[i, s, : p.count[i, s]] for s in range(p.steps[i])]
        counts = np.bincount(np.concatenate(seen), minlength=sum(sizes))
        own = slice(data.offsets[k], data.offsets[k + 1])
        assert (counts[own] == epochs).all()
        assert counts.sum() == epochs * sizes[k]
        each = len(seen) // epochs
        for e in range(epochs):
            assert len(np.unique(np.concatenate(seen[e * each : (e + 1) * each]))) == sizes[k]
        if merge and sizes[k] > 1:
            assert batch == 1 or min(len(s) for s in seen) > 1
        assert (p.count[i, p.steps[i] :] == 0).all()


@given(st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(1, 7), st.integers(1, 12))
def test_steps_are_steps_whatever_the_size(sizes, batch, steps):
    data = ragged(sizes)
    (p,) = plan(data, np.arange(len(sizes)), Local(steps=steps, batch_size=batch), 0, 0)
    assert (p.steps == steps).all()
    assert (p.count >= 1).all()
    assert (p.count <= batch).all()


def test_batches_depend_on_round_client_and_seed_but_not_on_company():
    data = ragged([20, 20, 20])
    local = Local(steps=2, batch_size=5)

    def rows(clients, seed=0, round=0):
        (p,) = plan(data, np.array(clients), local, seed, round)
        return {int(k): (p.rows[i] - data.offsets[k]).tolist() for i, k in enumerate(p.clients)}

    alone, together = rows([1]), rows([0, 1, 2])
    assert alone[1] == together[1]
    assert together[0] != together[1]
    assert rows([1], round=1)[1] != alone[1]
    assert rows([1], seed=1)[1] != alone[1]


def test_full_batches_of_very_different_clients_are_grouped():
    data = ragged([3, 500, 4, 600, 1])
    groups = plan(data, np.arange(5), Local(steps=2, batch_size=None), 0, 0)
    padded = sum(g.rows.size for g in groups)
    assert padded <= 2 * 2 * sum([3, 500, 4, 600, 1])
    assert sorted(np.concatenate([g.at for g in groups]).tolist()) == list(range(5))


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(0, 2**31))
def test_permutations_are_permutations(sizes, seed):
    key = rng.keys(seed, "test", 0, np.arange(len(sizes)))
    values, offsets = rng.permutations(key, np.array(sizes))
    for i, n in enumerate(sizes):
        assert sorted(values[offsets[i] : offsets[i + 1]].tolist()) == list(range(n))


def test_permutations_are_uniform():
    n = 24000
    values, _ = rng.permutations(rng.keys(0, "uniform", 0, np.arange(n)), np.full(n, 4))
    _, counts = np.unique(values.reshape(n, 4) @ [64, 16, 4, 1], return_counts=True)
    assert len(counts) == 24
    assert np.abs(counts - 1000).max() < 150  # about 5 standard deviations


def test_keys_differ_in_every_part_and_uniforms_are_uniform():
    base = rng.keys(1, "a", 2, 3)
    assert len({int(k) for k in (base, rng.keys(2, "a", 2, 3), rng.keys(1, "b", 2, 3),
                                 rng.keys(1, "a", 3, 3), rng.keys(1, "a", 2, 4))}) == 5  # fmt: skip
    u = rng.uniform(rng.keys(0, "u", 0, np.arange(100_000)))
    assert abs(u.mean() - 0.5) < 0.005
    assert np.abs(np.histogram(u, 10, (0, 1))[0] / 10_000 - 1).max() < 0.05


# --- metrics ------------------------------------------------------------------------------------


def test_measures_against_numpy():
    data, priority = reference.problem(7)
    test, _ = reference.problem(8)
    rho = np.linspace(0.2, 1.4, 7)
    fed = federation(data, priority, test=test, requirement=rho)
    layers = random_layers((5, 4))
    local = Local(steps=2, batch_size=None, lr=0.1)
    run = muster.simulate(fed, M.fedalign(0.5), module_of(layers), 5, local, dtype="float64")
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


def test_fairness_without_requirements_is_against_the_best_constant_prediction(fed):
    run = muster.simulate(fed, M.fedavg(), muster.models.Softmax(), rounds=5)
    counts = fed.label_counts()
    f = counts / counts.sum(1, keepdims=True)
    entropy = [-sum(v * np.log(v) for v in row if v > 0) for row in f]
    useful = run.final["train_loss"].to_numpy() < np.array(entropy)
    assert run.rounds["fairness"][-1] == pytest.approx(useful.mean())
    assert run.final["useful"].to_list() == useful.tolist()


def test_terms_of_the_bound():
    extra, bias = np.array([0.0, 1.0, 3.0]), np.array([0.0, 0.5, 0.9])
    steps, gamma, L, mu = 2, 8.0, 3.0, 0.5
    T = 6
    per = [extra[i // 2] for i in range(T)]
    theta = sum(1 / (1 + s) for s in per[1:]) / (T + gamma - 2)
    drift = sum(bias[i // 2] / (1 + extra[i // 2]) for i in range(1, T))
    rho = 2 * L / (mu * (T + gamma - 2)) * drift
    assert bounds.bound_terms(extra, bias, steps, gamma, L, mu) == pytest.approx((theta, rho))
    # At eps = 0 the printed theta is (T - 1)/(T + gamma - 2), not 1; from i = 0 it gains a term.
    zero, _ = bounds.bound_terms(np.zeros(3), None, steps, gamma, L, mu)
    assert zero == pytest.approx((T - 1) / (T + gamma - 2))
    repaired, _ = bounds.bound_terms(np.zeros(3), None, steps, gamma, L, mu, first=0)
    assert repaired == pytest.approx(T / (T + gamma - 2))


def test_theta_is_recorded_from_what_was_admitted(fed):
    run = muster.simulate(fed, M.fedalign(0.4, warmup=0), muster.models.Softmax(), rounds=10)
    others = run.clients.filter(run.clients["admitted"] & ~run.clients["priority"])
    for t, theta in run.rounds.select("round", "theta").iter_rows():
        who = others.filter(others["round"] == t)["client"].to_numpy()
        assert theta == pytest.approx(1 / (1 + fed.share[who].sum()))


def test_weights_in_the_ledger_are_shares_of_the_step(fed):
    run = muster.simulate(fed, M.fedalign(0.4, warmup=0), muster.models.Softmax(), rounds=10)
    sums = run.clients.group_by("round").agg(muster_total=run_sum())["muster_total"]
    assert np.allclose(sums, 1.0)


def run_sum():
    import polars as pl

    return pl.col("weight").sum()
